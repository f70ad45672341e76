package storeactor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"troupe/proto"
)

func TestKeyspace_PrefixesOfKeys(t *testing.T) {
	for _, c := range []struct {
		key   string
		depth int
		want  string
	}{
		{"", 1, ""}, {"a", 1, ""}, {"a/", 1, "a/"}, {"a/b", 1, "a/"}, {"a/b", 2, "a/"}, {"a/b/c", 2, "a/b/"},
		{"a/b/c/d", 2, "a/b/"}, {"/", 1, "/"}, {"/a", 1, "/"}, {"/a/b", 1, "/a/"},
		{"/registry/pods/ns/p", 2, "/registry/pods/"},
		{"//a", 1, "//"}, {"a//b", 2, "a//"},
	} {
		if got := string(prefixOf([]byte(c.key), c.depth)); got != c.want {
			t.Errorf("prefix of %q at depth %d: %q, want %q", c.key, c.depth, got, c.want)
		}
	}
}

// walkAll makes a report in pieces of a size.
func walkAll(t *testing.T, v func() *View, q KeyspaceQuery, most int) Keyspace {
	t.Helper()
	w := &keyspaceWalk{keys: prefixRange(q.Within), sums: keyspaceSums{depth: q.Depth, top: q.Top}}
	for range 1_000_000 {
		done, err := w.piece(v(), most)
		if err != nil {
			t.Fatal(err)
		}
		if done {
			return w.sums.finish()
		}
	}
	t.Fatal("the walk does not end")
	return Keyspace{}
}

// naiveUses adds up the records of the key bucket, all of which must be in the file.
func naiveUses(t *testing.T, r *rig, q KeyspaceQuery) map[string]PrefixUse {
	t.Helper()
	uses := map[string]PrefixUse{}
	newest := map[string][]byte{}
	sizes := map[string]int64{}
	err := r.m.file.Scan(proto.BucketKey, nil, nil, func(key, record []byte) bool {
		name := keyOfRecord(record)
		if !bytes.HasPrefix(name, q.Within) {
			return true
		}
		use := uses[string(prefixOf(name, q.Depth))]
		use.Revisions++
		use.Bytes += int64(len(key) + len(record))
		uses[string(prefixOf(name, q.Depth))] = use
		newest[string(name)], sizes[string(name)] = bytes.Clone(key), int64(len(key)+len(record))
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, key := range newest {
		if _, tombstone, _ := parseVersionKey(key); !tombstone {
			use := uses[string(prefixOf([]byte(name), q.Depth))]
			use.Keys++
			use.LiveBytes += sizes[name]
			uses[string(prefixOf([]byte(name), q.Depth))] = use
		}
	}
	return uses
}

// TestKeyspace_IsWhatTheFileHolds: in pieces of any size, before and after the values are written, with deleted keys,
// compactions and prefixes inside each other, the report is what a scan of all records adds up to.
func TestKeyspace_IsWhatTheFileHolds(t *testing.T) {
	parts := []string{"a", "b", "a/", "/", "b/c/", "", "zz", "a/b/c/d", "\xff", "/x/y/"}
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 3))
		r := newRig(t)
		for range 300 {
			key := "k"
			for range random.IntN(4) {
				key += parts[random.IntN(len(parts))]
			}
			switch n := random.IntN(10); {
			case n < 7:
				r.put(key[random.IntN(2)%len(key):]+"!", strings.Repeat("v", random.IntN(300)))
			case n < 9:
				r.delete(key + "!")
			case random.IntN(8) == 0:
				r.checkpoint()
			}
		}
		if random.IntN(2) == 0 {
			if _, err := r.m.compact(r.m.revision - proto.Revision(random.Int64N(50))); err != nil {
				t.Fatal(err)
			}
			r.compactAll()
		}
		q := KeyspaceQuery{Depth: 1 + random.IntN(4), Top: 1000}
		if random.IntN(3) == 0 {
			q.Within = []byte(parts[random.IntN(len(parts))])
		}
		early := walkAll(t, r.view, q, 1+random.IntN(20))
		r.checkpoint()
		want := naiveUses(t, r, q)
		for _, report := range []Keyspace{early, walkAll(t, r.view, q, 1<<20)} {
			got := map[string]PrefixUse{}
			for _, use := range report.Prefixes {
				got[string(use.Prefix)] = PrefixUse{Keys: use.Keys, LiveBytes: use.LiveBytes, Revisions: use.Revisions,
					Bytes: use.Bytes}
			}
			same := func(a, b PrefixUse) bool { return fmt.Sprint(a) == fmt.Sprint(b) }
			if len(got) != len(report.Prefixes) || !maps.EqualFunc(got, want, same) {
				t.Fatalf("seed %d, %+v:\n got %v\nwant %v", seed, q, got, want)
			}
		}
	}
}

