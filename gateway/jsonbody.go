package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	protobuf "google.golang.org/protobuf/proto"
)

// jsonBody is the body of a request of the JSON gateway: one message, or a sequence of them. It bounds each, and what
// all bodies hold together, and knows the difference between a bad message and a client that is gone.
type jsonBody struct {
	from    io.ReadCloser
	call    *jsonCall
	most    int64 // bytes of one message
	gateway *jsonGateway
	// request is the context of the HTTP request.
	request context.Context
	// single says that the body ends with its first message, whatever is sent behind it.
	single bool

	// inRead is held while somebody reads, however long that takes.
	inRead sync.Mutex

	mu sync.Mutex
	// read and decoded are how far the body has been read, and where the last whole message in it ended.
	read, decoded int64
	counted       int64 // what it has in the gateway's bodyBytes
	// ended says that nothing more is read; wholly that the client has said all; reading that somebody reads.
	ended, wholly, reading bool
}

// errBodyEnded is what a reader gets that reads on when the call is over.
var errBodyEnded = errors.New("gateway: the call is over")

// Read implements io.Reader. Errors but io.EOF end the call.
func (b *jsonBody) Read(p []byte) (int, error) {
	b.inRead.Lock()
	defer b.inRead.Unlock()
	room, err := b.room()
	if err != nil {
		return 0, err
	}
	b.setReading(true)
	defer b.setReading(false)
	n, err := b.from.Read(p[:min(int64(len(p)), room, jsonReadBytes)])
	switch {
	case errors.Is(err, io.EOF):
		b.mu.Lock()
		b.wholly = true
		b.mu.Unlock()
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = status.Errorf(codes.DeadlineExceeded, "etcdserver: the %s of the request took longer than %v",
			b.awaited(), b.gateway.bodyTimeout)
		b.call.fail(err)
		b.call.end(err)
		return n, err
	case err != nil:
		b.call.end(errClientGone)
		return n, err
	}
	if failed := b.count(int64(n)); failed != nil {
		return 0, failed
	}
	return n, err
}

// setReading notes that somebody reads, or reads no more and has told why.
func (b *jsonBody) setReading(now bool) {
	b.mu.Lock()
	b.reading = now
	b.mu.Unlock()
	if !now && b.request.Err() != nil {
		b.requestEnded()
	}
}

// requestEnded ends the call because the HTTP request has ended: its client has left, or the member stops. While
// somebody reads, he tells why.
func (b *jsonBody) requestEnded() {
	b.mu.Lock()
	reading := b.reading
	b.mu.Unlock()
	if !reading || b.call.server.pageLife.Err() != nil {
		b.call.end(context.Cause(b.request))
	}
}

// awaited is what has a deadline: a sequence may take its time behind its first message.
func (b *jsonBody) awaited() string {
	if b.call.streams {
		return "first message"
	}
	return "body"
}

// room is how much of the present message may still be read.
func (b *jsonBody) room() (int64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	room := b.decoded + b.most - b.read
	switch {
	case b.wholly, b.single && b.decoded > 0:
		return 0, io.EOF
	case b.ended:
		return 0, errBodyEnded
	case room <= 0:
		err := status.Errorf(codes.ResourceExhausted, "grpc: received message larger than max (more than %d bytes of JSON "+
			"vs. %d)", b.most, b.call.server.receivedBytesMax())
		b.call.fail(err)
		return 0, err
	}
	return room, nil
}

// count enters what has been read and not decoded.
func (b *jsonBody) count(n int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.read += n
	return b.enter(b.read - b.decoded)
}

// weigh enters what a message takes when it is decoded, before it is: an empty object is two bytes of text and a whole
// message in memory, so that a body may be small and what it makes large.
func (b *jsonBody) weigh(text []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	weight := int64(len(text)) + jsonObjectBytes*int64(bytes.Count(text, []byte{'{'}))
	if weight > b.gateway.bodyBytesMax {
		b.call.fail(rpctypes.ErrGRPCRequestTooLarge)
		return rpctypes.ErrGRPCRequestTooLarge
	}
	return b.enter(weight)
}

// enter makes sure that so much is in bodyBytes. The caller holds the lock.
func (b *jsonBody) enter(held int64) error {
	if b.ended || held <= jsonBodyBytesFree || held <= b.counted {
		return nil
	}
	more := held - b.counted
	if b.gateway.bodyBytes.Add(more) > b.gateway.bodyBytesMax {
		b.gateway.bodyBytes.Add(-more)
		err := status.Error(codes.ResourceExhausted, "etcdserver: too many requests")
		b.call.fail(err)
		return err
	}
	b.counted = held
	return nil
}

// message notes that a message ends at an offset. A sequence gives back what that message held; a single one holds it
// to the end of the call.
func (b *jsonBody) message(end int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.decoded == 0 && b.call.whenFirst != nil {
		b.call.whenFirst()
	}
	b.decoded = end
	if b.call.streams {
		b.giveBack()
	}
}

