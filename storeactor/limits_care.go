package storeactor

import "time"

// Limits of the caretaker, and of what is told about the space.
const (
	// revisionCompactionInterval is the time between two compactions that keep a number of revisions: etcd's.
	revisionCompactionInterval = 5 * time.Minute
	// periodicCompactionIntervalMax is the longest time between two compactions that keep a period: etcd's hour.
	periodicCompactionIntervalMax = time.Hour
	// notesPerInterval is how often the revision is noted in the time between two compactions: etcd's ten.
	notesPerInterval = 10
	// notesIntervalMin keeps a period of next to nothing from taking a processor.
	notesIntervalMin = 10 * time.Millisecond
	// notesMax bounds the notes: those of eleven years. A longer period is not watched to its end.
	notesMax = 1 << 20

	// quotaBytesAdvised is the largest quota that is not warned of at start: etcd's.
	quotaBytesAdvised = 8 << 30
	// careInterval is how often the caretaker looks at the quota.
	careInterval = time.Second
	// quotaHighPercent of the quota are worth a warning; quotaLowPercent is where it is taken back, and where an alarm may
	// end. They lie apart, so that a file about as large as a mark does not fill the log.
	quotaHighPercent = 80
	quotaLowPercent  = 75
	// quotaHealPauseMin and quotaHealPauseMax bound the pause between two attempts to end the alarm; it doubles.
	quotaHealPauseMin = time.Second
	quotaHealPauseMax = 10 * time.Minute

	// quotaRaisesMax is how many requests of the quota to raise the alarm are known. One raises it and ends the others;
	// those before it are attempts that failed, of which each place that raises it makes one at a time.
	quotaRaisesMax = 64

	// caretakerMessagesMax bounds its mailbox: its own timer and an answer to each thing that it has asked for,
	// of which there are three.
	caretakerMessagesMax = 64
	caretakerBytesMax    = 64 << 10

	// KeyspaceDepthMax and KeyspaceTopMax bound a report on the keys: more rows are a list that nobody reads, and each
	// level of depth may hold one prefix of the length of a key.
	KeyspaceDepthMax = 16
	KeyspaceTopMax   = 1000
	// keyspacePrefixBytesMax cuts the prefixes in a report: keys may be as long as requests.
	keyspacePrefixBytesMax = 256
	// keyspacePieceVersions is how many versions one piece of the walk counts: half a millisecond when their pages are in
	// memory. A piece is not interrupted, and a member at rest has one processor.
	keyspacePieceVersions = 256
	// keyspaceRest is the rest after a piece, in lengths of the piece, keyspaceRestMax at most: when the disk is slow,
	// resting as well helps nobody.
	keyspaceRest    = 3
	keyspaceRestMax = 250 * time.Millisecond
)

func init() {
	if quotaLowPercent >= quotaHighPercent || quotaHealPauseMin >= quotaHealPauseMax {
		panic("storeactor: the limits of the caretaker contradict each other")
	}
}
