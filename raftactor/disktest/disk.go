package disktest

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path"
	"sort"
	"strings"
	"sync"
	"syscall"

	"troupe/raftactor/disk"
)

// Limits of the simulation.
const (
	// sectorBytes is the unit in which a crash keeps or loses a write.
	sectorBytes = 512
	// segmentBytes is the default segment size: small, so that short histories cut segments.
	segmentBytes = 8 << 10
)

// ErrStopped is what every operation gives after the process was stopped or killed, or the power went.
var ErrStopped = errors.New("disktest: the process is stopped")

// Disk is a simulated disk. It is safe for concurrent use.
type Disk struct {
	mu     sync.Mutex
	random *rand.Rand
	root   *node
	// generation counts lives of the process; files of an earlier one are dead.
	generation   int
	stopped      bool
	operations   int
	stopAt       int
	broken       map[disk.Point]bool
	syncFailures map[disk.Point]int
	stopPoint    disk.Point
	syncs        map[disk.Point]int
	// capacity is how many bytes all files may have together; negative for no limit.
	capacity     int64
	segmentBytes int64
}

var _ disk.Disk = (*Disk)(nil)

// New makes an empty disk.
func New(seed uint64) *Disk {
	return &Disk{
		random: newRandom(seed), root: newDir(), broken: map[disk.Point]bool{}, syncFailures: map[disk.Point]int{},
		syncs: map[disk.Point]int{}, capacity: -1, segmentBytes: segmentBytes,
	}
}

func newRandom(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15)) }

// SegmentBytes tells the log how large its segments are here.
func (d *Disk) SegmentBytes() int64 { return d.segmentBytes }

// SetSegmentBytes changes the size of segments.
func (d *Disk) SetSegmentBytes(bytes int64) { d.segmentBytes = bytes }

// Break makes the sync at that point do nothing and report success.
func (d *Disk) Break(point disk.Point) { d.broken[point] = true }

// FailSync makes the nth sync at that point, counted from 1, fail with EIO.
func (d *Disk) FailSync(point disk.Point, nth int) { d.syncFailures[point] = nth }

// SetSpace lets files grow by that many bytes more, and by what is removed or cut off; then writes fail with ENOSPC,
// after the part that fitted, reservations as a whole, and without a single byte no file can be made. Negative means
// without limit. What a crash brings back may be more than there is room for.
func (d *Disk) SetSpace(bytes int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.capacity = -1
	if bytes >= 0 {
		d.capacity = d.root.used() + bytes
	}
}

// free is how many bytes files may still grow by. The lock is held.
func (d *Disk) free() int64 {
	if d.capacity < 0 {
		return 1 << 62
	}
	return max(0, d.capacity-d.root.used())
}

// StopAt stops the process in the middle of the nth operation from now that changes something; 0 never, also not at a
// sync that StopAtSync named.
func (d *Disk) StopAt(nth int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stopAt, d.stopPoint = 0, ""
	if nth > 0 {
		d.stopAt = d.operations + nth
	}
}

// StopAtSync stops the process in the middle of the next sync at that point.
func (d *Disk) StopAtSync(point disk.Point) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stopPoint = point
}

// Operations is the number of operations so far that changed something.
func (d *Disk) Operations() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.operations
}

// Syncs is how often the sync at that point was called.
func (d *Disk) Syncs(point disk.Point) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.syncs[point]
}

// Stopped reports whether StopAt has struck.
func (d *Disk) Stopped() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stopped
}

// Kill ends the process: open files are dead, locks are free, everything written is still visible and still volatile.
func (d *Disk) Kill() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.restart()
}

func (d *Disk) restart() {
	d.generation++
	d.stopped, d.stopAt, d.stopPoint = false, 0, ""
}

// Crash takes the power away. What survives of the volatile part depends on the seed alone.
func (d *Disk) Crash(seed uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.random = newRandom(seed)
	d.restart()
	d.root.crash(d.random)
}

// change counts an operation that changes something. apply says whether its effect still happens; the error, if any,
// is the caller's answer.
func (d *Disk) change(generation int) (apply bool, err error) {
	if d.stopped || generation != d.generation {
		return false, ErrStopped
	}
	d.operations++
	if d.operations != d.stopAt {
		return true, nil
	}
	d.stopped = true
	return d.random.IntN(2) == 0, ErrStopped
}

// sync counts a sync and says whether it takes place.
func (d *Disk) sync(generation int, point disk.Point) (apply bool, err error) {
	if point == d.stopPoint {
		d.stopAt = d.operations + 1
	}
	apply, err = d.change(generation)
	if err != nil {
		return apply && !d.broken[point], err
	}
	d.syncs[point]++
	if d.syncFailures[point] == d.syncs[point] {
		return false, fmt.Errorf("sync (%s): %w", point, syscall.EIO)
	}
	return !d.broken[point], nil
}

// lookup finds a node.
func (d *Disk) lookup(name string) (*node, error) {
	at := d.root
	for _, part := range strings.Split(strings.Trim(path.Clean(name), "/"), "/") {
		if part == "" || part == "." {
			continue
		}
		next := at.names[part]
		if next == nil {
			return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
		}
		at = next
	}
	return at, nil
}

