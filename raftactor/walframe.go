package raftactor

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"troupe/proto"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/encoding/protowire"
	protobuf "google.golang.org/protobuf/proto"
)

// A frame of the log is a length word, a record, and padding to 8 bytes. The word is little endian: its low 56 bits
// are the size of the record, its top byte is 0, or 0x80 plus the number of padding bytes. A record is a WALRecord of
// proto/wal.proto: type, checksum, data, always in this order. The checksum is CRC32-C over the data of all records so
// far, through all segments. The format is etcd's.

// recordType is the type field of a record; the numbers are those of wal.proto.
type recordType uint64

const (
	recordMetadata = recordType(proto.WALRecordType_WAL_RECORD_METADATA)
	recordEntry    = recordType(proto.WALRecordType_WAL_RECORD_ENTRY)
	recordState    = recordType(proto.WALRecordType_WAL_RECORD_STATE)
	recordCRC      = recordType(proto.WALRecordType_WAL_RECORD_CRC)
	recordSnapshot = recordType(proto.WALRecordType_WAL_RECORD_SNAPSHOT)
)

// String gives the type's name for messages.
func (t recordType) String() string {
	switch t {
	case recordMetadata:
		return "metadata"
	case recordEntry:
		return "entry"
	case recordState:
		return "hard state"
	case recordCRC:
		return "checksum"
	case recordSnapshot:
		return "snapshot"
	}
	return fmt.Sprintf("unknown (%d)", uint64(t))
}

const (
	frameWordBytes  = 8
	frameAlignment  = 8
	framePadMark    = 0x80
	frameSizeMask   = 1<<56 - 1
	recordHeaderMax = 24 // type 2, checksum 6, data tag 1, data length up to 10, rounded up
	entryHeaderMax  = 48 // type, term, index and the data's tag and length, each at its longest
	recordTagType   = 1<<3 | byte(protowire.VarintType)
	recordTagCRC    = 2<<3 | byte(protowire.VarintType)
	recordTagData   = 3<<3 | byte(protowire.BytesType)
	recordTypeMax   = 0x7f // so that the type is one varint byte
)

// crcTable is Castagnoli's polynomial: the one processors have an instruction for.
var crcTable = crc32.MakeTable(crc32.Castagnoli)

// recordEncoder appends frames to one buffer that is used again and again. Each byte of an entry's data is copied once
// and summed once; nothing else is allocated.
type recordEncoder struct {
	buf []byte
	crc uint32
	// scratch is for what is summed before it can be appended; on the stack it would escape into the checksum's code.
	scratch [entryHeaderMax]byte
}

// begin appends the length word and the record's header for data of that many bytes, and gives what end needs. crc
// must already include the data. size < 0 means a record without data.
func (e *recordEncoder) begin(t recordType, size int) (pad int) {
	record := 2 + 1 + protowire.SizeVarint(uint64(e.crc))
	if size >= 0 {
		record += 1 + protowire.SizeBytes(size)
	}
	pad = -record & (frameAlignment - 1)
	word := uint64(record)
	if pad != 0 {
		word |= uint64(framePadMark|pad) << 56
	}
	e.buf = binary.LittleEndian.AppendUint64(e.buf, word)
	e.buf = append(e.buf, recordTagType, byte(t), recordTagCRC)
	e.buf = protowire.AppendVarint(e.buf, uint64(e.crc))
	if size >= 0 {
		e.buf = append(e.buf, recordTagData)
		e.buf = protowire.AppendVarint(e.buf, uint64(size))
	}
	return pad
}

// end appends the padding.
func (e *recordEncoder) end(pad int) {
	var zeros [frameAlignment]byte
	e.buf = append(e.buf, zeros[:pad]...)
}

// record appends a record with small data.
func (e *recordEncoder) record(t recordType, data []byte) {
	e.crc = crc32.Update(e.crc, crcTable, data)
	pad := e.begin(t, len(data))
	e.buf = append(e.buf, data...)
	e.end(pad)
}

// chain appends the checksum record that opens a segment.
func (e *recordEncoder) chain() { e.end(e.begin(recordCRC, -1)) }

// entry appends an entry. Its fields go out as they are set: a writer of 3.7 leaves out the type of a normal entry,
// one of 3.6 writes it.
func (e *recordEncoder) entry(entry *raftpb.Entry) {
	head := e.scratch[:0]
	if entry.Type != nil {
		head = append(head, 1<<3|byte(protowire.VarintType))
		head = protowire.AppendVarint(head, uint64(*entry.Type))
	}
	if entry.Term != nil {
		head = append(head, 2<<3|byte(protowire.VarintType))
		head = protowire.AppendVarint(head, *entry.Term)
	}
	if entry.Index != nil {
		head = append(head, 3<<3|byte(protowire.VarintType))
		head = protowire.AppendVarint(head, *entry.Index)
	}
	if entry.Data != nil {
		head = append(head, 4<<3|byte(protowire.BytesType))
		head = protowire.AppendVarint(head, uint64(len(entry.Data)))
	}
	e.crc = crc32.Update(e.crc, crcTable, head)
	e.crc = crc32.Update(e.crc, crcTable, entry.Data)
	pad := e.begin(recordEntry, len(head)+len(entry.Data))
	e.buf = append(e.buf, head...)
	e.buf = append(e.buf, entry.Data...)
	e.end(pad)
}

