package storeactor

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"troupe/proto"
)

// openTestFile opens a bbolt file in a directory of its own, with a small address space that all but one test stay
// below.
func openTestFile(t testing.TB, options BoltOptions) File {
	t.Helper()
	if options.AddressBytes == 0 {
		options.AddressBytes = 64 << 20
	}
	f, err := OpenBoltFile(filepath.Join(t.TempDir(), "db"), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// dump gives all records of a view as text, for comparisons.
func dump(view FileView) (string, error) {
	var out bytes.Buffer
	for _, name := range buckets {
		err := view.Scan(name, nil, nil, func(key, value []byte) bool {
			fmt.Fprintf(&out, "%s %x=%x\n", name, key, value)
			return true
		})
		if err != nil {
			return "", err
		}
	}
	return out.String(), nil
}

// TestFile_ContractOfBothImplementations runs bbolt and the model through the same random histories: every handle, old
// or new, and every answer must be the same.
func TestFile_ContractOfBothImplementations(t *testing.T) {
	dir := t.TempDir()
	run := 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		path := filepath.Join(dir, fmt.Sprint("db", run))
		options := BoltOptions{AddressBytes: 32 << 20, NoSync: true}
		bolt, err := OpenBoltFile(path, options)
		if err != nil {
			rt.Fatal(err)
		}
		pair := &filePair{rt: rt, path: path, options: options, bolt: bolt, model: NewModelFile(ModelOptions{})}
		defer func() { _, _ = pair.bolt.Close(), os.Remove(path) }()
		rt.Repeat(map[string]func(*rapid.T){
			"write":   pair.write,
			"open":    pair.openViews,
			"release": pair.releaseViews,
			"cut off": pair.cutOff,
			"reopen":  pair.reopen,
			"":        pair.check,
		})
	})
}

// filePair is one history on both implementations.
type filePair struct {
	rt          *rapid.T
	path        string
	options     BoltOptions
	bolt        File
	model       *ModelFile
	boltViews   []FileView
	modelViews  []FileView
	wantedDumps []string
}

func drawRecord(rt *rapid.T) (proto.Bucket, []byte) {
	bucket := rapid.SampledFrom([]proto.Bucket{proto.BucketKey, proto.BucketMeta, proto.BucketLease}).Draw(rt, "bucket")
	return bucket, rapid.SliceOfN(rapid.ByteRange('a', 'd'), 1, 3).Draw(rt, "key")
}

func (p *filePair) write(rt *rapid.T) {
	bolt, err := p.bolt.Begin()
	if err != nil {
		rt.Fatal(err)
	}
	model, err := p.model.Begin()
	if err != nil {
		rt.Fatal(err)
	}
	for range rapid.IntRange(0, 20).Draw(rt, "writes") {
		bucket, key := drawRecord(rt)
		if rapid.IntRange(0, 3).Draw(rt, "kind") == 0 {
			if a, b := bolt.Delete(bucket, key), model.Delete(bucket, key); a != nil || b != nil {
				rt.Fatal(a, b)
			}
			continue
		}
		value := rapid.SliceOfN(rapid.Byte(), 0, 2000).Draw(rt, "value")
		if a, b := bolt.Put(bucket, key, value), model.Put(bucket, key, value); a != nil || b != nil {
			rt.Fatal(a, b)
		}
	}
	if a, b := bolt.Put(proto.BucketKey, nil, nil), model.Put(proto.BucketKey, nil, nil); a == nil || b == nil {
		rt.Fatal("an empty key was taken", a, b)
	}
	if rapid.IntRange(0, 4).Draw(rt, "end") == 0 {
		bolt.Rollback()
		model.Rollback()
		return
	}
	if _, err := bolt.Commit(); err != nil {
		rt.Fatal(err)
	}
	if _, err := model.Commit(); err != nil {
		rt.Fatal(err)
	}
}

func (p *filePair) openViews(rt *rapid.T) {
	if len(p.boltViews) > 4 {
		return
	}
	bolt, err := p.bolt.View()
	if err != nil {
		rt.Fatal(err)
	}
	model, err := p.model.View()
	if err != nil {
		rt.Fatal(err)
	}
	want, err := dump(model)
	if err != nil {
		rt.Fatal(err)
	}
	p.boltViews, p.modelViews = append(p.boltViews, bolt), append(p.modelViews, model)
	p.wantedDumps = append(p.wantedDumps, want)
}

