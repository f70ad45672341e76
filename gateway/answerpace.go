package gateway

import (
	"net/http"
	"sync/atomic"
	"time"
)

// answerPace is how slowly a client may read an answer over HTTP/1.1. A client that asks and never reads would
// otherwise keep a handler, its connection's place and the answer for as long as it likes. Handlers may take any time
// before they write; then the connection has a deadline, which moves with what has been written:
//
//   - An answer must be read at a rate on the whole.
//   - A stream has no end, and its client may rest; but what waits to be sent must get on within a time.
//
// gRPC has no need of it: there nothing waits in a handler for more than a client's window, and the ledger of answers,
// the bounds of watches and keepalive are over that.
type answerPace struct {
	// answer is how long one may take at least, to which comes the time for what was written at rate, in bytes a second;
	// stream how long each write of a stream may.
	answer, stream time.Duration
	rate           int64
}

// answerPaceDefault is in force on every port but that for other members.
var answerPaceDefault = answerPace{answer: answerWriteMax, stream: streamWriteMax, rate: answerRateMin}

// pacedWriter is an http.ResponseWriter of which each write has a deadline.
type pacedWriter struct {
	http.ResponseWriter
	pace answerPace
	conn *connection
	// streams says that the answer has no end.
	streams atomic.Bool
	began   time.Time // of the first write
	written int64
}

// Unwrap is how http.ResponseController finds the rest of the writer.
func (w *pacedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Write implements io.Writer.
func (w *pacedWriter) Write(p []byte) (written int, err error) {
	for {
		w.extend()
		n, err := w.ResponseWriter.Write(p[written:min(written+jsonWriteBytes, len(p))])
		written += n
		w.written += int64(n)
		if err != nil || written == len(p) {
			return written, err
		}
	}
}

// Flush implements http.Flusher.
func (w *pacedWriter) Flush() {
	w.extend()
	_ = http.NewResponseController(w.ResponseWriter).Flush()
}

// extend sets the deadline for what is written next.
func (w *pacedWriter) extend() {
	now := time.Now()
	if w.began.IsZero() {
		w.began = now
	}
	deadline := w.began.Add(w.pace.answer + time.Duration(w.written)*time.Second/time.Duration(w.pace.rate))
	if w.streams.Load() {
		deadline = now.Add(w.pace.stream)
	}
	_ = w.conn.SetWriteDeadline(deadline)
}

// finish sets the deadline for what the server has kept back of the answer.
func (w *pacedWriter) finish() { _ = w.conn.SetWriteDeadline(time.Now().Add(w.pace.answer)) }
