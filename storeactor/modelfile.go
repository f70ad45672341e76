package storeactor

import (
	"bytes"

	"github.com/tidwall/btree"

	"troupe/actors"
	"troupe/proto"
)

// ModelStep names a moment inside a commit of the model, for crashes between every pair of writes.
type ModelStep uint8

// The moments of a commit, in order.
const (
	// ModelBeforeWrite is before anything of the commit has left the process.
	ModelBeforeWrite ModelStep = iota
	// ModelBeforeSync is after the commit was written and before it is durable: a crash may keep or lose it.
	ModelBeforeSync
	// ModelAfterSync is after it became durable and before the committer knows.
	ModelAfterSync
	// ModelBeforeCopy is outside of commits: before the copy of a defragmentation takes the place of the file.
	ModelBeforeCopy
)

// ModelOptions makes a model misbehave.
type ModelOptions struct {
	// NoSync leaves out the sync of every commit, for mutation tests: a crash may then forget any number of commits.
	NoSync bool
	// AtStep, if not nil, is called at each moment of a commit. An error makes the commit fail there, as a full or broken
	// disk does.
	AtStep func(ModelStep) error
	// AddressBytes is the reserved address space of NeedsRemap; 0 is without end.
	AddressBytes int64
}

// ModelFile is File in memory. Its commits are persistent trees, so that every handle keeps the one it was opened on,
// and the model knows which of them a crash may forget.
type ModelFile struct {
	*openViews // its lock guards the rest too
	options    ModelOptions

	durable  *modelCommit   // the last commit that no crash can lose
	unsynced []*modelCommit // newer ones, oldest first
	highest  int64          // high-water mark of the size
}

// modelCommit is one state of all buckets. Immutable.
type modelCommit struct {
	buckets map[proto.Bucket]*btree.BTreeG[modelPair]
	bytes   int64
	// givenUp are the bytes that this commit and the one before it replaced or deleted; they are free after one more.
	givenUp, givenUpBefore int64
}

// pending are the bytes given up that are not free yet.
func (c *modelCommit) pending() int64 { return c.givenUp + c.givenUpBefore }

type modelPair struct {
	key, value []byte
}

func modelPairLess(a, b modelPair) bool { return bytes.Compare(a.key, b.key) < 0 }

// NewModelFile makes an empty model with all its buckets.
func NewModelFile(options ModelOptions) *ModelFile {
	first := &modelCommit{buckets: make(map[proto.Bucket]*btree.BTreeG[modelPair], len(buckets))}
	for _, name := range buckets {
		first.buckets[name] = btree.NewBTreeGOptions(modelPairLess, btree.Options{NoLocks: true})
	}
	return openModel(first, options)
}

func openModel(durable *modelCommit, options ModelOptions) *ModelFile {
	opened := &modelCommit{buckets: durable.buckets, bytes: durable.bytes} // nobody reads what it gave up
	return &ModelFile{openViews: newOpenViews(), options: options, durable: opened, highest: opened.bytes}
}

// Crash ends this model as a crash of the machine does, and gives the one that a new start finds: the durable commits
// and the first `keep` of those that were not synced, where keep is asked with their number. The old model answers
// ErrFileClosed from then on.
func (f *ModelFile) Crash(keep func(unsynced int) int) *ModelFile {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	survivor := f.durable
	if n := len(f.unsynced); n > 0 {
		kept := keep(n)
		actors.Must(kept >= 0 && kept <= n, "a crash cannot keep %d of %d commits", kept, n)
		if kept > 0 {
			survivor = f.unsynced[kept-1]
		}
	}
	return openModel(survivor, f.options)
}

// Kill ends this model as the end of the process does, and gives the one that a new start finds: all commits, of which
// a later crash may still forget those that were not synced.
func (f *ModelFile) Kill() *ModelFile {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	next := openModel(f.durable, f.options)
	next.unsynced = append(next.unsynced, f.unsynced...)
	next.highest = max(next.highest, next.last().bytes)
	return next
}

// Reopen closes this model cleanly, and gives the one that a new start finds: all commits.
func (f *ModelFile) Reopen() *ModelFile {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	return openModel(f.last(), f.options)
}

