package raftactor

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"path"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	protobuf "google.golang.org/protobuf/proto"

	"troupe/proto"
	"troupe/raftactor/disk"
	"troupe/raftactor/disktest"
)

const readDir = "/member/wal"

var readMeta = LogMeta{Member: 0x8211f1d0f64f3269, Cluster: 0xef37ad9dc622a7c4}

// sampleLog is a log of a few small segments, as files and as what must be read from it.
type sampleLog struct {
	names []string
	files map[string][]byte
	// finalStart and finalEnd are where the last record of the last segment begins and ends.
	finalStart, finalEnd int64
	entries              []*raftpb.Entry
	state                *raftpb.HardState
}

// sampleSegmentBytes is small, so that every bit of a log can be tried.
const sampleSegmentBytes = 1 << 10

func makeSample(t testing.TB) *sampleLog {
	t.Helper()
	d := disktest.New(1)
	d.SetSegmentBytes(sampleSegmentBytes)
	log, err := CreateLog(d, readDir, readMeta)
	if err != nil {
		t.Fatal(err)
	}
	s := &sampleLog{files: map[string][]byte{}}
	for index := uint64(1); index <= 23; index++ {
		data := bytes.Repeat([]byte{byte(index), 0xa5}, int(10+index*7%90))
		if index%10 == 0 {
			data = nil
		}
		entry := logEntry(1+index/15, index, data)
		s.entries = append(s.entries, entry)
		s.state = logState(1+index/15, uint64(readMeta.Member), index-1)
		if err := errors.Join(log.Append(nil, []*raftpb.Entry{entry}), log.Flush()); err != nil {
			t.Fatal(err)
		}
		s.finalStart = log.offset
		if err := errors.Join(log.Append(s.state, nil), log.Sync()); err != nil {
			t.Fatal(err)
		}
		s.finalEnd = log.offset
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	if s.names, err = d.List(readDir); err != nil {
		t.Fatal(err)
	}
	for _, name := range s.names {
		if s.files[name], err = d.ReadFile(path.Join(readDir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if len(s.names) < 4 || s.finalStart > s.finalEnd {
		t.Fatalf("%d segments, the last record from %d to %d", len(s.names), s.finalStart, s.finalEnd)
	}
	return s
}

// disk makes a disk with the sample, one of its files replaced.
func (s *sampleLog) disk(t testing.TB, name string, content []byte) *disktest.Disk {
	t.Helper()
	d := disktest.New(1)
	d.SetSegmentBytes(sampleSegmentBytes)
	if err := d.MakeDir(readDir); err != nil {
		t.Fatal(err)
	}
	for n, c := range s.files {
		if n == name {
			c = content
		}
		if err := d.WriteFile(path.Join(readDir, n), c); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

// isPrefix reports whether r is what some prefix of the sample says.
func (s *sampleLog) isPrefix(r *Recovered) error {
	if r.Meta != readMeta || r.Start.Index != 0 || len(r.Entries) > len(s.entries) {
		return fmt.Errorf("metadata %+v, start %d, %d entries", r.Meta, r.Start.Index, len(r.Entries))
	}
	for i, e := range r.Entries {
		if !protobuf.Equal(e, s.entries[i]) {
			return fmt.Errorf("entry %d is another one", i+1)
		}
	}
	if commit := r.HardState.GetCommit(); commit > uint64(len(r.Entries)) || commit+2 < uint64(len(r.Entries)) {
		return fmt.Errorf("commit %d with %d entries", commit, len(r.Entries))
	}
	return nil
}

// Whatever bit flips in a record that is not the last one: the start is refused, with the place and the reason.
func TestOpenLog_RefusesAnyFlippedBitInANonFinalRecord(t *testing.T) {
	s := makeSample(t)
	for i, name := range s.names {
		end := int64(len(s.files[name]))
		if i == len(s.names)-1 {
			end = s.finalStart
		}
		for bit := range end * 8 {
			content := bytes.Clone(s.files[name])
			content[bit/8] ^= 1 << (bit % 8)
			_, _, err := OpenLog(s.disk(t, name, content), readDir)
			var damage *LogDamage
			if !errors.As(err, &damage) || !errors.Is(err, ErrLogDamaged) || damage.File == "" || damage.Reason == "" {
				t.Fatalf("%s, byte %d, bit %d: %v", name, bit/8, bit%8, err)
			}
		}
	}
}

// A flip in the last record, or in the zeros behind it, is refused or cut off, and never changes what comes before.
func TestOpenLog_NeverMakesUpAnythingFromAFlippedBitAtTheEnd(t *testing.T) {
	s := makeSample(t)
	name := s.names[len(s.names)-1]
	for bit := s.finalStart * 8; bit < int64(len(s.files[name]))*8; bit++ {
		content := bytes.Clone(s.files[name])
		content[bit/8] ^= 1 << (bit % 8)
		log, r, err := OpenLog(s.disk(t, name, content), readDir)
		if errors.Is(err, ErrLogDamaged) {
			continue
		}
		if err != nil {
			t.Fatalf("byte %d: %v", bit/8, err)
		}
		if err := s.isPrefix(r); err != nil {
			t.Fatalf("byte %d: %v", bit/8, err)
		}
		if bit >= s.finalEnd*8 && len(r.Entries) != len(s.entries) {
			t.Fatalf("byte %d is behind the last record, yet entries are gone", bit/8)
		}
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// However short the last segment is: a prefix, or a refusal when not even its head is there. A log that is shorter
// than the file's index is refused at the start.
func TestOpenLog_ReadsAnyShorterLastSegment(t *testing.T) {
	s := makeSample(t)
	name := s.names[len(s.names)-1]
	for size := range s.finalEnd {
		log, r, err := OpenLog(s.disk(t, name, s.files[name][:size]), readDir)
		if errors.Is(err, ErrLogDamaged) && size < 64 {
			continue // the head is two records
		}
		if err != nil {
			t.Fatalf("size %d: %v", size, err)
		}
		if err := s.isPrefix(r); err != nil {
			t.Fatalf("size %d: %v", size, err)
		}
		if err := checkRecovered(r, r.Last(), testMembership(1)); err != nil {
			t.Fatalf("size %d: %v", size, err)
		}
		if err := checkRecovered(r, r.Last()+1, testMembership(1)); !errors.Is(err, ErrFileAheadOfLog) {
			t.Fatalf("size %d: the file is ahead, and it says %v", size, err)
		}
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A segment in the middle that is shorter, or missing, is not a torn tail.
func TestOpenLog_RefusesAShorterSegmentInTheMiddle(t *testing.T) {
	s := makeSample(t)
	name := s.names[1]
	for size := range int64(len(s.files[name])) {
		if _, _, err := OpenLog(s.disk(t, name, s.files[name][:size]), readDir); !errors.Is(err, ErrLogDamaged) {
			t.Fatalf("size %d: %v", size, err)
		}
	}
	d := s.disk(t, "", nil)
	if err := d.Remove(path.Join(readDir, name)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := OpenLog(d, readDir); !errors.Is(err, ErrLogDamaged) {
		t.Fatalf("without a segment: %v", err)
	}
}

// A torn tail is copied, cut off and zeroed, and the log goes on behind the last good record.
func TestOpenLog_RepairsATornTail(t *testing.T) {
	s := makeSample(t)
	name := s.names[len(s.names)-1]
	content := bytes.Clone(s.files[name])
	torn := s.finalEnd - s.finalEnd%sectorBytes + sectorBytes
	// A record of more than a sector whose second part never arrived.
	var e recordEncoder
	e.entry(logEntry(9, 24, bytes.Repeat([]byte{7}, 3*sectorBytes)))
	copy(content[s.finalEnd:torn], e.buf)
	d := s.disk(t, name, content)
	log, r, err := OpenLog(d, readDir)
	if err != nil {
		t.Fatal(err)
	}
	if !r.Repaired || len(r.Entries) != len(s.entries) {
		t.Errorf("repaired %v, %d entries", r.Repaired, len(r.Entries))
	}
	kept, err := d.ReadFile(path.Join(readDir, name+brokenSuffix))
	if err != nil || !bytes.Equal(kept, content) {
		t.Errorf("the copy of the torn segment differs (%v)", err)
	}
	fixed, err := d.ReadFile(path.Join(readDir, name))
	if err != nil || !bytes.Equal(fixed, s.files[name]) {
		t.Errorf("the segment is not what it was before the torn write (%v)", err)
	}
	if err := log.Append(nil, []*raftpb.Entry{logEntry(9, 24, []byte("next"))}); err != nil {
		t.Fatal(err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	log, r, err = OpenLog(d, readDir)
	if err != nil || r.Repaired || r.Last() != 24 {
		t.Fatalf("after the repair: %v, %+v", err, r)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestOpenLog_RefusesWhatNoWriterWrites(t *testing.T) {
	conf := &raftpb.ConfState{Voters: []uint64{1}}
	entry := func(term, index uint64) func(*recordEncoder) {
		return func(e *recordEncoder) { e.entry(logEntry(term, index, []byte("x"))) }
	}
	state := func(term, commit uint64) func(*recordEncoder) {
		return func(e *recordEncoder) { e.hardState(term, 1, commit) }
	}
	snapshot := func(index proto.Index) func(*recordEncoder) {
		return func(e *recordEncoder) { _ = e.snapshot(SnapshotRecord{Index: index, Term: 1, ConfState: conf}) }
	}
	for _, test := range []struct {
		name    string
		records []func(*recordEncoder)
		reason  string
	}{
		{"a gap between entries", []func(*recordEncoder){snapshot(0), entry(1, 1), entry(1, 3)}, "does not follow"},
		{"a commit index beyond the last entry",
			[]func(*recordEncoder){snapshot(0), entry(1, 1), state(1, 2)}, "beyond the last entry"},
		{"no start record", []func(*recordEncoder){entry(1, 1), state(1, 1)}, "no snapshot record"},
		{"only a start record that never became valid, and entries behind it",
			[]func(*recordEncoder){snapshot(5), entry(1, 6)}, "no snapshot record"},
		{"an entry over a committed one",
			[]func(*recordEncoder){snapshot(0), entry(1, 1), state(1, 1), entry(2, 1)}, "committed"},
		{"a term that goes back", []func(*recordEncoder){snapshot(0), entry(2, 1), entry(1, 2)}, "term is lower"},
		{"a hard state that goes back",
			[]func(*recordEncoder){snapshot(0), entry(1, 1), state(2, 1), state(1, 1)}, "goes back"},
		{"a snapshot record without configuration", []func(*recordEncoder){snapshot(0), entry(1, 1), state(1, 1),
			func(e *recordEncoder) { _ = e.snapshot(SnapshotRecord{Index: 1, Term: 1}) }}, "configuration"},
		{"an unknown record", []func(*recordEncoder){snapshot(0), func(e *recordEncoder) { e.record(7, nil) }}, "unknown"},
		{"a checksum record in the middle",
			[]func(*recordEncoder){snapshot(0), func(e *recordEncoder) { e.chain() }}, "place"},
		{"metadata of another member", []func(*recordEncoder){snapshot(0),
			func(e *recordEncoder) { e.record(recordMetadata, LogMeta{Member: 9}.encode()) }}, "place"},
		{"an entry that cannot be decoded", []func(*recordEncoder){snapshot(0),
			func(e *recordEncoder) { e.record(recordEntry, []byte{0xff}) }}, "entry"},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := disktest.New(1)
			if err := d.MakeDir(readDir); err != nil {
				t.Fatal(err)
			}
			var e recordEncoder
			e.chain()
			e.record(recordMetadata, readMeta.encode())
			for _, add := range test.records {
				add(&e)
			}
			first := segment{}
			if err := d.WriteFile(path.Join(readDir, first.name()), append(e.buf, make([]byte, 4096)...)); err != nil {
				t.Fatal(err)
			}
			_, _, err := OpenLog(d, readDir)
			if !errors.Is(err, ErrLogDamaged) || !strings.Contains(err.Error(), test.reason) {
				t.Errorf("got %v, want %q", err, test.reason)
			}
		})
	}
}

func TestOpenLog_TellsApartMissingAndLocked(t *testing.T) {
	d := disktest.New(1)
	if _, _, err := OpenLog(d, readDir); !errors.Is(err, ErrLogMissing) {
		t.Errorf("no directory: %v", err)
	}
	log, err := CreateLog(d, readDir, readMeta)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := OpenLog(d, readDir); !errors.Is(err, ErrLogLocked) {
		t.Errorf("in use: %v", err)
	}
	if _, err := CreateLog(d, readDir, readMeta); !errors.Is(err, ErrLogExists) {
		t.Errorf("created twice: %v", err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	if err := d.WriteFile("/member/lost+found", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := CreateLog(d, "/member", readMeta); !errors.Is(err, ErrLogDirNotEmpty) {
		t.Errorf("foreign files: %v", err)
	}
}

// The lock of a real file keeps out a second open file, whoever has it.
func TestOSDisk_LocksSegments(t *testing.T) {
	dir := path.Join(t.TempDir(), "a", "wal")
	log, err := CreateLog(OSDisk(), dir, readMeta)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := OpenLog(OSDisk(), dir); !errors.Is(err, ErrLogLocked) {
		t.Errorf("in use: %v", err)
	}
	size, err := log.tail().file.Size()
	if err != nil || size != segmentBytes {
		t.Errorf("the segment has %d bytes (%v)", size, err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	log, r, err := OpenLog(OSDisk(), dir)
	if err != nil || r.Repaired || r.Last() != 0 {
		t.Fatalf("%v, %+v", err, r)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
}

// FuzzOpenLog: any prefix of the last segment and any flipped bits. The result is a prefix of what was written or a
// refusal, and never a panic.
func FuzzOpenLog(f *testing.F) {
	s := makeSample(f)
	name := s.names[len(s.names)-1]
	f.Add(uint16(s.finalEnd), []byte{})
	f.Add(uint16(100), []byte{1, 0, 0})
	f.Add(uint16(1024), binary.LittleEndian.AppendUint32(nil, uint32(s.finalStart)*8))
	f.Fuzz(func(t *testing.T, size uint16, flips []byte) {
		content := bytes.Clone(s.files[name])
		content = content[:min(int(size), len(content))]
		for ; len(flips) >= 3 && len(content) > 0; flips = flips[3:] {
			bit := (int(flips[0]) | int(flips[1])<<8 | int(flips[2])<<16) % (len(content) * 8)
			content[bit/8] ^= 1 << (bit % 8)
		}
		d := s.disk(t, name, content)
		log, r, err := OpenLog(d, readDir)
		if err != nil {
			if !errors.Is(err, ErrLogDamaged) {
				t.Fatal(err)
			}
			return
		}
		if err := s.isPrefix(r); err != nil {
			t.Fatal(err)
		}
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
		again, r2, err := OpenLog(d, readDir)
		if err != nil || r2.Repaired || r2.Last() != r.Last() {
			t.Fatalf("a second start reads something else: %v", err)
		}
		if err := again.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// A full disk and a failed sync end the log: the error comes back from every later call, and what was synced stays.
func TestLog_FailsForEverAfterADiskError(t *testing.T) {
	for _, test := range []struct {
		name string
		harm func(*disktest.Disk)
	}{
		{"the disk is full", func(d *disktest.Disk) { d.SetSpace(100) }},
		{"an append's sync fails", func(d *disktest.Disk) { d.FailSync(disk.Append, d.Syncs(disk.Append)+1) }},
		{"the old segment's sync fails", func(d *disktest.Disk) { d.FailSync(disk.CutTail, 1) }},
		{"the new segment's sync fails", func(d *disktest.Disk) { d.FailSync(disk.CutNew, 1) }},
		{"the directory's sync fails", func(d *disktest.Disk) { d.FailSync(disk.CutDir, 1) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := disktest.New(1)
			log, err := CreateLog(d, readDir, readMeta)
			if err != nil {
				t.Fatal(err)
			}
			grow := func(index uint64) error {
				if err := log.Append(nil, []*raftpb.Entry{logEntry(1, index, bytes.Repeat([]byte{1}, 1000))}); err != nil {
					return err
				}
				return log.Sync()
			}
			index := uint64(1)
			for ; index < 4; index++ {
				if err := grow(index); err != nil {
					t.Fatal(err)
				}
			}
			test.harm(d)
			for ; err == nil && index < 100; index++ {
				err = grow(index)
			}
			if err == nil {
				t.Fatal("no error came")
			}
			if again := log.Sync(); !errors.Is(again, err) {
				t.Errorf("afterwards %v, before %v", again, err)
			}
			if again := log.Append(nil, nil); !errors.Is(again, err) {
				t.Errorf("afterwards %v, before %v", again, err)
			}
			_ = log.Close()
			d.Crash(3)
			d.SetSpace(-1)
			_, r, err := OpenLog(d, readDir)
			if err != nil {
				t.Fatal(err)
			}
			if r.Last() < 3 {
				t.Errorf("synced entries are gone: last is %d", r.Last())
			}
		})
	}
}