// hardState appends a hard state, all three fields written as etcd does.
func (e *recordEncoder) hardState(term, vote, commit uint64) {
	e.record(recordState, appendUints(e.scratch[:0], term, vote, commit))
}

// snapshot appends a snapshot record. The configuration is left out when there is none, as in a fresh log.
func (e *recordEncoder) snapshot(r SnapshotRecord) error {
	data := appendUints(nil, uint64(r.Index), uint64(r.Term))
	if r.ConfState != nil {
		conf, err := protobuf.Marshal(r.ConfState)
		if err != nil {
			return fmt.Errorf("encode configuration: %w", err)
		}
		data = protowire.AppendTag(data, 3, protowire.BytesType)
		data = protowire.AppendBytes(data, conf)
	}
	e.record(recordSnapshot, data)
	return nil
}

// encode makes the data of the metadata record.
func (m LogMeta) encode() []byte {
	return appendUints(nil, uint64(m.Member), uint64(m.Cluster))
}

// appendUints appends the values as varint fields numbered from 1.
func appendUints(b []byte, values ...uint64) []byte {
	for i, v := range values {
		b = append(b, byte(i+1)<<3|byte(protowire.VarintType))
		b = protowire.AppendVarint(b, v)
	}
	return b
}

// Errors of decoding; they become the reason of a LogDamage.
var (
	errFrameWord    = errors.New("the length word is not one that a writer makes")
	errRecordHeader = errors.New("the record's header is damaged")
	errRecordLength = errors.New("the record's length and the length of its data disagree")
	errChecksum     = errors.New("the checksum does not match")
)

// frameSizes splits a length word into the sizes of record and padding, in bytes. Every bit of the word is checked: a
// writer has no choice in it.
func frameSizes(word uint64) (record int64, pad int64, err error) {
	record = int64(word & frameSizeMask)
	pad = -record & (frameAlignment - 1)
	top := byte(word >> 56)
	if pad == 0 && top != 0 || pad != 0 && top != framePadMark|byte(pad) {
		return 0, 0, errFrameWord
	}
	if record == 0 || record > recordBytesMax {
		return 0, 0, errFrameWord
	}
	return record, pad, nil
}

// rawRecord is a record before its data is understood.
type rawRecord struct {
	kind    recordType
	crc     uint32
	whole   []byte // the record without padding; aliases the frame
	data    []byte // likewise
	hasData bool
}

// parseHeader reads the header of a record of size bytes from what is there of it. It is strict: the fields come in
// one order, and the length of the data must be what is left. This redundancy tells a flipped bit in the length word
// from a record that was torn.
func parseHeader(b []byte, size int64) (r rawRecord, header int, err error) {
	if len(b) < 4 || b[0] != recordTagType || b[1] > recordTypeMax || b[2] != recordTagCRC {
		return r, 0, errRecordHeader
	}
	r.kind = recordType(b[1])
	crc, n := protowire.ConsumeVarint(b[3:])
	if n < 0 || crc > 1<<32-1 || n != protowire.SizeVarint(crc) {
		return r, 0, errRecordHeader
	}
	r.crc = uint32(crc)
	header = 3 + n
	if int64(header) == size {
		return r, header, nil
	}
	if len(b) <= header || b[header] != recordTagData {
		return r, 0, errRecordHeader
	}
	length, n := protowire.ConsumeVarint(b[header+1:])
	if n < 0 || n != protowire.SizeVarint(length) {
		return r, 0, errRecordHeader
	}
	header += 1 + n
	if length != uint64(size-int64(header)) {
		return r, 0, errRecordLength
	}
	r.hasData = true
	return r, header, nil
}

// parseRecord splits a whole record and checks its padding. It does not check the sum.
func parseRecord(frame []byte, size int64) (rawRecord, error) {
	r, header, err := parseHeader(frame[:min(size, recordHeaderMax)], size)
	if err != nil {
		return r, err
	}
	r.whole = frame[:size]
	if r.hasData {
		r.data = frame[header:size]
	}
	for _, b := range frame[size:] {
		if b != 0 {
			return r, errRecordHeader
		}
	}
	return r, nil
}
