package raftactor

import (
	"bytes"
	"errors"
	"path"
	"slices"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	protobuf "google.golang.org/protobuf/proto"

	"troupe/proto"
	"troupe/raftactor/disk"
	"troupe/raftactor/disktest"
)

func testSnapshot(term proto.Term, index proto.Index) *raftpb.Snapshot {
	s := walSnapshot{
		record: SnapshotRecord{Index: index, Term: term, ConfState: &raftpb.ConfState{Voters: []uint64{1, 2, 3}}},
		data:   snapData(index),
	}
	return s.file()
}

func newSnapDisk(t *testing.T) *disktest.Disk {
	t.Helper()
	d := disktest.New(1)
	if err := d.MakeDir(crashSnapDir); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestSnapFiles_TheNewestWholeOneIsLoadedAndBrokenOnesAreSetAside(t *testing.T) {
	d := newSnapDisk(t)
	if _, err := LoadSnapFile(d, crashSnapDir); !errors.Is(err, ErrNoSnapshotFile) {
		t.Errorf("an empty directory: %v", err)
	}
	for index := range proto.Index(3) {
		if err := SaveSnapFile(d, crashSnapDir, testSnapshot(2, 10+index)); err != nil {
			t.Fatal(err)
		}
	}
	newest := path.Join(crashSnapDir, snapFileName(2, 12))
	content, err := d.ReadFile(newest)
	if err != nil {
		t.Fatal(err)
	}
	for bit := range len(content) * 8 {
		damaged := bytes.Clone(content)
		damaged[bit/8] ^= 1 << (bit % 8)
		if err := d.WriteFile(newest, damaged); err != nil {
			t.Fatal(err)
		}
		s, err := LoadSnapFile(d, crashSnapDir)
		if err == nil && protobuf.Equal(s, testSnapshot(2, 12)) {
			continue // a bit that means nothing, above the 32 of the checksum
		}
		if err != nil || !protobuf.Equal(s, testSnapshot(2, 11)) {
			t.Fatalf("bit %d: %v, %v", bit, s, err)
		}
		if kept, err := d.ReadFile(newest + brokenSuffix); err != nil || !bytes.Equal(kept, damaged) {
			t.Fatalf("bit %d: the damaged file is not kept (%v)", bit, err)
		}
	}
}

func TestSnapFiles_PurgeKeepsTheNewest(t *testing.T) {
	d := newSnapDisk(t)
	for index := range proto.Index(7) {
		if err := SaveSnapFile(d, crashSnapDir, testSnapshot(1+proto.Term(index)/4, index+1)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"db", "tmp-0000000000000001-0000000000000009.snap"} {
		if err := d.WriteFile(path.Join(crashSnapDir, name), []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	if err := PurgeSnapFiles(d, crashSnapDir, 3); err != nil {
		t.Fatal(err)
	}
	names, err := d.List(crashSnapDir)
	want := []string{snapFileName(2, 5), snapFileName(2, 6), snapFileName(2, 7), "db"}
	if err != nil || !slices.Equal(names, want) {
		t.Errorf("left %v (%v)", names, err)
	}
}

func TestSaveSnapFile_AnErrorLeavesNoSnapshotFile(t *testing.T) {
	for _, point := range []disk.Point{disk.SnapFile, disk.SnapDir} {
		d := newSnapDisk(t)
		d.FailSync(point, 1)
		if err := SaveSnapFile(d, crashSnapDir, testSnapshot(1, 1)); err == nil {
			t.Fatalf("%s: no error", point)
		}
		for seed := range uint64(20) {
			d.Crash(seed)
			if s, err := LoadSnapFile(d, crashSnapDir); err == nil && s.GetMetadata().GetIndex() != 1 {
				t.Errorf("%s: a file that is none: %v", point, s)
			}
		}
	}
}
