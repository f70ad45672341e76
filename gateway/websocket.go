package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// subprotocolToken is how browsers send a token, since they cannot set headers of a websocket: the subprotocols
// "Bearer" and the token.
const subprotocolToken = "Bearer"

// errSecondMessage ends a call that has one request when its client sends another behind it.
var errSecondMessage = status.Error(codes.InvalidArgument,
	"etcdserver: this call has one request, and another message came behind it")

// isWebsocket reports whether a request asks for a websocket.
func isWebsocket(r *http.Request) bool {
	return headerHas(r.Header, "Connection", "upgrade") && headerHas(r.Header, "Upgrade", "websocket")
}

// headerHas reports whether a word is in a header that lists words.
func headerHas(h http.Header, name, word string) bool {
	return slices.ContainsFunc(headerWords(h, name), func(w string) bool { return strings.EqualFold(w, word) })
}

func headerWords(h http.Header, name string) (words []string) {
	for _, line := range h.Values(name) {
		for word := range strings.SplitSeq(line, ",") {
			words = append(words, strings.TrimSpace(word))
		}
	}
	return words
}

// serveWebsocket serves a call over a websocket: each message of the client is one message of the body, or a part of
// one, and each line of the answer is a message. The websocket is closed behind the last. A client that closes it is
// gone, whatever it has asked.
func (g *jsonGateway) serveWebsocket(w http.ResponseWriter, r *http.Request, call *jsonCall) {
	if !g.server.access.sameOrigin(r) {
		call.finish()
		serveJSONError(r.Context(), g.mux, g.codec, w, r,
			status.Error(codes.PermissionDenied, "etcdserver: --cors does not list the origin of this websocket"))
		return
	}
	socket, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true, // looked at above
		Subprotocols: []string{subprotocolToken}})
	if err != nil {
		call.finish() // the client has been told
		return
	}
	defer func() { _ = socket.CloseNow() }()
	socket.SetReadLimit(call.body.most + jsonReadBytes) // the body tells what is wrong before the socket closes
	life := g.server.pageLife
	body := &socketBody{ctx: life, socket: socket}
	call.body.from = body
	call.body.single = !call.streams
	call.whenBodyRead = func() {
		go func() { // until the socket is closed, by either side
			if body.another() {
				call.end(errSecondMessage)
			}
			call.end(errClientGone)
		}()
	}
	silent := time.AfterFunc(g.bodyTimeout, func() {
		_ = socket.Close(websocket.StatusPolicyViolation, fmt.Sprintf("the first message took longer than %v", g.bodyTimeout))
	})
	defer silent.Stop()
	call.whenFirst = func() { silent.Stop() }
	inner := r.Clone(r.Context())
	inner.Method, inner.Body = http.MethodPost, call.body
	inner.ContentLength = -1
	forwardToken(inner.Header)
	out := &socketWriter{ctx: life, socket: socket, body: body, header: make(http.Header), conn: call.conn,
		patience: g.server.pace.stream}
	g.mux.ServeHTTP(&jsonWriter{ResponseWriter: out, call: call}, inner)
	_ = out.end()
	call.finish()
	if body.broken.Load() {
		_ = socket.Close(websocket.StatusProtocolError, "the frames are not those of RFC 6455")
		return
	}
	_ = socket.Close(websocket.StatusNormalClosure, "")
}

// forwardToken turns the token of a browser into the header that others send, and takes out what belongs to the
// websocket.
func forwardToken(h http.Header) {
	protocols := headerWords(h, "Sec-Websocket-Protocol")
	if len(protocols) == 2 && protocols[0] == subprotocolToken && h.Get("Authorization") == "" {
		h.Set("Authorization", subprotocolToken+" "+protocols[1])
	}
	for name := range h {
		if name == "Upgrade" || name == "Connection" || strings.HasPrefix(name, "Sec-Websocket-") {
			delete(h, name)
		}
	}
}

