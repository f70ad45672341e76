package durability

import (
	"fmt"
	"sync"
)

// write is one write as a client saw it.
type write struct {
	key, value string
	deleted    bool
	revision   int64 // 0: never answered, the server may or may not have done it
}

func (w write) String() string {
	what := "put " + w.key + "=" + w.value
	if w.deleted {
		what = "delete " + w.key
	}
	return fmt.Sprintf("%s at revision %d", what, w.revision)
}

// ledger is what the clients know for certain, across all rounds. Every key has one client that writes it, one write at
// a time, so the order of a key's writes is known too.
type ledger struct {
	mu       sync.Mutex
	acked    map[int64]write  // by revision
	last     map[string]write // last acknowledged write of a key
	open     map[string]write // the write of a key that got no answer, if it is the newest
	revision int64            // highest revision seen in any answer or event
	compact  int64            // highest compaction that was acknowledged or asked for
	asked    int64
	leases   map[int64]string // acknowledged leases and the key attached to each, "" for none
	counts   struct{ puts, deletes, compactions, unanswered int }
}

func newLedger() *ledger {
	return &ledger{
		acked: map[int64]write{}, last: map[string]write{}, open: map[string]write{}, leases: map[int64]string{},
		revision: 1,
	}
}

// saw notes a revision that the server has shown to anybody.
func (l *ledger) saw(revision int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.revision = max(l.revision, revision)
}

// begin notes a write that is about to be sent.
func (l *ledger) begin(w write) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[w.key] = w
}

// acknowledge notes the answer to a write. A deletion that found nothing (hit false) has no revision of its own.
func (l *ledger) acknowledge(w write, hit bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, w.key)
	l.revision = max(l.revision, w.revision)
	if w.deleted {
		l.counts.deletes++
	} else {
		l.counts.puts++
	}
	if !hit {
		l.last[w.key] = write{key: w.key, deleted: true}
		return nil
	}
	if other, taken := l.acked[w.revision]; taken {
		return fmt.Errorf("two writes were answered with one revision: %v and %v", w, other)
	}
	l.acked[w.revision] = w
	l.last[w.key] = w
	return nil
}

// compacting notes a compaction that is about to be sent, compacted one that was answered.
func (l *ledger) compacting(revision int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked = max(l.asked, revision)
}

func (l *ledger) compacted(revision int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.compact = max(l.compact, revision)
	l.counts.compactions++
}

func (l *ledger) granted(id int64, key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leases[id] = key
}

// head gives the highest revision seen.
func (l *ledger) head() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.revision
}

// settle decides the open writes of a round after the restart: what the server shows now is what happened.
func (l *ledger) settle(key, value string, exists bool) error {
	last, known := l.last[key]
	open, unanswered := l.open[key]
	delete(l.open, key)
	matches := func(w write) bool {
		if w.deleted {
			return !exists
		}
		return exists && w.value == value
	}
	if unanswered {
		l.counts.unanswered++
		if matches(open) {
			l.last[key] = open
			return nil
		}
	}
	if !known {
		if exists {
			return fmt.Errorf("key %s=%s was never written by anybody", key, value)
		}
		return nil
	}
	if !matches(last) {
		return fmt.Errorf("last acknowledged write of a key is missing: %v; now exists=%v value=%q", last, exists, value)
	}
	return nil
}