// TestKeyspace_IsBoundedAndLosesNothing: the largest rows are listed, the others summed up, long prefixes are cut.
func TestKeyspace_IsBoundedAndLosesNothing(t *testing.T) {
	r := newRig(t)
	for i := range 500 {
		r.put(fmt.Sprintf("p%03d/key", i), strings.Repeat("v", i))
	}
	long := strings.Repeat("x", 10*keyspacePrefixBytesMax) + "/"
	r.put(long+"key", strings.Repeat("v", 1000))
	all := walkAll(t, r.view, KeyspaceQuery{Depth: 1, Top: 1000}, 7)
	few := walkAll(t, r.view, KeyspaceQuery{Depth: 1, Top: 3}, 7)
	if len(few.Prefixes) != 3 || few.OtherPrefixes != 498 || fmt.Sprint(few.Total) != fmt.Sprint(all.Total) {
		t.Fatalf("%d rows, %d others, total %+v and %+v", len(few.Prefixes), few.OtherPrefixes, few.Total, all.Total)
	}
	sum := few.Others
	for _, use := range few.Prefixes {
		sum.add(&use)
	}
	if sum.Bytes != few.Total.Bytes || sum.Keys != 501 {
		t.Errorf("rows and others are %+v, total %+v", sum, few.Total)
	}
	if p := few.Prefixes[0]; !p.Cut || len(p.Prefix) != keyspacePrefixBytesMax {
		t.Errorf("the first row is %.20q of %d bytes, cut: %v", p.Prefix, len(p.Prefix), p.Cut)
	}
	if string(few.Prefixes[1].Prefix) != "p499/" || string(few.Prefixes[2].Prefix) != "p498/" {
		t.Errorf("rows 2 and 3 are %q and %q", few.Prefixes[1].Prefix, few.Prefixes[2].Prefix)
	}
	largest := slices.MaxFunc(all.Prefixes, func(a, b PrefixUse) int { return compareUse(&a, &b) })
	if !bytes.Equal(largest.Prefix, all.Prefixes[0].Prefix) {
		t.Error("the rows are not sorted")
	}
}

// TestKeyspace_OneKeyWithALongPastIsWalkedInPiecesToo: a piece ends inside a key.
func TestKeyspace_OneKeyWithALongPastIsWalkedInPiecesToo(t *testing.T) {
	r := newRig(t)
	for i := range 200 {
		r.put("k", fmt.Sprint(i))
		if i%10 == 9 {
			r.delete("k")
		}
	}
	pieces := 0
	report := walkAll(t, func() *View { pieces++; return r.view() }, KeyspaceQuery{Depth: 1, Top: 1}, 5)
	if use := report.Total; use.Revisions != 220 || use.Keys != 0 || pieces < 40 {
		t.Errorf("%+v in %d pieces", use, pieces)
	}
}

// TestKeyspace_EndsWithItsCaller and does not go on for nobody.
func TestKeyspace_EndsWithItsCaller(t *testing.T) {
	s := newStage(t)
	answered := 0
	for i := range 2 * keyspacePieceVersions {
		s.apply(s.batch(&answered, putOf(fmt.Sprint(i), 1)))
		if i%100 == 0 {
			s.run()
		}
	}
	s.run()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := s.client.Keyspace(ctx, KeyspaceQuery{Depth: 2, Top: 5}); !errors.Is(err, context.Canceled) {
		t.Errorf("after the caller left: %v", err)
	}
	report, err := s.client.Keyspace(context.Background(), KeyspaceQuery{})
	if err != nil || report.Total.Keys != 2*keyspacePieceVersions || report.Through != s.client.State().Revision {
		t.Errorf("%+v, %v", report.Total, err)
	}
}