// socketBody reads the messages of a websocket one behind the other, with white space between them.
type socketBody struct {
	ctx    context.Context
	socket *websocket.Conn
	reader io.Reader // of the present message
	// broken says that the client has sent something that is no frame, or not one that may come there.
	broken atomic.Bool
}

// gone notes why nothing more can be read: the client has left, or it does not speak as RFC 6455 has it, which the
// library tells only by an error that is none of the connection's.
func (b *socketBody) gone(err error) error {
	var network net.Error
	switch {
	case websocket.CloseStatus(err) != -1, errors.Is(err, websocket.ErrMessageTooBig), b.ctx.Err() != nil:
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed):
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.As(err, &network):
	default:
		b.broken.Store(true)
	}
	return errClientGone
}

// Read implements io.Reader. It never ends with io.EOF: a websocket has no half-closed state.
func (b *socketBody) Read(p []byte) (int, error) {
	for {
		if b.reader == nil {
			_, reader, err := b.socket.Reader(b.ctx)
			if err != nil {
				return 0, b.gone(err)
			}
			b.reader = reader
		}
		n, err := b.reader.Read(p)
		switch {
		case n > 0:
			return n, nil
		case errors.Is(err, io.EOF):
			b.reader = nil
			if len(p) > 0 {
				p[0] = '\n'
				return 1, nil
			}
		case err != nil:
			return 0, b.gone(err)
		}
	}
}

// another passes what is left of the present message, frames or white space behind its JSON, and waits for another. It
// reports false when the client is gone. Nobody else reads then.
func (b *socketBody) another() bool {
	if b.reader != nil {
		if _, err := io.Copy(io.Discard, b.reader); err != nil {
			_ = b.gone(err)
			return false
		}
	}
	if _, _, err := b.socket.Reader(b.ctx); err != nil {
		_ = b.gone(err)
		return false
	}
	return true
}

// Close implements io.Closer.
func (b *socketBody) Close() error { return nil }

// socketWriter is the http.ResponseWriter of a call over a websocket. Status and headers have no place there.
type socketWriter struct {
	ctx    context.Context
	socket *websocket.Conn
	body   *socketBody
	header http.Header
	// conn is what the websocket uses, nil if that is not known; patience is how long a write may take.
	conn     *connection
	patience time.Duration
	// message is what is being written, nil between two.
	message io.WriteCloser
}

// Header implements http.ResponseWriter.
func (w *socketWriter) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter.
func (w *socketWriter) WriteHeader(int) {}

// Flush implements http.Flusher. Whole lines are never held back.
func (w *socketWriter) Flush() {}

// Write implements io.Writer. A message is sent as it is written, so that a large one is not held twice.
// Nothing is sent to a client that speaks something else, but why its websocket is closed.
func (w *socketWriter) Write(p []byte) (written int, err error) {
	if w.body.broken.Load() {
		return 0, errClientGone
	}
	for written < len(p) && err == nil {
		line, _, ended := bytes.Cut(p[written:], []byte{'\n'})
		if len(line) > 0 {
			err = w.part(line)
			written += len(line)
		}
		if ended && err == nil {
			err = w.end()
			written++
		}
	}
	return written, err
}

// pace gives what follows a deadline, until the result is called.
func (w *socketWriter) pace() (lift func()) {
	if w.conn == nil {
		return func() {}
	}
	_ = w.conn.SetWriteDeadline(time.Now().Add(w.patience))
	return func() { _ = w.conn.SetWriteDeadline(time.Time{}) }
}

// part writes a part of a message.
func (w *socketWriter) part(p []byte) (err error) {
	defer w.pace()()
	if w.message == nil {
		w.message, err = w.socket.Writer(w.ctx, websocket.MessageText)
		if err != nil {
			return err
		}
	}
	_, err = w.message.Write(p)
	return err
}

// end ends the message that is being written, if there is one.
func (w *socketWriter) end() error {
	if w.message == nil {
		return nil
	}
	defer w.pace()()
	message := w.message
	w.message = nil
	return message.Close()
}