func (p *filePair) releaseViews(rt *rapid.T) {
	if len(p.boltViews) == 0 {
		return
	}
	i := rapid.IntRange(0, len(p.boltViews)-1).Draw(rt, "view")
	for _, v := range []FileView{p.boltViews[i], p.modelViews[i]} {
		v.Release()
		if v.Retain() {
			rt.Fatal("a released handle was retained")
		}
		if _, _, err := v.Append(nil, proto.BucketKey, []byte("a")); !errors.Is(err, ErrViewCutOff) {
			rt.Fatal("a released handle answers", err)
		}
	}
	p.forget(i)
}

func (p *filePair) forget(i int) {
	p.boltViews = append(p.boltViews[:i:i], p.boltViews[i+1:]...)
	p.modelViews = append(p.modelViews[:i:i], p.modelViews[i+1:]...)
	p.wantedDumps = append(p.wantedDumps[:i:i], p.wantedDumps[i+1:]...)
}

func (p *filePair) cutOff(rt *rapid.T) {
	p.bolt.CutOff()
	p.model.CutOff()
	if a, b := p.bolt.OpenViews(), p.model.OpenViews(); a != 0 || b != 0 {
		rt.Fatal("open handles after a cut-off:", a, b)
	}
	for len(p.boltViews) > 0 {
		for _, v := range []FileView{p.boltViews[0], p.modelViews[0]} {
			if err := v.Scan(proto.BucketKey, nil, nil, nil); !errors.Is(err, ErrViewCutOff) {
				rt.Fatal("a handle that was cut off answers", err)
			}
			v.Release()
		}
		p.forget(0)
	}
}

func (p *filePair) reopen(rt *rapid.T) {
	p.cutOff(rt)
	if err := p.bolt.Close(); err != nil {
		rt.Fatal(err)
	}
	if _, err := p.bolt.View(); !errors.Is(err, ErrFileClosed) {
		rt.Fatal("a closed file answers", err)
	}
	var err error
	if p.bolt, err = OpenBoltFile(p.path, p.options); err != nil {
		rt.Fatal(err)
	}
	old := p.model
	p.model = old.Reopen()
	if _, err := old.View(); !errors.Is(err, ErrFileClosed) {
		rt.Fatal("a closed model answers", err)
	}
}

// check compares a fresh handle and all old ones.
func (p *filePair) check(rt *rapid.T) {
	p.openViews(rt)
	bucket, key := drawRecord(rt)
	for i := range p.boltViews {
		bolt, err := dump(p.boltViews[i])
		if err != nil {
			rt.Fatal(err)
		}
		model, err := dump(p.modelViews[i])
		if err != nil {
			rt.Fatal(err)
		}
		if bolt != model || model != p.wantedDumps[i] {
			rt.Fatalf("handle %d:\nbbolt\n%smodel\n%swanted\n%s", i, bolt, model, p.wantedDumps[i])
		}
		a, foundA, errA := p.boltViews[i].Append([]byte("x"), bucket, key)
		b, foundB, errB := p.modelViews[i].Append([]byte("x"), bucket, key)
		if !bytes.Equal(a, b) || foundA != foundB || errA != nil || errB != nil {
			rt.Fatalf("append %s %q: %q %v %v, %q %v %v", bucket, key, a, foundA, errA, b, foundB, errB)
		}
	}
	if s := p.bolt.Sizes(); s.InUse <= 0 || s.InUse > s.Total {
		rt.Fatalf("sizes %+v", s)
	}
}

