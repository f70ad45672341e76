package gateway

import (
	"fmt"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/mem"
	protobuf "google.golang.org/protobuf/proto"
)

// codec is the gRPC codec of the client port. Requests are decoded by the official Unmarshal, which copies what it
// keeps and refuses invalid text, so that a request that was decoded can be decoded by every member. Answers are
// spliced: what the store keeps is already encoded, and unmarshalling and marshalling it again is nearly all that a
// large range costs otherwise.
//
// A body holds bytes of its own or immutable ones, never a view of the store, so that a slow client pins nothing but
// its answer. Small ones are copied once, into a buffer that gRPC frees as soon as it has written it; large ones are
// lent, and large watch responses shared. What is large is counted until gRPC frees it (claim.go).
type codec struct {
	sent, received prometheus.Counter
	chunks         *chunkPool
}

// Name is the content subtype: the codec stands in for gRPC's own.
func (c *codec) Name() string { return "proto" }

// Unmarshal decodes a request.
func (c *codec) Unmarshal(data mem.BufferSlice, v any) error {
	c.received.Add(float64(data.Len()))
	in, isInput := v.(*input)
	m, ok := v.(protobuf.Message)
	switch {
	case isInput && !in.enter(data.Len()):
		return nil // it is refused
	case !isInput && !ok:
		return fmt.Errorf("gateway: cannot decode into %T", v)
	}
	buffer := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buffer.Free()
	if isInput {
		return in.decode(buffer.ReadOnlyData())
	}
	return protobuf.Unmarshal(buffer.ReadOnlyData(), m)
}

// Marshal encodes an answer or an ordinary message.
func (c *codec) Marshal(v any) (mem.BufferSlice, error) {
	var out mem.BufferSlice
	var err error
	switch m := v.(type) {
	case *answer:
		out = c.splice(m)
	case protobuf.Message:
		out, err = marshalMessage(m)
	default:
		return nil, fmt.Errorf("gateway: cannot encode %T", v)
	}
	if err != nil {
		return nil, err
	}
	c.sent.Add(float64(out.Len()))
	return out, nil
}

// marshalMessage encodes an ordinary message, into a pooled buffer when it is worth it: gRPC's pool has nothing between
// 32 KiB and 1 MiB.
func marshalMessage(m protobuf.Message) (mem.BufferSlice, error) {
	size := protobuf.Size(m)
	options := protobuf.MarshalOptions{UseCachedSize: true}
	if size < pooledBytesMin || size > chunkBytes {
		b, err := options.MarshalAppend(make([]byte, 0, size), m)
		if err != nil {
			return nil, err
		}
		return mem.BufferSlice{mem.SliceBuffer(b)}, nil
	}
	pool := mem.DefaultBufferPool()
	b := pool.Get(size)
	if _, err := options.MarshalAppend((*b)[:0], m); err != nil {
		pool.Put(b)
		return nil, err
	}
	return mem.BufferSlice{mem.NewBuffer(b, pool)}, nil
}

// splice encodes an answer and releases its bodies. Of what is in the ledger gRPC gets the bodies themselves and
// releases them. The rest is copied, but for large pieces of watch responses.
func (c *codec) splice(a *answer) mem.BufferSlice {
	var space [prefixBytesOnStack]byte
	prefix := a.prefix(space[:0])
	if a.entered != nil && a.frame == nil {
		return a.lend(prefix)
	}
	defer a.release()
	size := len(prefix) + a.len()
	switch {
	case size < pooledBytesMin:
		return mem.BufferSlice{mem.SliceBuffer(a.appendTo(append(make([]byte, 0, size), prefix...)))}
	case size > chunkBytes && a.frame != nil && slices.ContainsFunc(a.body.Pieces, isSharedPiece):
		return a.share(prefix)
	case size > chunkBytes:
		return c.chunks.fill(size, prefix, a, a.pool(c.chunks))
	default:
		pool := a.pool(mem.DefaultBufferPool())
		b := pool.Get(size)
		a.appendTo(append((*b)[:0], prefix...))
		return mem.BufferSlice{mem.NewBuffer(b, pool)}
	}
}

// pool gives the pool for an answer's buffers, which keeps count of them when the answer is entered.
func (a *answer) pool(of mem.BufferPool) mem.BufferPool {
	if a.entered == nil {
		return of
	}
	return &loan{claim: a.entered, bytes: int64(a.len()), pool: of, stepwise: true}
}

// share gives gRPC the events of a watch response themselves, but for small pieces. Streams share their bytes, and gRPC
// holds the response of each client that does not read: copied, it would hold them as often as there are such clients.
func (a *answer) share(prefix []byte) mem.BufferSlice {
	var out mem.BufferSlice
	pool := a.pool(forgetting{})
	share := func(p []byte) {
		for len(p) > 0 { // what a client takes slowly is seen to move
			n := len(p)
			if n >= 2*chunkBytes {
				n = chunkBytes
			}
			own := pool.Get(0) // the list of the pieces is shared, too
			*own = p[:n:n]
			out = append(out, mem.NewBuffer(own, pool))
			p = p[n:]
		}
	}
	copied := slices.Clone(prefix)
	flush := func() {
		switch {
		case len(copied) > pooledBytesMin:
			share(copied)
		case len(copied) > 0:
			out = append(out, mem.SliceBuffer(copied)) // gRPC would not tell when it has written so little
		}
		copied = nil
	}
	for _, p := range a.body.Pieces {
		if !isSharedPiece(p) {
			copied = append(copied, p...)
			continue
		}
		flush()
		share(p)
	}
	flush()
	return out
}

func isSharedPiece(p []byte) bool { return len(p) > sharedPieceBytesMin }

// appendTo appends the bodies.
func (a *answer) appendTo(b []byte) []byte {
	b = appendPieces(b, a.body.Pieces)
	for i := range a.more {
		b = appendPieces(b, a.more[i].Pieces)
	}
	return b
}

func appendPieces(b []byte, pieces [][]byte) []byte {
	for _, p := range pieces {
		b = append(b, p...)
	}
	return b
}
