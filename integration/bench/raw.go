package main

import (
	"context"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// rawCodec sends messages as usual and leaves answers encoded. Decoding hundreds of megabytes would take the load
// generator more processor time than the server needs to send them, on the same two cores.
type rawCodec struct{}

// Name keeps the content type of ordinary clients.
func (rawCodec) Name() string { return "proto" }

// Marshal encodes a request.
func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	data, err := proto.Marshal(v.(proto.Message))
	return mem.BufferSlice{mem.SliceBuffer(data)}, err
}

// Unmarshal gives the answer to the answer type, which says what it wants of it.
func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error { return v.(rawAnswer).take(data) }

// rawAnswer is an answer that reads its own encoding.
type rawAnswer interface {
	take(data mem.BufferSlice) error
}

// sizedAnswer counts the bytes of an answer and drops them.
type sizedAnswer struct{ bytes int }

func (a *sizedAnswer) take(data mem.BufferSlice) error { //nolint:unparam // it is a rawAnswer
	a.bytes = data.Len()
	return nil
}

// Field numbers of etcd's API, for what the load generator looks at.
const (
	fieldHeader, fieldWatchID, fieldCreated, fieldCanceled, fieldCompactRevision = 1, 2, 3, 4, 5
	fieldEvents                                                                  = 11
	fieldEventKV                                                                 = 2
	fieldKVModRevision                                                           = 3
)

// watchAnswer is the part of a watch response that shows whether a watch is complete.
type watchAnswer struct {
	watchID           int64
	created, canceled bool
	compactRevision   int64
	events            int
	// first and last are the revisions of the first and the last event. ordered tells that none is below the one before.
	first, last int64
	ordered     bool
}

func (a *watchAnswer) take(data mem.BufferSlice) error {
	buffer := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buffer.Free()
	*a = watchAnswer{ordered: true}
	return eachField(buffer.ReadOnlyData(), func(number protowire.Number, value uint64, inner []byte) error {
		switch number {
		case fieldWatchID:
			a.watchID = int64(value)
		case fieldCreated:
			a.created = value != 0
		case fieldCanceled:
			a.canceled = value != 0
		case fieldCompactRevision:
			a.compactRevision = int64(value)
		case fieldEvents:
			return a.event(inner)
		}
		return nil
	})
}

func (a *watchAnswer) event(data []byte) error {
	return eachField(data, func(number protowire.Number, _ uint64, kv []byte) error {
		if number != fieldEventKV {
			return nil
		}
		return eachField(kv, func(number protowire.Number, value uint64, _ []byte) error {
			if number == fieldKVModRevision {
				a.revision(int64(value))
			}
			return nil
		})
	})
}

func (a *watchAnswer) revision(r int64) {
	if a.events == 0 {
		a.first = r
	} else if r < a.last {
		a.ordered = false
	}
	a.events++
	a.last = r
}

// eachField walks over the fields of a message. Of a varint it gives the value, of a length-delimited field the bytes.
func eachField(data []byte, visit func(number protowire.Number, value uint64, inner []byte) error) error {
	for len(data) > 0 {
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return fmt.Errorf("unreadable answer: %w", protowire.ParseError(n))
		}
		data = data[n:]
		var value uint64
		var inner []byte
		switch kind {
		case protowire.VarintType:
			value, n = protowire.ConsumeVarint(data)
		case protowire.BytesType:
			inner, n = protowire.ConsumeBytes(data)
		default:
			n = protowire.ConsumeFieldValue(number, kind, data)
		}
		if n < 0 {
			return fmt.Errorf("unreadable field %d: %w", number, protowire.ParseError(n))
		}
		data = data[n:]
		if err := visit(number, value, inner); err != nil {
			return err
		}
	}
	return nil
}

// watchStream is a watch stream whose answers stay encoded. What is not received is not buffered either, beyond gRPC's
// window: the official client would go on reading.
type watchStream struct{ stream grpc.ClientStream }

func openWatchStream(ctx context.Context, conn *grpc.ClientConn) (*watchStream, error) {
	description := &grpc.StreamDesc{StreamName: "Watch", ServerStreams: true, ClientStreams: true}
	s, err := conn.NewStream(ctx, description, pb.Watch_Watch_FullMethodName, grpc.ForceCodecV2(rawCodec{}))
	if err != nil {
		return nil, err
	}
	return &watchStream{s}, nil
}

// create asks for a watch and waits for nothing.
func (s *watchStream) create(key, end string, start int64) error {
	create := &pb.WatchCreateRequest{Key: []byte(key), StartRevision: start}
	if end != "" {
		create.RangeEnd = []byte(end)
	}
	return s.stream.SendMsg(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: create}})
}

func (s *watchStream) receive() (watchAnswer, error) {
	var a watchAnswer
	err := s.stream.RecvMsg(&a)
	return a, err
}
