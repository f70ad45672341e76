package raftactor

import "google.golang.org/protobuf/encoding/protowire"

// Field numbers of etcdserverpb.InternalRaftRequest and its RequestHeader, as far as the scan needs them.
const (
	requestFieldID     protowire.Number = 1
	requestFieldHeader protowire.Number = 100
	headerFieldID      protowire.Number = 1
)

// requestIDOf reads the id out of an encoded InternalRaftRequest without decoding the rest: field 1 if set, else the id
// in the header. 0 if there is none or the bytes are no message; whoever decodes the entry finds out.
//
// It runs for every committed entry in raft's turn, so it only hops over fields.
func requestIDOf(data []byte) uint64 {
	header := uint64(0)
	for len(data) > 0 {
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return 0
		}
		data = data[n:]
		switch {
		case number == requestFieldID && kind == protowire.VarintType:
			id, n := protowire.ConsumeVarint(data)
			if n < 0 {
				return 0
			}
			if id != 0 {
				return id
			}
			data = data[n:]
		case number == requestFieldHeader && kind == protowire.BytesType:
			body, n := protowire.ConsumeBytes(data)
			if n < 0 {
				return 0
			}
			header = headerIDOf(body)
			data = data[n:]
		default:
			n := protowire.ConsumeFieldValue(number, kind, data)
			if n < 0 {
				return 0
			}
			data = data[n:]
		}
	}
	return header
}

func headerIDOf(data []byte) uint64 {
	for len(data) > 0 {
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return 0
		}
		data = data[n:]
		if number == headerFieldID && kind == protowire.VarintType {
			id, n := protowire.ConsumeVarint(data)
			if n < 0 {
				return 0
			}
			return id
		}
		if n = protowire.ConsumeFieldValue(number, kind, data); n < 0 {
			return 0
		}
		data = data[n:]
	}
	return 0
}
