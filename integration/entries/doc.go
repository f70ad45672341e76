// Package entries holds the test that feeds one sequence of requests to troupe and to the official etcd and compares
// all that comes back: answers, revisions, error codes and texts, the history that a watch replays, and HashKV at
// every revision.
//
// The requests become raft entries one for one, so this is the proof that troupe's apply is etcd's function of the
// entry. A failure prints the seed, the step and the requests before it; the same run is repeated with
//
//	go test ./integration/entries -entries.seed=N -entries.steps=M
//
// The package has no code outside its tests.
package entries
