package gateway

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// jsonCall is one request of the JSON gateway: one call of a service. It is in the context of the request, from where
// the local connection, the body and the answer find it.
type jsonCall struct {
	server *Server
	conn   *connection // nil if it is not known
	// end ends the call, with the status that the client is told if it can still be told.
	end context.CancelCauseFunc
	// streams says that the client may send several messages.
	streams bool
	// paced is what writes the answer to an HTTP connection that is known.
	paced *pacedWriter
	// whenBodyRead is called when the request of a call that has only one has been read.
	whenBodyRead func()
	// whenFirst, if set, is called when the first message has been read.
	whenFirst func()
	// handlers are the goroutines of the services' handlers.
	handlers sync.WaitGroup
	body     *jsonBody

	// held is what the answer that is written has in the ledger. Only the goroutine of the HTTP request uses it.
	held *claim
	// failure is what is wrong with the body, once that is known.
	failure atomic.Pointer[error]
	// overloaded is the status of HTTP for an error of the call that says that the client may try again, 0 for none.
	overloaded atomic.Int32
}

type jsonCallKey struct{}

// jsonCallOf gives the JSON request of which a call is part, nil for a call over gRPC.
func jsonCallOf(ctx context.Context) *jsonCall {
	call, _ := ctx.Value(jsonCallKey{}).(*jsonCall)
	return call
}

// ended notes how the call has ended. Some errors arrive as Unknown over gRPC, as etcd's do, for which the library
// would say 500, as if the member were broken. One of those that the table of errors has as an overload is told as
// such: 429 and 503 are what clients and proxies try again after. The body is etcd's in any case.
func (c *jsonCall) ended(err error) error {
	if status.Code(err) != codes.Unknown {
		return err
	}
	var known rpctypes.EtcdError
	if errors.As(rpctypes.Error(err), &known) {
		switch known.Code() {
		case codes.ResourceExhausted, codes.Unavailable:
			c.overloaded.Store(int32(runtime.HTTPStatusFromCode(known.Code())))
		}
	}
	return err
}

// lastAnswer tells the client, in the header of an error, that the connection is not used again, if there is more to
// come on it that nobody will read.
func (c *jsonCall) lastAnswer(w http.ResponseWriter) {
	if c.streams && c.body.sending() {
		w.Header().Set("Connection", "close")
	}
}

// hold keeps what an answer has in the ledger until the next, or the end.
func (c *jsonCall) hold(next *claim) {
	c.held.drop()
	c.held = next
}

// bodyRead notes that nothing more is read.
func (c *jsonCall) bodyRead() {
	if c.whenBodyRead != nil {
		c.whenBodyRead()
	}
}

// fail notes what is wrong with the body; the first such thing counts.
func (c *jsonCall) fail(err error) { c.failure.CompareAndSwap(nil, &err) }

// failed gives what is wrong with the body, or nil.
func (c *jsonCall) failed() error {
	if err := c.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// finish ends whatever the call has left: its handlers, its part of the ledgers.
func (c *jsonCall) finish() {
	c.end(nil)
	c.handlers.Wait()
	c.hold(nil)
	c.body.finish()
}

// errClientGone ends a call whose client cannot be told anything any more.
var errClientGone = status.Error(codes.Canceled, context.Canceled.Error())

// jsonWriter writes an answer in steps, so that a client that reads a large one slowly is known to read.
type jsonWriter struct {
	http.ResponseWriter
	call *jsonCall
}

// Unwrap is how http.ResponseController finds the rest of the writer.
func (w *jsonWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w *jsonWriter) WriteHeader(code int) {
	if as := w.call.overloaded.Load(); as != 0 && code == http.StatusInternalServerError {
		code = int(as)
	}
	if code >= http.StatusBadRequest {
		w.call.lastAnswer(w)
	}
	w.ResponseWriter.WriteHeader(code)
}

// Write implements io.Writer.
func (w *jsonWriter) Write(p []byte) (written int, err error) {
	for {
		n, err := w.ResponseWriter.Write(p[written:min(written+jsonWriteBytes, len(p))])
		written += n
		if w.call.conn != nil {
			w.call.conn.taken.Add(int64(n))
		}
		if err != nil || written == len(p) {
			return written, err
		}
	}
}

// bodyDeadlines lets a body that has but one request take its time, but not for ever, and stops waiting for one that is
// not wanted any more.
type bodyDeadlines struct {
	*http.ResponseController
	timeout time.Duration
}

func (d bodyDeadlines) begin() { _ = d.SetReadDeadline(time.Now().Add(d.timeout)) }
func (d bodyDeadlines) lift()  { _ = d.SetReadDeadline(time.Time{}) }
func (d bodyDeadlines) stop()  { _ = d.SetReadDeadline(time.Unix(1, 0)) }