func (f *ModelFile) last() *modelCommit {
	if n := len(f.unsynced); n > 0 {
		return f.unsynced[n-1]
	}
	return f.durable
}

// Sizes implements File. The model counts keys and values; its high-water mark plays the part of bbolt's.
func (f *ModelFile) Sizes() FileSizes {
	f.mu.Lock()
	defer f.mu.Unlock()
	pending := f.last().pending()
	return FileSizes{Total: f.highest, InUse: f.last().bytes + pending, Pending: pending}
}

// NeedsRemap implements File.
func (f *ModelFile) NeedsRemap(bytes int64) bool {
	return f.options.AddressBytes > 0 && f.Sizes().Total+bytes > f.options.AddressBytes
}

// Close implements File.
func (f *ModelFile) Close() error {
	f.mu.Lock()
	actors.Must(!f.writing || f.closed, "model closed inside a write transaction")
	f.closed = true
	f.mu.Unlock()
	f.CutOff()
	return nil
}

// Begin implements File.
func (f *ModelFile) Begin() (FileWrite, error) {
	if err := f.beginWrite(); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	last := f.last()
	w := &modelWrite{file: f, next: &modelCommit{buckets: make(map[proto.Bucket]*btree.BTreeG[modelPair])}}
	w.next.bytes, w.next.givenUpBefore = last.bytes, last.givenUp
	for name, tree := range last.buckets {
		w.next.buckets[name] = tree // copied by the first write to it
	}
	w.copied = make(map[proto.Bucket]bool)
	return w, nil
}

// modelWrite is FileWrite over the model.
type modelWrite struct {
	file   *ModelFile
	next   *modelCommit
	copied map[proto.Bucket]bool
}

func (w *modelWrite) tree(bucket proto.Bucket) *btree.BTreeG[modelPair] {
	tree := w.next.buckets[bucket]
	actors.Must(tree != nil, "the model has no bucket %s", bucket)
	if !w.copied[bucket] {
		// A copied tree shares nodes with its origin and copies those it changes; the origin is only read from now on.
		tree = tree.Copy()
		w.next.buckets[bucket] = tree
		w.copied[bucket] = true
	}
	return tree
}

// Put implements FileWrite.
func (w *modelWrite) Put(bucket proto.Bucket, key, value []byte) error {
	if len(key) == 0 {
		return errModelKeyEmpty
	}
	pair := modelPair{key: bytes.Clone(key), value: append([]byte{}, value...)}
	old, replaced := w.tree(bucket).Set(pair)
	if replaced {
		w.next.giveUp(old)
	}
	w.next.bytes += int64(len(key) + len(value))
	return nil
}

// Delete implements FileWrite.
func (w *modelWrite) Delete(bucket proto.Bucket, key []byte) error {
	if old, found := w.tree(bucket).Delete(modelPair{key: key}); found {
		w.next.giveUp(old)
	}
	return nil
}

func (c *modelCommit) giveUp(old modelPair) {
	n := int64(len(old.key) + len(old.value))
	c.bytes, c.givenUp = c.bytes-n, c.givenUp+n
}

// Commit implements FileWrite.
func (w *modelWrite) Commit() (CommitStats, error) {
	f := w.file
	if err := f.step(ModelBeforeWrite); err != nil {
		return CommitStats{}, f.ended(err)
	}
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return CommitStats{}, f.ended(ErrFileClosed)
	}
	f.unsynced = append(f.unsynced, w.next)
	f.highest = max(f.highest, w.next.bytes+w.next.pending())
	f.mu.Unlock()
	if err := f.step(ModelBeforeSync); err != nil {
		return CommitStats{}, f.ended(err)
	}
	if !f.options.NoSync {
		f.mu.Lock()
		f.durable, f.unsynced = w.next, nil
		f.mu.Unlock()
	}
	return CommitStats{}, f.ended(f.step(ModelAfterSync))
}

// Rollback implements FileWrite.
func (w *modelWrite) Rollback() { w.file.endWrite() }

func (f *ModelFile) step(s ModelStep) error {
	if f.options.AtStep == nil {
		return nil
	}
	return f.options.AtStep(s)
}

// ended ends the write transaction with an error, or nil.
func (f *ModelFile) ended(err error) error {
	f.endWrite()
	return err
}
