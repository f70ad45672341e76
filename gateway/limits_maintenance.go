package gateway

import "time"

// Limits of the maintenance service.
const (
	// snapshotPieceBytes is the size of one message of a snapshot: etcd's 32 KiB.
	snapshotPieceBytes = 32 << 10
	// snapshotStallMax is how long a client may take for one message of a snapshot. A snapshot costs disk and one of few
	// places while it is downloaded, so one whose client has gone without a word must end some day.
	snapshotStallMax = 5 * time.Minute
	// snapshotSpaceLook is how often a download looks whether writes need the space of its copy.
	snapshotSpaceLook = time.Second
)
