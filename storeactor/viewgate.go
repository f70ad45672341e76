package storeactor

import (
	"io"
	"sync/atomic"

	"troupe/actors"
)

// viewGate is the life of one read handle: who owns it, who is inside it right now, and the one moment at which what is
// behind it may be closed.
//
// The naive way is a reference count alone: then a reader that forgets or stalls keeps the pages of an old commit for
// ever, and the file grows. With the gate the owner of the file can shut a handle under its holders: nobody new gets
// in, and the last one to leave closes it, so no reader ever touches memory that is gone.
type viewGate struct {
	// references counts the owners: those who must call Release.
	references atomic.Int64
	// inside counts the calls in progress, plus gateShut once the gate is shut.
	inside atomic.Int64
	// close is called once, when the gate is shut and nobody is inside.
	close func()
}

// gateShut is far above any number of goroutines.
const gateShut = int64(1) << 62

func (g *viewGate) open(close func()) {
	g.close = close
	g.references.Store(1)
}

// retain adds an owner, unless the last one has left already: a reader that found the handle in a published value that
// has just been replaced must look again.
func (g *viewGate) retain() bool {
	for {
		n := g.references.Load()
		if n == 0 {
			return false
		}
		if g.references.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (g *viewGate) release() {
	n := g.references.Add(-1)
	actors.Must(n >= 0, "a file handle was released more often than retained")
	if n == 0 {
		g.shut()
	}
}

// enter lets a call in; false when the gate is shut. Each true is followed by one leave.
func (g *viewGate) enter() bool {
	if g.inside.Add(1) < gateShut {
		return true
	}
	g.leave()
	return false
}

func (g *viewGate) leave() {
	if g.inside.Add(-1) == gateShut {
		g.closeOnce()
	}
}

// shut closes the gate. A second call does nothing.
func (g *viewGate) shut() {
	for {
		n := g.inside.Load()
		if n >= gateShut {
			return
		}
		if g.inside.CompareAndSwap(n, n|gateShut) {
			if n == 0 {
				g.closeOnce()
			}
			return
		}
	}
}

// ended reports whether the gate is shut: by its last owner or by the owner of the file.
func (g *viewGate) ended() bool { return g.inside.Load() >= gateShut }

// endableView is what the owner of a file can do to a handle besides reading from it.
type endableView interface {
	// cutOff ends the handle whoever holds it. It does not wait for the calls in progress.
	cutOff()
	// ended reports whether it was cut off or given back.
	ended() bool
}

// closeOnce closes what is behind the gate. A late enter that found the gate shut passes through gateShut again on its
// way out, so the count is moved where it cannot return from.
func (g *viewGate) closeOnce() {
	if g.inside.CompareAndSwap(gateShut, gateShut+gateShut/2) {
		g.close()
	}
}

// wholeView is a handle that gives the file as a whole, for snapshots.
type wholeView interface {
	// Size is how many bytes WriteTo writes.
	Size() int64
	// WriteTo writes the file as this handle sees it, byte for byte what etcd and its tools open. ErrViewCutOff says that
	// the handle was cut off in the middle.
	WriteTo(w io.Writer) (int64, error)
}

// gatedWriter stops a long copy when its handle is cut off, so that the owner of the file does not wait for it. It
// remembers the error, because bbolt passes some on as text only.
type gatedWriter struct {
	gate *viewGate
	to   io.Writer
	err  error
}

// Write implements io.Writer.
func (w *gatedWriter) Write(b []byte) (n int, err error) {
	if w.gate.ended() {
		err = ErrViewCutOff
	} else {
		n, err = w.to.Write(b)
	}
	if err != nil && w.err == nil {
		w.err = err
	}
	return n, err
}
