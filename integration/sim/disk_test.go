package sim

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"troupe/raftactor/disk"
	"troupe/raftactor/disktest"
	"troupe/storeactor"
)

// errCrash is what every write gives from the moment on in which the machine stops.
var errCrash = errors.New("sim: the machine has stopped")

// moment says where the machine stops: around the nth event of a life, or around the nth one with a label; never when n
// is 0. An event is a write, a sync, a change of names, or a moment of a commit of the database file.
type moment struct {
	n     int
	label string
	// after lets the event take place first. A write that took place is still volatile.
	after bool
}

// events counts the events of one life and stops the machine at one of them.
type events struct {
	stop   moment
	count  int
	labels map[string]int
	// trace lists the labels when it is wanted.
	trace   []string
	tracing bool
	dead    bool
	hash    *trace
	// died is called once.
	died func()
}

// die stops the machine.
func (e *events) die() {
	if !e.dead {
		e.dead = true
		e.died()
	}
}

// next counts an event. Of before and after one may be true: the machine stops there.
func (e *events) next(label string) (before, after bool) {
	if e.dead {
		return true, false
	}
	e.count++
	e.labels[label]++
	e.hash.add(label)
	if e.tracing {
		e.trace = append(e.trace, label)
	}
	n := e.count
	if e.stop.label != "" {
		n = e.labels[label]
	}
	if e.stop.n == 0 || n != e.stop.n || e.stop.label != "" && e.stop.label != label {
		return false, false
	}
	e.die()
	return !e.stop.after, e.stop.after
}

// do runs something that changes the disk as one event.
func (e *events) do(label string, change func() error) error {
	before, after := e.next(label)
	if before {
		return errCrash
	}
	if err := change(); err != nil || !after {
		return err
	}
	return errCrash
}

// atStep makes an event of each moment of a commit of the model file.
func (e *events) atStep(s storeactor.ModelStep) error {
	labels := map[storeactor.ModelStep]string{
		storeactor.ModelBeforeWrite: fileWrite, storeactor.ModelBeforeSync: fileSync, storeactor.ModelAfterSync: fileSynced,
	}
	return e.do(labels[s], func() error { return nil })
}

// Labels of a commit of the file. Between write and sync the commit is volatile.
const (
	fileWrite  = "file: before the write"
	fileSync   = "file: before the sync"
	fileSynced = "file: after the sync"
)

// eventDisk is a simulated disk whose changes are events.
type eventDisk struct {
	*disktest.Disk
	events *events
}

// kindOf is what a file is, for labels.
func kindOf(name string) string {
	base := path.Base(name)
	switch {
	case strings.HasSuffix(base, ".wal"):
		return "segment"
	case strings.HasSuffix(base, ".snap") && strings.HasPrefix(base, "tmp"):
		return "new snap"
	case strings.HasSuffix(base, ".snap"):
		return "snap"
	case strings.HasSuffix(base, ".tmp"):
		return "new segment"
	}
	return base
}

func (d *eventDisk) Create(name string) (f disk.File, err error) {
	err = d.events.do("create "+kindOf(name), func() error {
		f, err = d.Disk.Create(name)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &eventFile{f, d.events, kindOf(name)}, nil
}

func (d *eventDisk) Open(name string) (disk.File, error) {
	if d.events.dead {
		return nil, errCrash
	}
	f, err := d.Disk.Open(name)
	if err != nil {
		return nil, err
	}
	return &eventFile{f, d.events, kindOf(name)}, nil
}

func (d *eventDisk) Rename(from, to string) error {
	return d.events.do("rename to "+kindOf(to), func() error { return d.Disk.Rename(from, to) })
}

func (d *eventDisk) Remove(name string) error {
	return d.events.do("remove "+kindOf(name), func() error { return d.Disk.Remove(name) })
}

func (d *eventDisk) RemoveAll(name string) error {
	return d.events.do("remove all "+kindOf(name), func() error { return d.Disk.RemoveAll(name) })
}

func (d *eventDisk) MakeDir(dir string) error {
	return d.events.do("make directory "+kindOf(dir), func() error { return d.Disk.MakeDir(dir) })
}

func (d *eventDisk) SyncDir(dir string, point disk.Point) error {
	return d.events.do(syncLabel(point), func() error { return d.Disk.SyncDir(dir, point) })
}

func syncLabel(point disk.Point) string { return "sync " + string(point) }

// eventFile is a file whose changes are events.
type eventFile struct {
	disk.File
	events *events
	kind   string
}

func (f *eventFile) WriteAt(p []byte, offset int64) (n int, err error) {
	f.events.hash.add(fmt.Sprint(offset, len(p)))
	f.events.hash.bytes(p)
	err = f.events.do("write "+f.kind, func() error {
		n, err = f.File.WriteAt(p, offset)
		return err
	})
	return n, err
}

func (f *eventFile) Truncate(size int64) error {
	return f.events.do("truncate "+f.kind, func() error { return f.File.Truncate(size) })
}

func (f *eventFile) Preallocate(size int64) error {
	return f.events.do("preallocate "+f.kind, func() error { return f.File.Preallocate(size) })
}

func (f *eventFile) Sync(point disk.Point) error {
	return f.events.do(syncLabel(point), func() error { return f.File.Sync(point) })
}

// copyDisk gives a new disk with what is visible in the directories of this one.
func copyDisk(d *disktest.Disk, dirs ...string) (*disktest.Disk, error) {
	c := disktest.New(1)
	for _, dir := range dirs {
		names, err := d.List(dir)
		if err != nil {
			continue // it does not exist
		}
		if err := c.MakeDir(dir); err != nil {
			return nil, err
		}
		for _, name := range names {
			content, err := d.ReadFile(path.Join(dir, name))
			if err != nil {
				return nil, err
			}
			if err := c.WriteFile(path.Join(dir, name), content); err != nil {
				return nil, err
			}
		}
	}
	return c, nil
}
