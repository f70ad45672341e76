package gateway

import "time"

// Limits of the maintenance service.
const (
	// snapshotPieceBytes is the size of one message of a snapshot: etcd's 32 KiB.
	snapshotPieceBytes = 32 << 10
	// snapshotStallMax is how long a client may take for one message of a snapshot. A snapshot costs disk and one of few
	// places while it is downloaded, so one whose client has gone without a word must end some day.
	snapshotStallMax = 5 * time.Minute
	// snapshotYieldAfter is how long the client of a download must have taken no piece before a newcomer that finds no
	// place gets its. A client that reads at all takes one in much less; one that is longer about it keeps its place as
	// long as nobody else needs it, or another is worse. An operator whose backup is refused tries again after that time.
	snapshotYieldAfter = 10 * time.Second
	// snapshotSpaceLook is how often a download looks whether writes need the space of its copy.
	snapshotSpaceLook = time.Second
)
