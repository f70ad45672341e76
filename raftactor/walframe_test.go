package raftactor

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"math/rand/v2"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	protobuf "google.golang.org/protobuf/proto"

	"troupe/proto"
)

// What is encoded by hand is what the generated code makes of the same values.
func TestRecordEncoder_WritesWhatTheGeneratedCodeWrites(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var e recordEncoder
	sum := uint32(0)
	for size := range 600 {
		entry := logEntry(random.Uint64()>>random.IntN(64), random.Uint64()>>random.IntN(64), make([]byte, size))
		if size%3 == 0 {
			kind := raftpb.EntryConfChange
			entry.Type = &kind
		}
		if size == 0 {
			entry.Data = nil
		}
		e.buf = e.buf[:0]
		e.entry(entry)
		data, err := protobuf.Marshal(entry)
		if err != nil {
			t.Fatal(err)
		}
		sum = crc32.Update(sum, crcTable, data)
		record, err := protobuf.Marshal(&proto.WALRecord{Type: protobuf.Int64(int64(recordEntry)), Crc: &sum, Data: data})
		if err != nil {
			t.Fatal(err)
		}
		checkFrame(t, e.buf, record)
		decoded, err := decodeEntry(data)
		if entry.GetIndex() != 0 && entry.GetTerm() != 0 && (size != 0 || entry.Type == nil) {
			if err != nil || !protobuf.Equal(decoded, entry) {
				t.Fatalf("decoded %v (%v)", decoded, err)
			}
		}
	}
}

func TestRecordEncoder_WritesSmallRecordsLikeTheGeneratedCode(t *testing.T) {
	conf := &raftpb.ConfState{Voters: []uint64{1, 2}, Learners: []uint64{3}}
	encodedConf, err := protobuf.Marshal(conf)
	if err != nil {
		t.Fatal(err)
	}
	var e recordEncoder
	for _, test := range []struct {
		kind   recordType
		encode func() error
		data   protobuf.Message
	}{
		{recordMetadata, func() error { e.record(recordMetadata, LogMeta{Member: 1 << 63, Cluster: 5}.encode()); return nil },
			&proto.WALMetadata{NodeId: protobuf.Uint64(1 << 63), ClusterId: protobuf.Uint64(5)}},
		{recordState, func() error { e.hardState(7, 0, 300); return nil }, logState(7, 0, 300)},
		{recordSnapshot, func() error { return e.snapshot(SnapshotRecord{Index: 9, Term: 2, ConfState: conf}) },
			&proto.WALSnapshot{Index: protobuf.Uint64(9), Term: protobuf.Uint64(2), ConfState: encodedConf}},
		{recordSnapshot, func() error { return e.snapshot(SnapshotRecord{}) },
			&proto.WALSnapshot{Index: protobuf.Uint64(0), Term: protobuf.Uint64(0)}},
	} {
		e.buf = e.buf[:0]
		before := e.crc
		if err := test.encode(); err != nil {
			t.Fatal(err)
		}
		data, err := protobuf.Marshal(test.data)
		if err != nil {
			t.Fatal(err)
		}
		sum := crc32.Update(before, crcTable, data)
		record, err := protobuf.Marshal(&proto.WALRecord{Type: protobuf.Int64(int64(test.kind)), Crc: &sum, Data: data})
		if err != nil {
			t.Fatal(err)
		}
		checkFrame(t, e.buf, record)
	}
}

// checkFrame compares a frame with the record it should hold.
func checkFrame(t *testing.T, frame, record []byte) {
	t.Helper()
	size, pad, err := frameSizes(binary.LittleEndian.Uint64(frame))
	if err != nil || len(frame)%frameAlignment != 0 || int(frameWordBytes+size+pad) != len(frame) {
		t.Fatalf("frame of %d bytes with size %d, padding %d (%v)", len(frame), size, pad, err)
	}
	if !bytes.Equal(frame[frameWordBytes:frameWordBytes+size], record) {
		t.Fatalf("the record is\n%x, want\n%x", frame[frameWordBytes:], record)
	}
	if _, err := parseRecord(frame[frameWordBytes:], size); err != nil {
		t.Fatal(err)
	}
}

// The head of a segment, as etcd 3.7.3 wrote it: checksum, metadata, first snapshot record.
func TestRecordEncoder_WritesTheHeadThatEtcdWrote(t *testing.T) {
	want := []byte("" +
		"\x04\x00\x00\x00\x00\x00\x00\x84\x08\x04\x10\x00\x00\x00\x00\x00" +
		"\x1f\x00\x00\x00\x00\x00\x00\x81\x08\x01\x10\xc0\xee\xe0\x5a\x1a" +
		"\x16\x08\x8d\xf2\xf4\x8e\xc1\xf7\xa6\xd7\xbd\x01\x10\xaa\xf4\xe5" +
		"\xf5\x99\xf3\xeb\xe7\xd1\x01\x00\x0d\x00\x00\x00\x00\x00\x00\x83" +
		"\x08\x05\x10\xb6\xf7\xe4\x58\x1a\x04\x08\x00\x10\x00\x00\x00\x00")
	var e recordEncoder
	e.chain()
	e.record(recordMetadata, LogMeta{Member: 0xbdae9bbc11dd390d, Cluster: 0xd1cfaf999eb97a2a}.encode())
	if err := e.snapshot(SnapshotRecord{}); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(e.buf, want) {
		t.Errorf("got\n%x, want\n%x", e.buf, want)
	}
}

func TestSegmentNames(t *testing.T) {
	s := segment{number: 10, first: 0xabcdef}
	if s.name() != "000000000000000a-0000000000abcdef.wal" {
		t.Error(s.name())
	}
	if back, ok := parseSegmentName(s.name()); !ok || back != s {
		t.Errorf("%+v, %v", back, ok)
	}
	for _, name := range []string{
		"0.tmp", "a-b.wal", ".wal", s.name() + brokenSuffix, "000000000000000A-0000000000abcdef.wal",
	} {
		if _, ok := parseSegmentName(name); ok {
			t.Errorf("%q passes for a segment", name)
		}
	}
}

// Appending to the buffer allocates nothing once the buffer has grown.
func TestRecordEncoder_DoesNotAllocate(t *testing.T) {
	var e recordEncoder
	entry := logEntry(5, 1000, make([]byte, 300))
	e.buf = make([]byte, 0, 4096)
	if n := testing.AllocsPerRun(100, func() {
		e.buf = e.buf[:0]
		e.entry(entry)
		e.hardState(5, 1, 999)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkRecordEncoder_Entry(b *testing.B) {
	var e recordEncoder
	entry := logEntry(5, 1000, make([]byte, 300))
	b.ReportAllocs()
	b.SetBytes(int64(len(entry.Data)))
	for b.Loop() {
		e.buf = e.buf[:0]
		e.entry(entry)
	}
}
