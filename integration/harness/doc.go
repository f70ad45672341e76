// Package harness runs real processes for the integration tests: troupe, the official etcd beside it, and etcd's own
// tools. It owns no expectations; those are in the test packages.
//
// The peers (etcd, etcdctl, etcdutl, benchmark, etcd-dump-logs, etcd-dump-db) are built
// once from the nested modules in integration/peers into the user cache directory, under a name made of both go.sum
// files and the Go version, and shared by all test packages. The daemon is built from ./cmd/troupe by every test
// process, which costs a link at most.
//
// Environment:
//
//	TROUPE_PEERS_DIR    a directory that holds the peers already; nothing is built
//	TROUPE_TEST_BINARY  the program to test in the place of troupe. With etcd there (its base name is "etcd")
//	                    the harness proves itself: everything but troupe's own promises must pass
//	TROUPE_TEST_LOGS    a directory in which the log of every process is kept
//
// Every process that is started is killed by its pid when its test ends, and by the kernel if the test process dies
// first. Nothing here sleeps for a fixed time: Eventually waits for a condition.
package harness
