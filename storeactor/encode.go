package storeactor

import (
	"google.golang.org/protobuf/encoding/protowire"

	"troupe/proto"
)

// Field numbers of the messages that are written by hand here, with their tags. A stored KeyValue is spliced into
// answers as it is, so answers need nothing but tags and lengths around stored bytes. The numbers are api/v3's
// (kv.proto and rpc.proto); a test decodes every one of them with the official types.
const (
	tagKeyValueKey     = 1<<3 | 2
	tagKeyValueCreate  = 2 << 3
	tagKeyValueMod     = 3 << 3
	tagKeyValueVersion = 4 << 3
	tagKeyValueValue   = 5<<3 | 2
	tagKeyValueLease   = 6 << 3

	tagHeader         = 1<<3 | 2 // of every answer
	tagHeaderRevision = 3 << 3

	tagRangeKeyValue = 2<<3 | 2
	tagRangeMore     = 3 << 3
	tagRangeCount    = 4 << 3

	tagPutPrevious = 2<<3 | 2

	tagDeleteDeleted  = 2 << 3
	tagDeletePrevious = 3<<3 | 2

	tagTxnSucceeded = 2 << 3
	tagTxnResponse  = 3<<3 | 2

	tagOpRange  = 1<<3 | 2
	tagOpPut    = 2<<3 | 2
	tagOpDelete = 3<<3 | 2
	tagOpTxn    = 4<<3 | 2

	tagAlarms      = 2<<3 | 2
	tagAlarmMember = 1 << 3
	tagAlarmType   = 2 << 3

	tagLeaseID    = 2 << 3 // LeaseGrantResponse
	tagLeaseTTL   = 3 << 3
	tagAuthOn     = 2 << 3 // AuthStatusResponse
	tagAuthNumber = 3 << 3

	tagLeaseRecordID        = 1 << 3 // leasepb.Lease, the value of the lease bucket
	tagLeaseRecordTTL       = 2 << 3
	tagLeaseRecordRemaining = 3 << 3
)

// keyValue is a decoded mvccpb.KeyValue whose bytes are parts of the encoding.
type keyValue struct {
	key, value  []byte
	create, mod proto.Revision
	version     int64
	lease       proto.LeaseID
}

// sizeVarintField is the encoded size of a field with that value, whose tag is one byte; 0 for zero, which is
// omitted.
func sizeVarintField(v uint64) int {
	if v == 0 {
		return 0
	}
	return 1 + protowire.SizeVarint(v)
}

func appendVarintField(to []byte, tag byte, v uint64) []byte {
	if v == 0 {
		return to
	}
	return protowire.AppendVarint(append(to, tag), v)
}

// sizeBytesField is the encoded size of a field of n bytes, which is not omitted.
func sizeBytesField(n int) int { return 1 + protowire.SizeBytes(n) }

func appendBytesHead(to []byte, tag byte, n int) []byte {
	return protowire.AppendVarint(append(to, tag), uint64(n))
}

// size is the encoded length.
func (kv *keyValue) size() int {
	n := sizeVarintField(uint64(kv.create)) + sizeVarintField(uint64(kv.mod)) +
		sizeVarintField(uint64(kv.version)) + sizeVarintField(uint64(kv.lease))
	if len(kv.key) > 0 {
		n += sizeBytesField(len(kv.key))
	}
	if len(kv.value) > 0 {
		n += sizeBytesField(len(kv.value))
	}
	return n
}

// appendTo appends the encoding: fields in ascending order, zero ones omitted, which is what etcd stores and hashes.
func (kv *keyValue) appendTo(to []byte) []byte {
	if len(kv.key) > 0 {
		to = append(appendBytesHead(to, tagKeyValueKey, len(kv.key)), kv.key...)
	}
	to = appendVarintField(to, tagKeyValueCreate, uint64(kv.create))
	to = appendVarintField(to, tagKeyValueMod, uint64(kv.mod))
	to = appendVarintField(to, tagKeyValueVersion, uint64(kv.version))
	if len(kv.value) > 0 {
		to = append(appendBytesHead(to, tagKeyValueValue, len(kv.value)), kv.value...)
	}
	return appendVarintField(to, tagKeyValueLease, uint64(kv.lease))
}

func (kv *keyValue) encode() []byte { return kv.appendTo(make([]byte, 0, kv.size())) }

// parseKeyValue decodes a KeyValue. ok is false when the bytes are none; unknown fields are skipped.
func parseKeyValue(b []byte) (kv keyValue, ok bool) {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return kv, false
		}
		b = b[n:]
		switch kind {
		case protowire.BytesType:
			v, n := protowire.ConsumeBytes(b)
			if n < 0 {
				return kv, false
			}
			b = b[n:]
			switch number {
			case 1:
				kv.key = v
			case 5:
				kv.value = v
			}
		case protowire.VarintType:
			v, n := protowire.ConsumeVarint(b)
			if n < 0 {
				return kv, false
			}
			b = b[n:]
			kv.setNumber(number, v)
		default:
			n := protowire.ConsumeFieldValue(number, kind, b)
			if n < 0 {
				return kv, false
			}
			b = b[n:]
		}
	}
	return kv, true
}

func (kv *keyValue) setNumber(number protowire.Number, v uint64) {
	switch number {
	case 2:
		kv.create = proto.Revision(v)
	case 3:
		kv.mod = proto.Revision(v)
	case 4:
		kv.version = int64(v)
	case 6:
		kv.lease = proto.LeaseID(v)
	}
}

// encodeTombstone gives what is stored for a deletion, the key alone, and what a watcher gets, with the modification
// revision behind it. Both share one allocation.
func encodeTombstone(key []byte, mod proto.Revision) (stored, event []byte) {
	kv := keyValue{key: key}
	n := kv.size()
	event = kv.appendTo(make([]byte, 0, n+sizeVarintField(uint64(mod))))
	event = appendVarintField(event, tagKeyValueMod, uint64(mod))
	return event[:n:n], event
}

// tombstoneEvent gives what a watcher gets for a stored tombstone.
func tombstoneEvent(stored []byte, mod proto.Revision) []byte {
	event := make([]byte, 0, len(stored)+sizeVarintField(uint64(mod)))
	return appendVarintField(append(event, stored...), tagKeyValueMod, uint64(mod))
}

// encodeLease gives the record of the lease bucket.
func encodeLease(l proto.Lease) []byte {
	b := appendVarintField(nil, tagLeaseRecordID, uint64(l.ID))
	b = appendVarintField(b, tagLeaseRecordTTL, uint64(l.TTL))
	return appendVarintField(b, tagLeaseRecordRemaining, uint64(l.Remaining))
}
