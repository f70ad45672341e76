package storeactor

import (
	"fmt"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"troupe/proto"
)

// TestEvents_ReadingAKeyThatChangesAllTheTimeIsProportional: what one call gathers does not depend on how long the
// history behind its answer is, and nothing is missed, repeated or torn between the calls.
func TestEvents_ReadingAKeyThatChangesAllTheTimeIsProportional(t *testing.T) {
	for name, keys := range map[string]int{"one key": 1, "some keys": 7} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			const changes = 6 * eventChangesMax
			for i := range changes {
				key := fmt.Sprintf("k%d", i%keys)
				switch {
				case i%keys == 0 && i%11 == 10: // ends a generation, if there is one
					_, _ = r.run(&pb.InternalRaftRequest{DeleteRange: &pb.DeleteRangeRequest{Key: []byte(key)}}, false)
				default:
					_, _ = r.run(putOf(key, 1), false)
				}
			}
			v := r.view()
			all := NewKeyRange([]byte("k"), []byte("l"))
			if keys == 1 {
				all = NewKeyRange([]byte("k0"), nil)
			}
			entries, few := v.fewEntries(all)
			if !few || len(entries) != keys {
				t.Fatalf("%d entries, few: %v", len(entries), few)
			}
			next, calls := proto.Revision(1), 0
			want := proto.Version{Main: 2}
			for next <= v.revision {
				gathered := changesByIndex(entries, next, changesThrough(entries, next, v.revision))
				if len(gathered) > 2*eventChangesMax {
					t.Fatalf("a call gathers %d changes", len(gathered))
				}
				events, after, err := v.Events(all, next, v.revision, 1<<20)
				if err != nil || after <= next {
					t.Fatalf("from %d to %d: %v", next, after, err)
				}
				for i := range events {
					if events[i].Version != want {
						t.Fatalf("event of %v, want %v", events[i].Version, want)
					}
					want.Main++
				}
				next = after
				calls++
			}
			if want.Main != v.revision+1 || calls > 40 {
				t.Errorf("%d calls gave events through %d of %d", calls, want.Main-1, v.revision)
			}
		})
	}
}
