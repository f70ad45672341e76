// Package actors is the runtime: typed actors with bounded mailboxes, over the actor package of protoactor-go, which
// nobody else imports.
//
// # An actor
//
// An actor is a Behavior, started by Spawn and reached through a Ref. Its three calls (Start, Handle, Stop) never
// overlap, so it owns its state without locks. Handle sees every admitted message once, in the order of its lane.
// Nothing that the library does is visible: no contexts, no process ids, no lifecycle messages.
//
//	sender --Tell--> [ Control lane ]--+
//	sender --Tell--> [ Normal lane  ]--+--> turn: Handle(batch) --> Reply, Tell
//	Ref.Tick ------> ( counter )     --+
//
// # Mailboxes
//
// A lane is bounded in messages and in bytes, and its policy says what the sender experiences at the bound:
//
//	Reject    ErrFull, at once                          proposals
//	Block     Offer waits, Tell says ErrFull            handlers that feed a worker
//	Drop      nothing; the message is gone and counted  peer messages, which raft sends again
//	Coalesce  merged into the waiting one of its key    renewals of a lease
//	Resync    one marker in the place of many           a watcher's events, which can be read again
//	Batch     as Reject; a turn takes all that waits    the log writer's group commit
//	Lanes     two of the above, Control before Normal
//
// Storage comes from a pool shared by all mailboxes of a message type and goes back when a lane is empty, so that
// waking up allocates nothing and sleeping costs nothing. An idle actor costs about 700 bytes, the library's part,
// its name and its entry in two tables included (TestIdleActor_Memory measures it).
//
// # What waits and what never does
//
// Tell, Tick, Retire, After and completing a Reply never wait. Offer, Ref.Stop and Reply.Wait do and belong to
// goroutines that are not actors; an actor that waits for an actor is a deadlock that nobody has met yet. An actor
// that needs an answer uses ReplyTo with a function that tells it to itself. Spawn waits for Start, which therefore
// must be short and must not need its spawner. A goroutine that waits for what an actor makes may run its turns
// meanwhile (Spec.TakeTurn, RunTurn).
//
// # Requests
//
// A request carries a Reply and implements Aborter. Whoever holds the message completes the reply exactly once. If Tell
// fails, the sender still holds it. If the actor stops, panics or restarts, the mailbox aborts what it holds. After a
// panic it aborts the messages of the lost turn too; the Reply itself tells which of them had been answered.
//
// # Panics
//
// A FailStop actor takes the process with it, and the stack printed is the one of the panic. StopActor and
// RestartActor are for actors that hold only one client's state. Spec.Stopped learns of every end.
//
// # Time and determinism
//
// Behaviours read time from Self.Now and arm Self.After; a regular tick is System.Every with Ref.Tick, which a late
// actor gets as one message with a count. With actorstest.Stepper as the Dispatcher and actorstest.ManualClock as the
// Clock everything runs on one goroutine, one turn per step, chosen by a seed.
package actors
