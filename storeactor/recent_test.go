package storeactor

import (
	"fmt"
	"testing"

	"troupe/proto"
)

// TestRecent_ForgetsOnlyWhatTheFileHas: after every trim all changes above the revision are still found, in whatever
// chunk they are, and a copy taken before goes on having what it had.
func TestRecent_ForgetsOnlyWhatTheFileHas(t *testing.T) {
	var live recent
	var versions []proto.Version
	for main := proto.Revision(2); len(versions) < 5*recentChunkItems; main++ {
		for sub := range proto.SubRevision(1 + main%3) {
			v := proto.Version{Main: main, Sub: sub}
			versions = append(versions, v)
			live.append(v, false, fmt.Appendf(nil, "%v", v))
		}
	}
	before := live
	last := versions[len(versions)-1].Main
	for through := proto.Revision(1); through < last; through++ {
		live.trim(through)
		for _, v := range versions {
			if v.Main < through-2 || v.Main > through+3 {
				continue
			}
			if got := string(before.find(v)); got != fmt.Sprint(v) {
				t.Fatalf("the copy lost %v: %q", v, got)
			}
			if got := string(live.find(v)); v.Main > through && got != fmt.Sprint(v) {
				t.Fatalf("trimmed through %d, %v is gone", through, v)
			}
		}
		if first, ok := live.first(); !ok || first.Main > through+1 {
			t.Fatalf("trimmed through %d, the first is %v", through, first)
		}
		want := proto.Version{Main: through + 1}
		n := 0
		live.scan(want, func(item *recentItem) bool {
			if n++; n == 1 && item.version != want {
				t.Fatalf("a scan from %v begins at %v", want, item.version)
			}
			return true
		})
		if kept := len(live.full)*recentChunkItems + len(live.tail); kept-n >= 2*recentChunkItems {
			t.Fatalf("trimmed through %d, %d are kept and %d needed", through, kept, n)
		}
	}
	live.trim(last)
	if _, ok := live.first(); ok {
		t.Fatal("something is left when the file has everything")
	}
}

// TestRecent_LargeValuesAreGivenBackSoon: what a checkpoint makes unnecessary does not wait for a chunk of 512 changes.
func TestRecent_LargeValuesAreGivenBackSoon(t *testing.T) {
	var live recent
	record := make([]byte, recentChunkBytes/4)
	const changes, unwritten = 100, 3
	for main := proto.Revision(1); main <= changes; main++ {
		live.append(proto.Version{Main: main}, false, record)
	}
	live.trim(changes - unwritten)
	kept := len(live.tail)
	for _, chunk := range live.full {
		kept += len(chunk)
	}
	if kept > unwritten+4 {
		t.Errorf("%d changes are kept for %d that the file does not have", kept, unwritten)
	}
}
