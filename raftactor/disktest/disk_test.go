package disktest

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"slices"
	"syscall"
	"testing"

	"troupe/raftactor/disk"
)

const point = disk.Append

// file makes a durable directory with a durable, synced file of some sectors.
func makeFile(t *testing.T, d *Disk, content []byte) disk.File {
	t.Helper()
	if err := d.MakeDir("/dir"); err != nil {
		t.Fatal(err)
	}
	if err := d.WriteFile("/dir/file", content); err != nil {
		t.Fatal(err)
	}
	f, err := d.Open("/dir/file")
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// A crash keeps what was synced; of the rest it loses, keeps and mixes, sector by sector.
func TestCrash_KeepsSyncedSectorsAndAnyOfTheOthers(t *testing.T) {
	sector := func(b byte) []byte { return bytes.Repeat([]byte{b}, sectorBytes) }
	old, synced, fresh := sector(1), sector(2), sector(3)
	seen := map[string]int{}
	for seed := range uint64(200) {
		d := New(seed)
		f := makeFile(t, d, bytes.Repeat(old, 4))
		if _, err := f.WriteAt(synced, 0); err != nil {
			t.Fatal(err)
		}
		if err := f.Sync(point); err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt(bytes.Repeat(fresh, 3), sectorBytes); err != nil {
			t.Fatal(err)
		}
		d.Crash(seed)
		b, err := d.ReadFile("/dir/file")
		if err != nil || len(b) != 4*sectorBytes || !bytes.Equal(b[:sectorBytes], synced) {
			t.Fatalf("seed %d: synced bytes are gone (%v)", seed, err)
		}
		outcome := ""
		for rest := b[sectorBytes:]; len(rest) > 0; rest = rest[sectorBytes:] {
			switch sector := rest[:sectorBytes]; {
			case bytes.Equal(sector, old):
				outcome += "o"
			case bytes.Equal(sector, fresh):
				outcome += "f"
			default:
				t.Fatalf("seed %d: a sector is torn", seed)
			}
		}
		seen[outcome]++
		if _, err := f.WriteAt(fresh, 0); !errors.Is(err, ErrStopped) {
			t.Fatalf("an open file survived the crash: %v", err)
		}
	}
	if len(seen) != 8 {
		t.Errorf("outcomes %v, want all eight", seen)
	}
}

func TestCrash_LosesNamesThatWereNotSynced(t *testing.T) {
	outcomes := map[bool]int{}
	for seed := range uint64(50) {
		d := New(seed)
		if err := d.MakeDir("/dir"); err != nil {
			t.Fatal(err)
		}
		f, err := d.Create("/dir/a.tmp")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt([]byte("x"), 0); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(f.Sync(point), d.SyncDir("/dir", point), d.Rename("/dir/a.tmp", "/dir/a")); err != nil {
			t.Fatal(err)
		}
		d.Crash(seed)
		names, err := d.List("/dir")
		if err != nil || len(names) != 1 {
			t.Fatalf("seed %d: a rename is not atomic: %v (%v)", seed, names, err)
		}
		outcomes[names[0] == "a"]++
	}
	if len(outcomes) != 2 {
		t.Errorf("a rename without a sync has one outcome only: %v", outcomes)
	}
}

func TestKill_KeepsEverythingVisibleAndVolatile(t *testing.T) {
	lost := false
	for seed := range uint64(50) {
		d := New(seed)
		f := makeFile(t, d, []byte("old"))
		if err := f.Lock(); err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt([]byte("new"), 0); err != nil {
			t.Fatal(err)
		}
		d.Kill()
		if b, _ := d.ReadFile("/dir/file"); string(b) != "new" {
			t.Fatalf("after the kill: %q", b)
		}
		again, err := d.Open("/dir/file")
		if err != nil {
			t.Fatal(err)
		}
		if err := again.Lock(); err != nil {
			t.Fatalf("the dead process still has the lock: %v", err)
		}
		d.Crash(seed)
		b, _ := d.ReadFile("/dir/file")
		lost = lost || string(b) == "old"
	}
	if !lost {
		t.Error("a write that only a kill followed was never lost")
	}
}

func TestBreak_MakesOneSyncDoNothing(t *testing.T) {
	d := New(1)
	d.Break(disk.Append)
	f := makeFile(t, d, []byte("old"))
	if _, err := f.WriteAt([]byte("new"), 0); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(disk.Append); err != nil {
		t.Fatal(err)
	}
	for seed := uint64(0); ; seed++ {
		d.Crash(seed)
		if b, _ := d.ReadFile("/dir/file"); string(b) == "old" {
			return
		}
		if seed > 50 {
			t.Fatal("a broken sync kept the write")
		}
		if err := d.WriteFile("/dir/file", []byte("old")); err != nil {
			t.Fatal(err)
		}
		f, err := d.Open("/dir/file")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt([]byte("new"), 0); err != nil {
			t.Fatal(err)
		}
	}
}

func TestErrors(t *testing.T) {
	d := New(1)
	f := makeFile(t, d, []byte("12345678"))
	d.SetSpace(4)
	n, err := f.WriteAt([]byte("abcdefgh"), 4)
	if n != 8 || err != nil {
		t.Errorf("within the space: %d, %v", n, err)
	}
	n, err = f.WriteAt([]byte("xy"), 12)
	if n != 0 || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("beyond the space: %d, %v", n, err)
	}
	if err := f.Preallocate(20); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("preallocated beyond the space: %v", err)
	}
	d.FailSync(disk.Append, 2)
	if err := f.Sync(disk.Append); err != nil {
		t.Error(err)
	}
	if err := f.Sync(disk.Append); !errors.Is(err, syscall.EIO) {
		t.Errorf("the second sync: %v", err)
	}
	other, err := d.Open("/dir/file")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Lock(), f.Lock()); err != nil {
		t.Error(err)
	}
	if err := other.Lock(); !errors.Is(err, disk.ErrLocked) {
		t.Errorf("the lock was given twice: %v", err)
	}
	if _, err := d.Open("/dir/none"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if _, err := other.ReadAt(make([]byte, 100), 0); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
}

func TestStopAt_StopsInTheMiddleOfThatOperation(t *testing.T) {
	d := New(1)
	f := makeFile(t, d, []byte("old"))
	d.StopAt(2)
	if _, err := f.WriteAt([]byte("a"), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("b"), 1); !errors.Is(err, ErrStopped) || !d.Stopped() {
		t.Errorf("the second operation: %v", err)
	}
	if _, err := d.List("/dir"); !errors.Is(err, ErrStopped) {
		t.Errorf("afterwards: %v", err)
	}
	d.Crash(1)
	names, err := d.List("/dir")
	if err != nil || !slices.Equal(names, []string{"file"}) {
		t.Errorf("after the crash: %v (%v)", names, err)
	}
}

// The same seed gives the same outcome.
func TestCrash_IsRepeatable(t *testing.T) {
	for seed := range uint64(20) {
		var outcomes [2][]byte
		for i := range outcomes {
			d := New(seed)
			f := makeFile(t, d, make([]byte, 16*sectorBytes))
			for n := range byte(20) {
				if _, err := f.WriteAt(bytes.Repeat([]byte{n + 1}, 700), int64(n)*300); err != nil {
					t.Fatal(err)
				}
			}
			d.Crash(seed)
			outcomes[i], _ = d.ReadFile("/dir/file")
		}
		if !bytes.Equal(outcomes[0], outcomes[1]) {
			t.Fatalf("seed %d has two outcomes", seed)
		}
	}
}
