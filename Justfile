# Shorthand for the commands of CONTRIBUTING.md. Nothing depends on it: each recipe is one or two plain commands.
# just itself comes from npm: npm install -g rust-just

set shell := ["bash", "-euo", "pipefail", "-c"]

rooms := "./actors/... ./raftactor/... ./storeactor/... ./watchactor/... ./leaseactor/... ./gateway/... ./cmd/..."

# list the recipes
default:
    @just --list

# formatting, vet, layering, tidy modules; golangci-lint too if it is there
check:
    @files=$(git ls-files '*.go' | xargs gofmt -l); [ -z "$files" ] || { echo "gofmt: $files"; exit 1; }
    go vet ./...
    go test -count=1 -run Layering ./actors
    for module in . integration/peers integration/peers/bench; do (cd $module && go mod tidy -diff); done
    if command -v golangci-lint >/dev/null; then golangci-lint run; fi

# unit tests and transcripts of the rooms; `just test ./...` for everything
test packages=rooms:
    go test {{packages}}

# the race detector on the rooms
race packages=rooms:
    GORACE=halt_on_error=1 go test -race {{packages}}

# seeded runs: a whole member through crashes, watches, leases: just sim seed=17 runs=1; seed=0 walks through 1, 2, ...
sim *args:
    seed=0; runs=200; for a in {{args}}; do case $a in seed=*) seed=${a#seed=};; runs=*) runs=${a#runs=};; esac; done; \
    go test -count=1 -v -timeout 60m ./integration/sim -run Lives_Nothing -sim.seed=$seed -sim.runs=$runs; \
    go test -count=1 ./watchactor -run TestStreams -watch.seed=$seed -watch.runs=$runs; \
    go test -count=1 ./leaseactor -run TestLeases -lease.seed=$seed -lease.runs=$runs

# fuzz one target, or each in turn: just fuzz target=FuzzName time=60s
fuzz *args:
    target=.; time=30s; for a in {{args}}; do case $a in target=*) target=${a#target=};; time=*) time=${a#time=};; esac; done; \
    grep -rl --include='*_test.go' '^func Fuzz' . | xargs -n1 dirname | sort -u | while read -r dir; do \
        go test "$dir" -list "^Fuzz" | grep '^Fuzz' | grep -E "$target" | while read -r name; do \
            echo "== $dir $name"; go test "$dir" -run '^$' -fuzz "^$name\$" -fuzztime "$time"; done; done

# troupe beside the official etcd: its clients, tools, files and bad manners
compat:
    go test -count=1 ./integration/...

# Also the same raft entries, longer: entries-seed=N entries-steps=M, where seed 0 takes fixed seeds and a new one.
# the same random calls to troupe and etcd: just differential minutes=10, or seed=N
differential *args:
    minutes=1; seed=0; es=0; steps=4000; for a in {{args}}; do case $a in minutes=*) minutes=${a#minutes=};; \
    seed=*) seed=${a#seed=};; entries-seed=*) es=${a#entries-seed=};; entries-steps=*) steps=${a#entries-steps=};; \
    *) echo "unknown argument: $a"; exit 1;; esac; done; \
    go test -count=1 -v -timeout 0 ./integration/differential -differential.minutes=$minutes -differential.seed=$seed; \
    go test -count=1 -v ./integration/entries -entries.fresh -entries.seed=$es -entries.steps=$steps

# everything that clients do at once, then the look for what is left behind: just storm minutes=30
storm *args:
    minutes=1; for a in {{args}}; do case $a in minutes=*) minutes=${a#minutes=};; esac; done; \
    go test -count=1 -v -timeout $((minutes * 4 + 10))m ./integration/storm -storm.minutes=$minutes

# kill -9 under load, the long form
durability rounds="100":
    go test -count=1 -v -timeout 30m ./integration/durability -durability.rounds={{rounds}}

# The situations that hurt: just bench scenario=all, just bench scenario=a,c scale=0.1. Every flag of integration/bench is
# a name here.
# troupe and etcd alternating in one run: just bench rows=put-100 rounds=7 out=docs/benchmarks.md
bench *args:
    flags=(); for a in {{args}}; do case $a in -*) flags+=("$a");; *=*) flags+=("-${a%%=*}" "${a#*=}");; *) flags+=("$a");; \
    esac; done; go run ./integration/bench "${flags[@]}"

# take anew the profile that the compiler optimises the daemon with, when what is hot has changed
pgo:
    go run ./integration/bench -pgo cmd/troupe/default.pgo

# coverage of the rooms
cover packages=rooms:
    go test -coverprofile=/tmp/troupe-cover.out {{packages}}
    go tool cover -func=/tmp/troupe-cover.out | tail -1

# generate the wire types again (protoc and protoc-gen-go must be on the PATH)
proto:
    go generate ./proto

# exactly what CI runs
ci:
    bash .ci/run
