package watchactor

import "errors"

// What the methods of this room return. The gateway maps them.
var (
	// ErrCompacted is what a History returns for a revision that has been compacted.
	ErrCompacted = errors.New("watchactor: required revision has been compacted")
	// ErrRestarted ends a stream because a part of the room had to start afresh. The client may open it again at once.
	ErrRestarted = errors.New("watchactor: watch restarted")
	// ErrStreamFailed ends a stream that hit a defect of its own. The client may open it again.
	ErrStreamFailed = errors.New("watchactor: watch stream failed")
	// ErrClosed is what a stream returns after Close.
	ErrClosed = errors.New("watchactor: watch stream closed")
	// ErrStopped is what a stream returns, and Open, once the room stops.
	ErrStopped = errors.New("watchactor: stopped")
)

// Why a create is refused: the texts are etcd's, which clients compare (api.md 3.1).
const (
	reasonCompacted   = "etcdserver: mvcc: required revision has been compacted"
	reasonEmptyRange  = "mvcc: watcher range is empty"
	reasonDuplicateID = "mvcc: duplicate watch ID provided on the WatchStream"
)

// watchIDNone is the id in answers that concern no watch: refused creates and manual progress.
const watchIDNone = -1
