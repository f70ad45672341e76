package gateway

import (
	"bufio"
	"container/list"
	"errors"
	"net"
	"sync"
	"time"
)

// http2Preface is what every HTTP/2 connection starts with (RFC 9113, section 3.4). gRPC clients send it at once.
const http2Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// splitter takes the connections of one port and gives each to one of two listeners by its first bytes: gRPC speaks
// HTTP/2, everything else is tried as HTTP/1.1, which answers garbage with 400.
//
// A connection that has not shown its protocol is half open, and so is one that has not sent the SETTINGS after an
// HTTP/2 preface: gRPC would hold its own end up for it. Half-open ones have a deadline, and when there are too many
// the oldest is closed if it has said nothing that was not looked at. Making new ones wait for it instead would let a
// handful of silent connections shut everybody out. But they do wait for one that has sent bytes and for which there
// was no processor yet: in a burst of clients that is what the oldest are, and closing them would lose requests.
type splitter struct {
	base  net.Listener
	http1 *handoff
	http2 *handoff
	// paused, if set, is told why accepting rests for a moment.
	paused func(error)
	// pass, if set, decides whether a connection is served, now that it has shown what it speaks; seen is what has come of
	// it so far.
	pass func(conn net.Conn, grpc bool, seen []byte) bool
	// refused, if set, is told of a half-open connection that is closed for a new one.
	refused func(net.Conn)
	// most is how many half-open ones there are at most.
	most int

	mu      sync.Mutex
	closed  bool
	sniffed list.List  // of *halfOpen, oldest first
	changed *sync.Cond // one has left, or something was read from one
	wait    sync.WaitGroup
}

// halfOpen is a connection that has not shown what it speaks.
type halfOpen struct {
	net.Conn
	owner *splitter
	// leaving says that it was told to make room for a new one. The splitter's lock guards it.
	leaving bool
}

// Read implements net.Conn. Whoever waits for room looks again after each.
func (h *halfOpen) Read(p []byte) (int, error) {
	n, err := h.Conn.Read(p)
	h.owner.mu.Lock()
	h.owner.changed.Signal()
	h.owner.mu.Unlock()
	return n, err
}

// errRefused ends a connection for which there is no place.
var errRefused = errors.New("gateway: too many connections")

func newSplitter(base net.Listener) *splitter {
	s := &splitter{base: base, http1: newHandoff(base.Addr()), http2: newHandoff(base.Addr()), most: sniffedConnectionsMax}
	s.changed = sync.NewCond(&s.mu)
	return s
}

// run accepts until the port fails or close is called; nil after close. Both listeners are closed when it returns.
func (s *splitter) run() error {
	defer s.wait.Wait()
	defer s.close()
	for {
		conn, err := s.base.Accept()
		if err != nil {
			s.mu.Lock()
			closed := s.closed
			s.mu.Unlock()
			if closed {
				return nil
			}
			var temporary interface{ Temporary() bool }
			if errors.As(err, &temporary) && temporary.Temporary() {
				if s.paused != nil {
					s.paused(err)
				}
				time.Sleep(acceptPause) // out of file descriptors: let some be closed
				continue
			}
			return err
		}
		element := s.admit(conn)
		if element == nil {
			_ = conn.Close()
			continue
		}
		s.wait.Go(func() { s.sniff(element) })
	}
}

// admit enters a connection in the list of half-open ones, when there is room, or gives nil when the splitter is
// closed.
func (s *splitter) admit(conn net.Conn) *list.Element {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.closed && s.sniffed.Len() >= s.most {
		s.makeRoom()
		s.changed.Wait()
	}
	if s.closed {
		return nil
	}
	_ = conn.SetReadDeadline(time.Now().Add(sniffTimeout))
	return s.sniffed.PushBack(&halfOpen{Conn: conn, owner: s})
}

