package storeactor

import (
	"encoding/binary"

	"google.golang.org/protobuf/encoding/protowire"

	"troupe/proto"
)

// Layout of a key of the key bucket: 8 bytes main, `_`, 8 bytes sub, big endian; a `t` behind marks a tombstone.
const (
	revisionKeyBytes  = 17
	tombstoneKeyBytes = 18
	tombstoneMark     = 't'
)

// appendVersionKey appends the key of a version, without the mark of a tombstone.
func appendVersionKey(to []byte, v proto.Version) []byte {
	to = binary.BigEndian.AppendUint64(to, uint64(v.Main))
	to = append(to, '_')
	return binary.BigEndian.AppendUint64(to, uint64(v.Sub))
}

// parseVersionKey reads a key of the key bucket; ok is false when it is none.
func parseVersionKey(key []byte) (v proto.Version, tombstone, ok bool) {
	switch {
	case len(key) == revisionKeyBytes:
	case len(key) == tombstoneKeyBytes && key[revisionKeyBytes] == tombstoneMark:
		tombstone = true
	default:
		return proto.Version{}, false, false
	}
	if key[8] != '_' {
		return proto.Version{}, false, false
	}
	v.Main = proto.Revision(binary.BigEndian.Uint64(key))
	v.Sub = proto.SubRevision(binary.BigEndian.Uint64(key[9:]))
	return v, tombstone, true
}

// keyOfRecord gives the key of the key space out of an encoded mvccpb.KeyValue (its field 1), as a part of the record;
// nil for the empty record that etcdutl's --bump-revision leaves, and for one that cannot be read.
func keyOfRecord(record []byte) []byte {
	for len(record) > 0 {
		number, kind, n := protowire.ConsumeTag(record)
		if n < 0 {
			return nil
		}
		if number == 1 && kind == protowire.BytesType {
			key, size := protowire.ConsumeBytes(record[n:])
			if size < 0 {
				return nil
			}
			return key
		}
		size := protowire.ConsumeFieldValue(number, kind, record[n:])
		if size < 0 {
			return nil
		}
		record = record[n+size:]
	}
	return nil
}
