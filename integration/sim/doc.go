// Package sim runs a whole one-member troupe (raft, log, apply, store, backend, watches, leases; no gateway) through
// many lives on one goroutine, in virtual time, on a disk that loses what was not synced. It has no code outside its
// tests.
//
// A seed decides everything: how the actors' turns interleave, what the clients propose, when the machine stops, and
// what is left on the disk then. Clients put, delete, compact, grant and watch; each life ends in a crash, at a random
// moment, at a chosen write or sync, or by a clean stop, and the next one starts from what is left. After every step
// and every life checkers compare what the troupe shows with a plain model that executes the same entries:
//
//   - what was applied once stays applied, at the same index, for ever; so nothing that was answered is ever missing
//   - every published state is the model's at its index: revision, compact revision, keys, history, leases, attachments
//   - a watch sees every event of its range once, in order and in whole revisions, or is cancelled as compacted
//   - on the disk after each crash: snapshot record <= file <= commit index, and the record's .snap file is whole
//   - HashKV is the same at the same revision, however often the member was restarted
//   - no lease ends before its time, and none that nobody renews stays
//
// Each test run takes a few hundred seeds. The long form, and the replay of one seed:
//
//	go test ./integration/sim -run Lives -sim.seed=0 -sim.runs=5000
//	go test ./integration/sim -run Lives -sim.seed=17 -sim.runs=1
//
// or `just sim seed=17 runs=1`. The mutation tests leave out one sync, or one order between two writes, and require
// that a checker notices within 200 seeds.
package sim
