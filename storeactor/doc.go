// Package storeactor is the multi-version key-value store: the state machine that executes committed entries, the one
// value that readers read, and the owner of the file behind both.
//
// Two actors share the work. `store` holds everything in memory: the index of keys and their versions, the lease
// table, the alarms, and the bytes of every change that the file may not have yet. It executes batches in order,
// assigns revisions, and after each turn publishes one immutable State. `backend` owns the file: it writes behind,
// deletes what a compaction made unnecessary, and hashes. Nobody else writes the file, and no byte of the file leaves
// its transaction.
//
//	apply --Batch--> store --writes--> backend --> file
//	                 |  ^                 |
//	                 |  +-- checkpointed -+     (a new read handle: what it holds may be forgotten in memory)
//	                 +--> State (atomic pointer) --> View: Range, read-only Txn, Events, Lease
//	                 +--> lease changes, events, answers
//
// What it never does: it has no clock that decides anything (leases end by an entry of the log), it asks nobody
// before it executes, and it never refuses at apply what another member would execute. Execution is a function of the
// entries alone, etcd 3.7.3's to the bit, so that members of both kinds stay equal; what is stricter (CheckTxn and
// its like) is exported for the proposing side. DESIGN.md says why the parts are as they are.
//
// Order in a turn: execute, publish the state, tell lease and hub, hand the writes to the backend, answer the
// waiters, tell raft the applied index.
package storeactor
