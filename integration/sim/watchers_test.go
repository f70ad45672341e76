package sim

import (
	"bytes"
	"context"
	"errors"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	gproto "google.golang.org/protobuf/proto"

	"troupe/watchactor"
)

// watcher is a client that follows a range over all lives: after each crash it goes on where it was.
type watcher struct {
	world    *world
	key, end string
	// next is the lowest revision whose events it has not seen.
	next int64

	stream  *watchactor.Stream
	created bool
}

// polled is a context for calls that must not wait.
var polled = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// open starts a watch at the next revision.
func (v *watcher) open() {
	w := v.world
	s, err := w.troupe.Watch.Open(nil)
	if err == nil {
		err = s.Request(context.Background(), &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{
			CreateRequest: &pb.WatchCreateRequest{
				Key: []byte(v.key), RangeEnd: []byte(v.end), StartRevision: v.next, ProgressNotify: w.random.IntN(2) == 0,
			},
		}})
	}
	if err != nil {
		w.fail("open a watch: %w", err)
	}
	v.stream, v.created = s, false
}

// read takes a few frames and checks them.
func (v *watcher) read(frames int) (some bool) {
	if v.stream == nil && !v.world.over() {
		v.open()
	}
	for range frames {
		if v.world.over() || v.stream == nil {
			return some
		}
		f, err := v.stream.Next(polled)
		if err != nil {
			if !errors.Is(err, context.Canceled) {
				v.world.fail("watch of %q: %w", v.key, err)
			}
			return some
		}
		some = true
		v.take(&f)
	}
	return some
}

func (v *watcher) take(f *watchactor.Frame) {
	w := v.world
	w.trace.add("frame", v.key, f.HeaderRevision, f.Created, f.CompactRevision, len(f.Events))
	switch {
	case f.Created && !f.Canceled && !v.created:
		v.created = true
	case f.Canceled && f.CompactRevision > 0:
		v.cancelled(int64(f.CompactRevision))
	case f.Canceled || f.Created:
		w.fail("watch of %q: unexpected answer %+v", v.key, f)
	case len(f.Events) == 0:
		v.progress(int64(f.HeaderRevision))
	default:
		v.takeEvents(f)
	}
}

// cancelled checks that the watch was behind a compaction, and goes on from there.
func (v *watcher) cancelled(compacted int64) {
	w := v.world
	w.tally.cancels++
	if compacted > w.history.head.compacted || v.next >= compacted {
		w.fail("watch of %q from %d was cancelled at compact revision %d; compacted is %d", v.key, v.next, compacted,
			w.history.head.compacted)
	}
	v.next = compacted
	v.stream.Close()
	v.stream = nil
}

// due gives the changes that the watch has to see, oldest first, up to a revision.
func (v *watcher) due(through int64) []*change {
	var due []*change
	m := v.world.history.head
	for i := m.from(v.next); i < len(m.changes); i++ {
		c := &m.changes[i]
		if c.main > through {
			break
		}
		if within(v.key, v.end, c.key) {
			due = append(due, c)
		}
	}
	return due
}

// progress checks that nothing below a promised revision is missing.
func (v *watcher) progress(revision int64) {
	if due := v.due(revision); len(due) > 0 {
		v.world.fail("watch of %q: progress at %d, but %q at %d was not sent", v.key, revision, due[0].key, due[0].main)
	}
	v.next = max(v.next, revision+1)
}

// takeEvents compares the events of a frame, which are whole revisions, with those that are due.
func (v *watcher) takeEvents(f *watchactor.Frame) {
	w := v.world
	var r pb.WatchResponse
	if err := gproto.Unmarshal(bytes.Join(f.Events, nil), &r); err != nil {
		w.fail("watch of %q: %w", v.key, err)
		return
	}
	through := r.Events[len(r.Events)-1].Kv.ModRevision
	due := v.due(through)
	if through > int64(w.troupe.Store.State().Revision) || len(due) != len(r.Events) {
		w.fail("watch of %q from %d: %d events up to %d, want %d; published is %d", v.key, v.next, len(r.Events), through,
			len(due), w.troupe.Store.State().Revision)
		return
	}
	for i, e := range r.Events {
		c := due[i]
		shown, _ := gproto.Marshal(e.Kv)
		if (e.Type == 1) != c.deleted || !bytes.Equal(shown, c.shown) {
			w.fail("watch of %q: event %v, want %q at %d/%d", v.key, e, c.key, c.main, c.sub)
			return
		}
	}
	w.tally.events += len(due)
	v.next = through + 1
}

// settled reads all there is and checks that nothing is missing.
func (v *watcher) settled() {
	w := v.world
	for idle := 0; idle < 10 && !w.over(); idle++ {
		w.rest()
		for v.read(100) {
			idle = 0
		}
		if idle > 3 && len(v.due(w.history.head.revision)) == 0 {
			break // nothing more may come
		}
		w.pause(10 * time.Millisecond) // a stream that found nothing to read tries again
	}
	if w.over() {
		return
	}
	if due := v.due(w.history.head.revision); len(due) > 0 {
		w.fail("watch of %q from %d never saw %q at %d", v.key, v.next, due[0].key, due[0].main)
	}
}