// parent finds the directory of a name.
func (d *Disk) parent(name string) (*node, string, error) {
	dir, err := d.lookup(path.Dir(path.Clean(name)))
	if err != nil {
		return nil, "", err
	}
	if !dir.isDir() {
		return nil, "", &fs.PathError{Op: "open", Path: name, Err: syscall.ENOTDIR}
	}
	return dir, path.Base(name), nil
}

// Open implements disk.Disk.
func (d *Disk) Open(name string) (disk.File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stopped {
		return nil, ErrStopped
	}
	n, err := d.lookup(name)
	if err != nil {
		return nil, err
	}
	if n.isDir() {
		return nil, &fs.PathError{Op: "open", Path: name, Err: syscall.EISDIR}
	}
	return &file{disk: d, node: n, generation: d.generation, name: name}, nil
}

// Create implements disk.Disk.
func (d *Disk) Create(name string) (disk.File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	apply, err := d.change(d.generation)
	if !apply {
		return nil, err
	}
	dir, base, lookupErr := d.parent(name)
	if lookupErr != nil {
		return nil, lookupErr
	}
	n := dir.names[base]
	if n == nil && d.free() == 0 {
		return nil, &fs.PathError{Op: "create", Path: name, Err: syscall.ENOSPC}
	}
	if n == nil {
		n = &node{}
		dir.link(nameChange{base: n})
	}
	n.truncate(0)
	if err != nil {
		return nil, err
	}
	return &file{disk: d, node: n, generation: d.generation, name: name}, nil
}

// Rename implements disk.Disk, within one directory.
func (d *Disk) Rename(from, to string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	apply, err := d.change(d.generation)
	if !apply {
		return err
	}
	dir, base, lookupErr := d.parent(from)
	if lookupErr != nil {
		return lookupErr
	}
	if path.Dir(path.Clean(from)) != path.Dir(path.Clean(to)) {
		return &fs.PathError{Op: "rename", Path: from, Err: syscall.EXDEV}
	}
	n, target := dir.names[base], dir.names[path.Base(to)]
	if n == nil {
		return &fs.PathError{Op: "rename", Path: from, Err: fs.ErrNotExist}
	}
	if target != nil && target.isDir() {
		return &fs.PathError{Op: "rename", Path: to, Err: fs.ErrExist}
	}
	dir.link(nameChange{base: nil, path.Base(to): n})
	return err
}

// Remove implements disk.Disk.
func (d *Disk) Remove(name string) error { return d.remove(name, false) }

// RemoveAll implements disk.Disk.
func (d *Disk) RemoveAll(name string) error {
	err := d.remove(name, true)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (d *Disk) remove(name string, all bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	apply, err := d.change(d.generation)
	if !apply {
		return err
	}
	dir, base, lookupErr := d.parent(name)
	if lookupErr != nil {
		return lookupErr
	}
	n := dir.names[base]
	if n == nil {
		return &fs.PathError{Op: "remove", Path: name, Err: fs.ErrNotExist}
	}
	if !all && len(n.names) > 0 {
		return &fs.PathError{Op: "remove", Path: name, Err: syscall.ENOTEMPTY}
	}
	dir.link(nameChange{base: nil})
	return err
}

// List implements disk.Disk.
func (d *Disk) List(dir string) ([]string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stopped {
		return nil, ErrStopped
	}
	n, err := d.lookup(dir)
	if err != nil {
		return nil, err
	}
	if !n.isDir() {
		return nil, &fs.PathError{Op: "list", Path: dir, Err: syscall.ENOTDIR}
	}
	names := make([]string, 0, len(n.names))
	for name := range n.names {
		names = append(names, name)
	}
	sort.Strings(names)
	return names, nil
}

// MakeDir implements disk.Disk. The new names are durable at once, as its contract says.
func (d *Disk) MakeDir(dir string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	apply, err := d.change(d.generation)
	if !apply {
		return err
	}
	at := d.root
	for _, part := range strings.Split(strings.Trim(path.Clean(dir), "/"), "/") {
		next := at.names[part]
		if next == nil {
			next = newDir()
			at.link(nameChange{part: next})
			at.settleName(part)
		}
		if !next.isDir() {
			return &fs.PathError{Op: "mkdir", Path: dir, Err: syscall.ENOTDIR}
		}
		at = next
	}
	return err
}

// SyncDir implements disk.Disk.
func (d *Disk) SyncDir(dir string, point disk.Point) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	apply, err := d.sync(d.generation, point)
	if !apply {
		return err
	}
	n, lookupErr := d.lookup(dir)
	if lookupErr != nil {
		return lookupErr
	}
	n.settleNames()
	return err
}

// ReadFile gives the visible content of a file.
func (d *Disk) ReadFile(name string) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, err := d.lookup(name)
	if err != nil {
		return nil, err
	}
	b := make([]byte, n.size)
	copy(b, n.data)
	return b, nil
}

// WriteFile makes a file with that content, durable, as if it had always been there. Its directory must exist.
func (d *Disk) WriteFile(name string, content []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	dir, base, err := d.parent(name)
	if err != nil {
		return err
	}
	n := &node{}
	n.data, n.size = append([]byte(nil), content...), int64(len(content))
	n.settle()
	dir.link(nameChange{base: n})
	dir.settleName(base)
	return nil
}
