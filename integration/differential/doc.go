// Package differential holds the test that runs the same script of calls against troupe and against the official etcd,
// side by side, and compares everything that comes back: answers, error codes and texts, the events of every watch, the
// order of control answers, hashes, every record of the files that Snapshot sends, and all of it again after restarts
// and kill -9.
//
// A script is a list of lines, one call each, with revisions counted as on a fresh store:
//
//	Put key:"a" value:"1"
//	Watch 0 create_request:{key:"a" start_revision:2}
//	Kill
//
// Random scripts come from a seed; a difference is shrunk to a short script and printed with both answers. The files of
// testdata are such scripts: differences that there have been, and edges that are easily got wrong. What is left out of
// the comparison is listed in normalise_test.go, what differs on purpose in deliberate_test.go; a run prints how often
// each was used.
//
//	go test ./integration/differential -v -differential.minutes=10
//	go test ./integration/differential -v -differential.seed=N
//	go test ./integration/differential -v -differential.script=FILE
//
// The package has no code outside its tests.
package differential
