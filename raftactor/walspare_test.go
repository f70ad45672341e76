package raftactor

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"path"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"troupe/raftactor/disk"
	"troupe/raftactor/disktest"
)

// spareLog makes a log whose spares come from the test.
func spareLog(t *testing.T, segment int64) (*disktest.Disk, *Log) {
	t.Helper()
	d := disktest.New(1)
	d.SetSegmentBytes(segment)
	log, err := CreateLog(d, readDir, readMeta)
	if err != nil {
		t.Fatal(err)
	}
	log.supplied = true
	return d, log
}

// supplySpare gives the log its next segment.
func supplySpare(t *testing.T, d *disktest.Disk, log *Log) {
	t.Helper()
	file, err := prepareSegment(d, log.sparePath(), log.segmentBytes)
	if err != nil {
		t.Fatal(err)
	}
	log.takeSpare(file)
}

// What room promises is kept on a disk without a free byte, however the bytes are cut into appends and entries, to the
// last one. Only what is longer than promised may fail.
func TestLogRoom_WhatItPromisesFitsOnAFullDisk(t *testing.T) {
	for seed := range uint64(2000) {
		random := rand.New(rand.NewPCG(seed, 3))
		d, log := spareLog(t, 4096<<random.IntN(3))
		index := uint64(0)
		write := func(size, entries int, state bool) {
			var batch []*raftpb.Entry
			for range entries {
				index++
				batch = append(batch, logEntry(1, index, bytes.Repeat([]byte{1}, size)))
			}
			var hs *raftpb.HardState
			if state {
				hs = logState(1<<63, 1<<63, index)
			}
			err := log.Append(hs, batch)
			if err == nil {
				err = log.Sync()
			}
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
		write(random.IntN(2000), 1, random.IntN(2) == 0)
		if random.IntN(3) > 0 {
			supplySpare(t, d, log)
		}
		d.SetSpace(0)
		for left := log.room(true).bytes; ; {
			size, entries, state := random.IntN(int(left)+1), random.IntN(3), random.IntN(2) == 0
			cost := int64(entries*(size+entryOverheadBytes)) + entryOverheadBytes
			if cost > left {
				if left < 4*entryOverheadBytes && random.IntN(8) == 0 {
					break
				}
				continue
			}
			write(size, entries, state)
			left -= cost
			if now := log.room(true).bytes; now < left {
				t.Fatalf("seed %d: %d bytes were left, %d are", seed, left, now)
			}
		}
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
		_, r, err := OpenLog(d, readDir)
		if err != nil || uint64(r.Last()) != index {
			t.Fatalf("seed %d: reopened to %d of %d, %v", seed, r.Last(), index, err)
		}
	}
}

// The bound that an entry counts as is not less than what its record takes.
func TestEntryBytes_IsNotLessThanTheFrame(t *testing.T) {
	for _, size := range []int{0, 1, 7, 127, 128, 1 << 14, 1 << 21, 1 << 22} {
		var e recordEncoder
		e.crc = 1<<32 - 1
		entry := &raftpb.Entry{
			Type: raftpb.EntryConfChange.Enum(), Term: new(uint64(1<<64 - 1)), Index: new(uint64(1<<64 - 1)),
			Data: make([]byte, size),
		}
		e.entry(entry)
		if got := uint64(len(e.buf)); got > entryBytes(entry) {
			t.Errorf("%d bytes of data take %d, counted as %d", size, got, entryBytes(entry))
		}
	}
	var e recordEncoder
	e.hardState(1<<64-1, 1<<64-1, 1<<64-1)
	if len(e.buf) > entryOverheadBytes {
		t.Errorf("a hard state takes %d bytes", len(e.buf))
	}
}

// The head of a segment, and what is kept for raft, are within their bounds.
func TestLog_HeadAndReserveAreWithinTheirBounds(t *testing.T) {
	d, log := spareLog(t, segmentBytes)
	log.meta = LogMeta{Member: 1<<64 - 1, Cluster: 1<<64 - 1}.encode()
	log.encoder.crc = 1<<32 - 1
	if err := log.Append(logState(1<<64-1, 1<<64-1, 0), nil); err != nil {
		t.Fatal(err)
	}
	if err := log.Sync(); err != nil {
		t.Fatal(err)
	}
	supplySpare(t, d, log)
	if err := log.cut(); err != nil {
		t.Fatal(err)
	}
	if log.offset > segmentHeadBytesMax {
		t.Errorf("the head takes %d bytes", log.offset)
	}
	room := log.room(true)
	if starts := room.kept(useOwn) / (4 * entryOverheadBytes); starts < 2000 {
		t.Errorf("the last part of the reserve is enough for %d starts", starts)
	}
	if room.kept(useClient) <= room.kept(useFreeing) || room.kept(useFreeing) <= room.kept(useOwn) {
		t.Errorf("the parts of the reserve are not in order: %+v", room)
	}
}

// At most one spare is made, and a clean stop leaves none; what a killed process leaves is gone after the next start.
func TestLog_SparesDoNotPileUp(t *testing.T) {
	d, log := spareLog(t, 4096)
	if log.wantsSpare() {
		t.Error("a fresh segment asks for the next one")
	}
	if err := log.Append(nil, []*raftpb.Entry{logEntry(1, 1, make([]byte, 1500))}); err != nil {
		t.Fatal(err)
	}
	if err := log.Sync(); err != nil {
		t.Fatal(err)
	}
	if !log.wantsSpare() {
		t.Error("no spare is wanted a third into the segment")
	}
	supplySpare(t, d, log)
	if log.wantsSpare() {
		t.Error("a second spare is wanted")
	}
	d.Kill()
	log, _, err := OpenLog(d, readDir)
	if err != nil {
		t.Fatal(err)
	}
	if names, _ := d.List(readDir); len(names) != 1 {
		t.Errorf("after a kill and a start there are %v", names)
	}
	supplySpare(t, d, log)
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	if names, _ := d.List(readDir); len(names) != 1 {
		t.Errorf("after a clean stop there are %v", names)
	}
}

// A start needs no space while the last segment has its own; without any it is refused in words that say what to do.
func TestLog_StartsOnAFullDiskIfTheLastSegmentHasRoom(t *testing.T) {
	for _, test := range []struct {
		name     string
		cut      bool
		space    int64
		refused  bool
		reserved int64
	}{
		{name: "the segment has its space", space: 0, reserved: 64 << 10},
		{name: "it was cut off, and there is some", cut: true, space: 8 << 10, reserved: 4 << 10},
		{name: "it was cut off, and there is none", cut: true, space: 1 << 10, refused: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			d, log := spareLog(t, 64<<10)
			end := log.offset
			name := path.Join(readDir, log.tail().name())
			d.Kill()
			if test.cut {
				content, err := d.ReadFile(name)
				if err != nil {
					t.Fatal(err)
				}
				if err := d.WriteFile(name, content[:end]); err != nil {
					t.Fatal(err)
				}
			}
			d.SetSpace(test.space)
			log, _, err := OpenLog(d, readDir)
			if test.refused {
				if !errors.Is(err, ErrNoSpace) || !disk.Full(err) || !strings.Contains(err.Error(), readDir) {
					t.Errorf("got %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if log.reserved < test.reserved {
				t.Errorf("%d bytes are reserved", log.reserved)
			}
		})
	}
}
