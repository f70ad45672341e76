// Package raftactor keeps the replicated log of a member: raft, the write-ahead log, the order of committed entries,
// the membership, and the snapshots from which a member starts again.
//
// Three actors and the files under them:
//
//	gateway ──propose, read──▶ raft ──append──▶ wal ──▶ segments, .snap
//	                            ▲ ▲ ◀─persisted──┘
//	                            │ └──conf changed── apply ──batch──▶ store (Machine)
//	                            │ ───committed──────▶ ▲                 │
//	                            └────────────published, checkpointed────┘
//
// raft wraps the state machine of go.etcd.io/raft/v3 with asynchronous storage writes. It owns the log in memory, the
// proposals that are not committed, and the reads that wait for an index. wal owns the segments; it makes whatever
// arrived during the last fsync durable with the next one, and has a helper prepare the next segment, so that a full
// disk refuses writes before it can stop the member. apply owns the membership in force at each entry; it makes one
// batch of commands out of what was committed and hands it to the state machine.
//
// What must never happen, and where it is prevented, is in DESIGN.md. In short: an answer to another member leaves only
// when what it attests to is durable; an entry is applied only when it is committed and durable here; raft's applied
// index moves only when the store has published and raft knows the conf changes; a read gets an index only from a round
// that started after it; every proposal and every read is answered exactly once; nothing enters the log that a member
// could fail to decode.
//
// The package never executes a request, knows no key and no revision, opens no port and knows no gRPC. It imports
// actors and proto of this project, and nothing else of it.
package raftactor