// giveBack strikes what the body has in bodyBytes. The caller holds the lock.
func (b *jsonBody) giveBack() {
	b.gateway.bodyBytes.Add(-b.counted)
	b.counted = 0
}

// finish says that the call is over.
func (b *jsonBody) finish() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
	b.giveBack()
}

// awaitReader waits until whoever reads has stopped, which he does as soon as the connection's deadline has passed. The
// server would stop him by a deadline of its own and lift that, and then wait for the rest of the body without one.
func (b *jsonBody) awaitReader() {
	b.inRead.Lock()
	defer b.inRead.Unlock()
}

// sending reports whether the client has not said all.
func (b *jsonBody) sending() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.wholly
}

// Close implements io.Closer.
func (b *jsonBody) Close() error { return b.from.Close() }

// jsonCodec is how the JSON gateway reads and writes: as the protobuf library maps JSON, with the names of the .proto
// files, without fields that are not set; unknown fields are skipped.
type jsonCodec struct{ runtime.JSONPb }

func newJSONCodec() *jsonCodec {
	return &jsonCodec{runtime.JSONPb{MarshalOptions: protojson.MarshalOptions{UseProtoNames: true},
		UnmarshalOptions: protojson.UnmarshalOptions{DiscardUnknown: true}}}
}

// The messages of a stream come in an object each, under one of these names. The library hands them over in a map.
const (
	chunkResult = "result"
	chunkError  = "error"
)

// Marshal implements runtime.Marshaler. Large answers are text once, not twice and a third time in the library's
// buffers.
func (c *jsonCodec) Marshal(v any) ([]byte, error) {
	switch m := v.(type) {
	case protobuf.Message:
		text, err := c.MarshalOptions.Marshal(m)
		return withoutSpaces(text), err
	case map[string]any:
		if inner, ok := m[chunkResult].(protobuf.Message); ok && len(m) == 1 {
			return c.chunk(chunkResult, inner)
		}
	case map[string]protobuf.Message:
		if inner, ok := m[chunkError]; ok && len(m) == 1 {
			return c.chunk(chunkError, inner)
		}
	}
	return c.JSONPb.Marshal(v)
}

func (c *jsonCodec) chunk(name string, m protobuf.Message) ([]byte, error) {
	text := append(make([]byte, 0, 512), `{"`+name+`":`...)
	text, err := c.MarshalOptions.MarshalAppend(text, m)
	return append(withoutSpaces(text), '}'), err
}

// withoutSpaces takes the spaces between strings out of JSON, in place. The protobuf library writes some, or none, by a
// whim of each build, so that nobody relies on either; but clients do compare bytes, and etcd's streams have none.
func withoutSpaces(text []byte) []byte {
	kept := text[:0]
	for len(text) > 0 {
		at := bytes.IndexAny(text, `" `)
		if at < 0 {
			at = len(text)
		}
		kept = append(kept, text[:at]...)
		text = text[at:]
		if len(text) > 0 && text[0] == ' ' {
			text = text[1:]
			continue
		}
		n := stringLen(text)
		kept = append(kept, text[:n]...)
		text = text[n:]
	}
	return kept
}

// stringLen is the length of the JSON string with which a text begins, with its quotes; 0 for no text.
func stringLen(text []byte) int {
	for i := 1; i < len(text); i++ {
		at := bytes.IndexByte(text[i:], '"')
		if at < 0 {
			break
		}
		i += at
		backslashes := i - len(bytes.TrimRight(text[:i], `\`))
		if backslashes%2 == 0 { // an odd one escapes the quote
			return i + 1
		}
	}
	return len(text)
}

// NewDecoder implements runtime.Marshaler.
func (c *jsonCodec) NewDecoder(r io.Reader) runtime.Decoder {
	decoder := runtime.DecoderWrapper{Decoder: json.NewDecoder(r), UnmarshalOptions: c.UnmarshalOptions}
	body, ok := r.(*jsonBody)
	if !ok {
		return decoder
	}
	return &jsonDecoder{decoder: decoder, body: body}
}

// jsonDecoder decodes the messages of a body.
type jsonDecoder struct {
	decoder runtime.DecoderWrapper
	body    *jsonBody
}

// Decode implements runtime.Decoder. The generated handlers take a bad message of a sequence for the end of it; so that
// the client learns what was wrong, it is noted as the reason for the end.
func (d *jsonDecoder) Decode(v any) error {
	err := d.decode(v)
	switch {
	case err == nil:
		d.body.message(d.decoder.InputOffset())
	case d.body.call.streams && !errors.Is(err, io.EOF):
		d.body.call.fail(status.Error(codes.InvalidArgument, fmt.Sprint(err)))
	}
	return err
}

// decode is the library's, with the message weighed when its text is known.
func (d *jsonDecoder) decode(v any) error {
	m, ok := v.(protobuf.Message)
	if !ok {
		return d.decoder.Decode(v)
	}
	var text json.RawMessage
	if err := d.decoder.Decoder.Decode(&text); err != nil {
		return err
	}
	if err := d.body.weigh(text); err != nil {
		return err
	}
	return d.decoder.Unmarshal(text, m)
}
