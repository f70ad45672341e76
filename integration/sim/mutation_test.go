package sim

import (
	"errors"
	"testing"

	"troupe/proto"
	"troupe/raftactor/disk"
	"troupe/storeactor"
)

// breakage is what a run leaves out on purpose.
type breakage struct {
	// syncs report success and do nothing.
	syncs []disk.Point
	// fileSync leaves out the sync of the database file's commits.
	fileSync bool
	// unconfirmed lets the file be committed without asking the log.
	unconfirmed bool
}

// commitLog wraps what confirms checkpoints.
func (b breakage) commitLog() func(storeactor.CommitLog) storeactor.CommitLog {
	if b.unconfirmed {
		return func(storeactor.CommitLog) storeactor.CommitLog { return yes{} }
	}
	return nil
}

// yes confirms everything at once.
type yes struct{}

// ConfirmCommit implements storeactor.CommitLog.
func (yes) ConfirmCommit(_ proto.Index, done func(error)) { done(nil) }

var errNotCaught = errors.New("not caught")

// TestMutations_AreCaught leaves out one thing after the other that makes something durable, and requires that a
// checker notices. A sync that does nothing is also an order that is broken: with "append" answers leave before the
// entry is durable, with "snapshot: file" and "snapshot: directory" the record is written before the .snap is, with
// "snapshot: record" segments are released before the record is, and with the file's commits raft hears of checkpoints
// that are not there.
func TestMutations_AreCaught(t *testing.T) {
	const seeds = 200
	mutations := map[string]breakage{
		"the file's commits are not synced": {fileSync: true},
		"commits do not ask the log":        {unconfirmed: true},
	}
	for _, p := range disk.Points() {
		switch p {
		case disk.Broken: // a copy for people to look at; no start reads it
		case disk.Open: // a sole voter syncs its vote into that segment before anything else; raftactor has the test
		default:
			mutations[syncLabel(p)] = breakage{syncs: []disk.Point{p}}
		}
	}
	for name, b := range mutations {
		t.Run(name, func(t *testing.T) {
			for seed := uint64(1); seed <= seeds; seed++ {
				w := newWorld(seed, b)
				if w.run(); w.failure != nil {
					t.Logf("caught at seed %d: %v", seed, w.failure)
					return
				}
			}
			t.Error(errNotCaught)
		})
	}
}
