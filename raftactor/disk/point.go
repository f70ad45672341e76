package disk

// Point names one place in the program that makes something durable. It tells an operator which fsync failed, and
// lets a test break exactly one of them: each must be needed, or it is a cost without a reason.
type Point string

// All points.
const (
	// CreateFile: the first segment's records, before its directory gets its final name.
	CreateFile Point = "create: first segment"
	// CreateDir: the first segment's name, likewise.
	CreateDir Point = "create: directory of the log"
	// CreateParent: the final name of the log's directory, before anything is appended.
	CreateParent Point = "create: parent directory"
	// Append: entries, term and vote, before anyone is told of them.
	Append Point = "append"
	// Confirm: a commit index, before the file behind the store may go that far.
	Confirm Point = "confirm commit"
	// CutTail: the end of a segment that will never be written again, before the next one exists.
	CutTail Point = "cut: old segment"
	// CutNew: the head of the next segment, before it gets its name.
	CutNew Point = "cut: new segment"
	// CutDir: the name of the next segment, before anything is appended to it.
	CutDir Point = "cut: directory"
	// Open: what was read from the last segment, which a killed process may have left in the page cache only, and
	// the repair of its tail, before anyone relies on either.
	Open Point = "open: last segment"
	// OpenDir: the names of what was read, likewise.
	OpenDir Point = "open: directory"
	// OpenParent: the name of the log's directory, likewise.
	OpenParent Point = "open: parent directory"
	// Broken: the copy of a segment, before its torn tail is cut off.
	Broken Point = "repair: copy"
	// SnapFile: a .snap file, before it gets its name.
	SnapFile Point = "snapshot: file"
	// SnapDir: the name of a .snap file, before a record in the log points to it.
	SnapDir Point = "snapshot: directory"
	// SnapRecord: the record that moves the start of the log, before older segments go.
	SnapRecord Point = "snapshot: record"
)

// makeDir is the sync of a parent inside MakeDir; it is part of what MakeDir promises and so not in the list.
const makeDir Point = "make directory"

// Points lists all points, for tests that break one after the other.
func Points() []Point {
	return []Point{
		CreateFile, CreateDir, CreateParent, Append, Confirm, CutTail, CutNew, CutDir, Open, OpenDir, OpenParent,
		Broken, SnapFile, SnapDir, SnapRecord,
	}
}