// makeRoom ends the wait of the oldest for bytes, unless there are some. Its goroutine then closes it and takes it out
// of the list; one that has just got all it needs goes on. The caller holds the lock.
func (s *splitter) makeRoom() {
	oldest := s.sniffed.Front().Value.(*halfOpen)
	if !oldest.leaving && !unread(oldest.Conn) {
		oldest.leaving = true
		_ = oldest.SetReadDeadline(time.Unix(1, 0))
	}
}

// sniff reads until the protocol is known and hands the connection on. It reads as little as decides: one byte is
// enough for most HTTP/1.1 requests, and the preface may arrive in pieces.
func (s *splitter) sniff(element *list.Element) {
	half := element.Value.(*halfOpen)
	conn := half.Conn
	reader := bufio.NewReaderSize(half, sniffBufferBytes)
	target, err := s.choose(reader)
	s.mu.Lock()
	s.sniffed.Remove(element)
	leaving := half.leaving
	s.changed.Signal()
	s.mu.Unlock()
	seen, _ := reader.Peek(reader.Buffered())
	switch {
	case err != nil && leaving && s.refused != nil:
		s.refused(conn)
	case err == nil && s.pass != nil && !s.pass(conn, target == s.http2, seen):
		err = errRefused
	}
	if err != nil || conn.SetReadDeadline(time.Time{}) != nil ||
		!target.give(newPeekedConn(conn, reader, target == s.http2)) {
		_ = conn.Close()
	}
}

// choose compares the first bytes with the preface, growing the look only while they agree.
func (s *splitter) choose(reader *bufio.Reader) (*handoff, error) {
	for n := 1; ; n++ {
		if _, err := reader.Peek(n); err != nil {
			return nil, err
		}
		n = min(reader.Buffered(), len(http2Preface))
		seen, err := reader.Peek(n)
		if err != nil {
			return nil, err
		}
		if string(seen) != http2Preface[:n] {
			return s.http1, nil
		}
		if n == len(http2Preface) {
			return s.http2, awaitSettings(reader)
		}
	}
}

// awaitSettings reads on until the first frame after the preface is whole, which has to be SETTINGS (RFC 9113, section
// 3.4). What is something else, or larger than any client sends, is left for gRPC to judge.
func awaitSettings(reader *bufio.Reader) error {
	const before = len(http2Preface) + frameHeaderBytes
	seen, err := reader.Peek(before)
	if err != nil {
		return err
	}
	header := seen[len(http2Preface):]
	length := int(header[0])<<16 | int(header[1])<<8 | int(header[2])
	if header[3] != settingsType || length > sniffBufferBytes-before {
		return nil
	}
	_, err = reader.Peek(before + length)
	return err
}

// close stops accepting and closes what is half open. Connections handed on live until their servers end them.
func (s *splitter) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	_ = s.base.Close()
	for e := s.sniffed.Front(); e != nil; e = e.Next() {
		_ = e.Value.(*halfOpen).Close()
	}
	s.changed.Broadcast()
	_ = s.http1.Close()
	_ = s.http2.Close()
}

// handoff is a listener that is given its connections.
type handoff struct {
	addr  net.Addr
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newHandoff(addr net.Addr) *handoff {
	return &handoff{addr: addr, conns: make(chan net.Conn), done: make(chan struct{})}
}

// give hands a connection to whoever accepts, and reports false when nobody does any more.
func (h *handoff) give(conn net.Conn) bool {
	select {
	case h.conns <- conn:
		return true
	case <-h.done:
		return false
	}
}

// Accept implements net.Listener.
func (h *handoff) Accept() (net.Conn, error) {
	select {
	case conn := <-h.conns:
		return conn, nil
	case <-h.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (h *handoff) Close() error {
	h.once.Do(func() { close(h.done) })
	return nil
}

// Addr implements net.Listener.
func (h *handoff) Addr() net.Addr { return h.addr }

// halfOpen is the number of connections that have not shown their protocol.
func (s *splitter) halfOpen() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sniffed.Len()
}
