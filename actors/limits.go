package actors

import "time"

// Every constant that bounds something in this package, with its reason.
const (
	// messageBytesDefault is what a message counts for that does not say its Size: about one small struct and its share of
	// the queue.
	messageBytesDefault = 64

	// segmentMessages is how many messages one piece of queue storage holds. 31 slots of an interface message and a link
	// fill a 768-byte allocation; a queue of one message costs one segment, an empty queue none.
	segmentMessages = 31

	// batchMessagesKept is the longest batch slice that goes back to the pool; a longer one was a peak and is left to the
	// collector.
	batchMessagesKept = 4096

	// indexKeysKept is the most keys a coalescing index may ever have held and still go back to the pool: maps never
	// shrink.
	indexKeysKept = 1024

	// controlStreakMax is how many turns in a row the Control lane may take while Normal has something waiting; then one
	// turn goes to Normal, so that requests move under a storm of control messages.
	controlStreakMax = 64

	// registryTables is how many tables of 32 maps, each with a lock, hold the names of actors: enough for the streams of
	// thousands of clients that come at once. A power of two, as the library's number of them.
	registryTables = 16

	// turnsPerRun is how many turns an actor takes before it lets the scheduler run something else.
	turnsPerRun = 256

	// turnsPerTaken is the same for a turn that a client has taken: it has something to do with what the first ones made.
	turnsPerTaken = 16

	// WhispersMax and WhisperBytesMax bound, in messages and bytes, what may wait in a lane of an actor that does not
	// listen to whispers: enough to save nearly every wake-up, little enough that the turn which takes them all stays
	// short.
	WhispersMax     = 1024
	WhisperBytesMax = 1 << 20

	// waitSampleEvery is the share of admitted messages whose waiting time is measured: one clock reading in 64 messages
	// costs well under a nanosecond per message. A power of two.
	waitSampleEvery = 64

	// histogramTurnsMin is how many turns an actor must have taken before its work times are kept in a histogram of its
	// own: an actor that is one of a million and hardly ever runs should not pay for it.
	histogramTurnsMin = 32

	// restartsMax and restartWindow bound restarts: an actor that panics more often is broken and stays down. The numbers
	// are the ones that supervisors of the Erlang family start from, rounded up.
	restartsMax   = 3
	restartWindow = 10 * time.Second

	// stuckAfter is the age from which a turn is called stuck: a turn computes, or waits for one fsync, and even a slow
	// disk answers within a second. strainedAfter and strainedFill are where an operator should begin to look.
	stuckAfter    = time.Second
	strainedAfter = 250 * time.Millisecond
	strainedFill  = 0.5
)
