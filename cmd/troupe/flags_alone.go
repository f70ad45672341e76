package main

import (
	"errors"
	"flag"
	"fmt"
	"time"
)

// aloneOptions are etcd's flags that are about other members, or about what etcd has left behind. Manifests set them,
// so they are read and checked; nothing follows from them while a member is alone.
type aloneOptions struct {
	raftReadTimeout      time.Duration
	raftWriteTimeout     time.Duration
	corruptCheckTime     time.Duration
	compactHashCheckTime time.Duration
	discoveryFallback    string
	v2Deprecation        string
}

func defaultAlone() aloneOptions {
	return aloneOptions{
		raftReadTimeout: 5 * time.Second, raftWriteTimeout: 5 * time.Second,
		compactHashCheckTime: time.Minute,
		discoveryFallback:    "exit", v2Deprecation: "write-only",
	}
}

func aloneFlags(fs *flag.FlagSet, o *options) {
	a := &o.alone
	fs.DurationVar(&a.raftReadTimeout, "raft-read-timeout", a.raftReadTimeout, "Read timeout of connections to members.")
	fs.DurationVar(&a.raftWriteTimeout, "raft-write-timeout", a.raftWriteTimeout, "Write timeout of the same.")
	fs.DurationVar(&a.corruptCheckTime, "corrupt-check-time", a.corruptCheckTime, "How often members compare their data.")
	fs.DurationVar(&a.compactHashCheckTime, "compact-hash-check-time", a.compactHashCheckTime,
		"How often members compare hashes of compactions.")
	fs.Var(choiceValue{&a.discoveryFallback, []string{"exit", "proxy"}}, "discovery-fallback",
		"What to do without discovery: exit.")
	fs.Var(choiceValue{&a.v2Deprecation, v2Deprecations}, "v2-deprecation", "Ignored, as by etcd: there is no v2 store.")
}

// v2Deprecations are the words that etcd 3.7 takes for --v2-deprecation.
var v2Deprecations = []string{"write-only", "write-only-skip-check", "write-only-drop-data", "gone"}

func (a *aloneOptions) validate() error {
	if a.compactHashCheckTime <= 0 {
		return fmt.Errorf("--compact-hash-check-time must be >0 (set to %v)", a.compactHashCheckTime)
	}
	negative := []struct {
		flag  string
		value time.Duration
	}{
		{"--raft-read-timeout", a.raftReadTimeout},
		{"--raft-write-timeout", a.raftWriteTimeout},
		{"--corrupt-check-time", a.corruptCheckTime},
	}
	for _, n := range negative {
		if n.value < 0 {
			return fmt.Errorf("%s must not be negative (set to %s)", n.flag, n.value)
		}
	}
	if a.discoveryFallback == "proxy" {
		return errors.New(`v2 proxy is deprecated, and --discovery-fallback can't be configured as "proxy": use "exit"`)
	}
	return nil
}
