// Package watchactor serves watches: it carries every committed change to the clients that asked for it.
//
// It owns which watch belongs to which group, what waits for which client, and where each watch stands. It never owns
// data: events come from the store as immutable batches, and the past is read from the store's published state
// through History.
//
//	store --Publish--> hub --routed--> group --delivered--> stream --Frame--> gateway's goroutine --> client
//	                    ^                                    |  ^  ^
//	                    +--- join, leave, askProgress -------+  |  +-- Request
//	                                                            |
//	        History <-- watch/history <--wants-- stream --------+ served
//
// Four kinds of actor. The hub routes each batch to the groups it concerns. A group holds the watchers of one range,
// all of single keys, or all intervals beyond a number; it encodes each batch once per variant (prev_kv, filters) and
// decides who may join. A stream is one client's watch stream with its outbox. The reader of history reads the past for
// all watches that are behind, one bounded piece at a time, once for all that are at the same place. Each is a pure
// core inside a thin shell (actor.go, historyactor.go).
//
// What never happens: the store waits, a group waits, a watch misses or repeats an event, a slow client makes memory
// grow or another client wait. What gives way instead is always a buffer. Past a bound the hub's and the groups'
// mailboxes and the outboxes forget whole deliveries, and the watches concerned go on from history at the revision
// they had reached: a stream that cannot keep up loses its buffer, never its place. Only compaction can end a watch
// against its client's will, with the compact revision. Answers to requests are never forgotten: past their bound
// Stream.Request waits.
//
// Failure: a panic of a stream ends that stream. A panic of a group ends the streams that use it, a panic of the hub
// or of the reader of history all streams, with ErrRestarted, and clients open them again from where they were.
//
// DESIGN.md has the protocols and why they are as they are. Sections of api.md are cited where a rule comes from etcd.
package watchactor