// TestBoltFile_SecondProcessIsRefusedAtOnce: the lock is answered, not waited for.
func TestBoltFile_SecondProcessIsRefusedAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	f, err := OpenBoltFile(path, BoltOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := OpenBoltFile(path, BoltOptions{}); !errors.Is(err, ErrFileLocked) {
		t.Fatalf("second open: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	f, err = OpenBoltFile(path, BoltOptions{})
	if err != nil {
		t.Fatalf("open after close: %v", err)
	}
	_ = f.Close()
}

// TestBoltFile_DamageIsAnErrorNotACrash cuts and overwrites a file in every way that a header can show.
func TestBoltFile_DamageIsAnErrorNotACrash(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	f, err := OpenBoltFile(path, BoltOptions{AddressBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	w, err := f.Begin()
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		if err := w.Put(proto.BucketKey, fmt.Appendf(nil, "key%03d", i), make([]byte, 5000)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	total := f.Sizes().Total
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string][]byte{
		"one byte":            whole[:1],
		"less than a page":    whole[:1000],
		"header only":         whole[:8192],
		"one page missing":    whole[:total-4096],
		"one byte missing":    whole[:total-1],
		"no database at all":  bytes.Repeat([]byte("garbage "), 4096),
		"both headers zeroed": append(make([]byte, 8192), whole[8192:]...),
	}
	for name, content := range cases {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "db")
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
			f, err := OpenBoltFile(path, BoltOptions{AddressBytes: 1 << 20})
			if err == nil {
				_ = f.Close()
			}
			if !errors.Is(err, ErrFileDamaged) {
				t.Fatalf("opened with %v", err)
			}
		})
	}
}

// TestBoltFile_OneHandleForManyReaders shares one read transaction among goroutines while commits and the end of the
// handle race with them; run with -race.
func TestBoltFile_OneHandleForManyReaders(t *testing.T) {
	for name, f := range map[string]File{
		"bbolt": openTestFile(t, BoltOptions{NoSync: true}), "model": NewModelFile(ModelOptions{}),
	} {
		t.Run(name, func(t *testing.T) { shareHandles(t, f) })
	}
}

func shareHandles(t *testing.T, f File) {
	commit := func(round int) {
		w, err := f.Begin()
		if err != nil {
			t.Error(err)
			return
		}
		for i := range 50 {
			_ = w.Put(proto.BucketKey, fmt.Appendf(nil, "key%03d", i), fmt.Appendf(nil, "%06d", round))
		}
		if _, err := w.Commit(); err != nil {
			t.Error(err)
		}
	}
	commit(0)
	for round := 1; round <= 30; round++ {
		view, err := f.View()
		if err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("%06d", round-1)
		var readers sync.WaitGroup
		for range 4 {
			if !view.Retain() {
				t.Fatal("retain failed")
			}
			readers.Go(func() {
				defer view.Release()
				readUntilCutOff(t, view, want)
			})
		}
		commit(round)
		view.Release()
		f.CutOff()
		readers.Wait()
	}
	if n := f.OpenViews(); n != 0 {
		t.Fatalf("%d handles are left", n)
	}
}

func readUntilCutOff(t *testing.T, view FileView, want string) {
	for i := range 1000 {
		out, found, err := view.Append(nil, proto.BucketKey, fmt.Appendf(nil, "key%03d", i%50))
		if errors.Is(err, ErrViewCutOff) {
			return
		}
		if !found || err != nil || string(out) != want {
			t.Errorf("read %q %v %v, want %q", out, found, err, want)
			return
		}
		n := 0
		err = view.Scan(proto.BucketKey, []byte("key010"), []byte("key020"), func(_, value []byte) bool {
			n++
			if string(value) != want {
				t.Errorf("scanned %q, want %q", value, want)
			}
			return true
		})
		if err == nil && n != 10 {
			t.Errorf("scanned %d records", n)
		}
	}
}

// TestBoltFile_GrowsBeyondItsAddressSpace: NeedsRemap says so before a commit would wait for the readers, and the
// commit goes through although somebody holds a handle all the time and others open new ones, as store and its readers
// do.
func TestBoltFile_GrowsBeyondItsAddressSpace(t *testing.T) {
	f := openTestFile(t, BoltOptions{AddressBytes: 32 << 20, NoSync: true})
	stop := make(chan struct{})
	var reader sync.WaitGroup
	reader.Go(func() { holdHandles(t, f, stop) })
	remaps := 0
	for i := range 40 {
		value := make([]byte, 2<<20)
		if f.NeedsRemap(int64(len(value))) {
			f.PrepareRemap()
			remaps++
		}
		w, err := f.Begin()
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Put(proto.BucketKey, fmt.Appendf(nil, "key%03d", i), value); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	reader.Wait()
	if remaps == 0 || remaps == 40 {
		t.Fatalf("mapped again %d times", remaps)
	}
}

// holdHandles keeps a handle until it is cut off, and takes the next one at once.
func holdHandles(t *testing.T, f File, stop chan struct{}) {
	for {
		view, err := f.View()
		if err != nil {
			t.Error(err)
			return
		}
		for err == nil {
			select {
			case <-stop:
				view.Release()
				return
			default:
				_, _, err = view.Append(nil, proto.BucketKey, []byte("key001"))
			}
		}
		view.Release()
	}
}
