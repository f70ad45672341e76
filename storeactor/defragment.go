package storeactor

import (
	"bytes"
	"fmt"

	"troupe/proto"
)

// copier is the pure core of a defragmentation: it brings a copy up to what a handle sees, in rounds. Between two
// rounds the file goes on; the second and later rounds copy only what the file got since.
//
// The naive way is to remember every write while the copy is under way. That has no bound. What makes it unnecessary:
//
//   - Records of the key bucket are only ever added, at its end, because revisions grow. What is new in it is what lies
//     behind the last key copied. A copy under way keeps nothing of them.
//   - They are deleted by compactions only. Those tell the copier which (forget), in bounded number: the backend does
//     not go on with a compaction while too many are remembered.
//   - The other buckets are small. Each round compares them, record by record, in bounded pieces.
type copier struct {
	to FileCopy
	// rest is called after each batch, with the time since the last one being what it took; it may wait. An error ends
	// the copy.
	rest func() error

	// lastKey is the last key of the key bucket in the copy; nil when there is none.
	lastKey []byte
	// writes is what goes into the copy in one transaction, arena the bytes behind it, used again after that: garbage of
	// the size of the file would make the collector work beside the requests of clients.
	writes  []proto.BucketWrite
	arena   []byte
	records int64 // written over all rounds
}

// round makes the copy equal to the view. deleted are the keys that compactions deleted from the key bucket since the
// last round's handle was opened.
func (c *copier) round(view FileView, deleted [][]byte) error {
	for _, key := range deleted {
		c.writes = append(c.writes, proto.BucketWrite{Bucket: proto.BucketKey, Key: key, Delete: true})
		if err := c.settle(); err != nil {
			return err
		}
	}
	for _, name := range buckets {
		copyBucket := c.compareBucket
		if name == proto.BucketKey {
			copyBucket = c.appendBucket
		}
		if err := copyBucket(view, name); err != nil {
			return fmt.Errorf("copy bucket %s: %w", name, err)
		}
	}
	return c.commit()
}

// appendBucket copies what is behind the last key.
func (c *copier) appendBucket(view FileView, name proto.Bucket) error {
	var from []byte
	if c.lastKey != nil {
		from = append(bytes.Clone(c.lastKey), 0)
	}
	return c.pieces(view, name, from, func(piece []copiedRecord) error {
		for _, r := range piece {
			c.writes = append(c.writes, proto.BucketWrite{Bucket: name, Key: r.key, Value: r.value})
		}
		if n := len(piece); n > 0 {
			c.lastKey = append(c.lastKey[:0], piece[n-1].key...)
		}
		return nil
	})
}

// copiedRecord is one record, copied out of a view into the arena.
type copiedRecord struct{ key, value []byte }

// pieces reads a bucket from a key on and gives its records in pieces of bounded size, copied out of the file, so that
// the handle is not held while a piece is worked on. After the last piece, f is called once more with none. What f has
// added to the writes goes into the copy when it is enough for a transaction.
func (c *copier) pieces(view FileView, name proto.Bucket, from []byte, f func([]copiedRecord) error) error {
	var piece []copiedRecord
	for {
		piece = piece[:0]
		begin := len(c.arena)
		err := view.Scan(name, from, nil, func(key, value []byte) bool {
			piece = append(piece, copiedRecord{c.keep(key), c.keep(value)})
			return len(c.arena)-begin < copyBatchBytes/4 && len(piece) < copyBatchRecords/4
		})
		if err != nil {
			return err
		}
		if err := f(piece); err != nil || len(piece) == 0 {
			return err
		}
		from = append(bytes.Clone(piece[len(piece)-1].key), 0)
		if err := c.settle(); err != nil {
			return err
		}
	}
}

// settle commits when the writes are enough for a transaction, and rests.
func (c *copier) settle() error {
	if len(c.arena) < copyBatchBytes && len(c.writes) < copyBatchRecords {
		return nil
	}
	if err := c.commit(); err != nil {
		return err
	}
	return c.rest()
}

// keep copies bytes into the arena, where they stay until the next commit.
func (c *copier) keep(b []byte) []byte {
	begin := len(c.arena)
	c.arena = append(c.arena, b...)
	return c.arena[begin:len(c.arena):len(c.arena)]
}

// compareBucket finds in pieces what differs between a bucket of the view and of the copy.
func (c *copier) compareBucket(view FileView, name proto.Bucket) error {
	var from []byte
	return c.pieces(view, name, nil, func(piece []copiedRecord) error {
		var to []byte // nil behind the last piece: the copy may hold records there that are gone
		if n := len(piece); n > 0 {
			to = append(bytes.Clone(piece[n-1].key), 0)
		}
		writes, err := c.differences(name, piece, from, to)
		if err != nil {
			return err
		}
		c.writes = append(c.writes, writes...)
		from = to
		return nil
	})
}

// differences gives what makes the copy's records from <= key < to equal to the wanted ones.
func (c *copier) differences(name proto.Bucket, want []copiedRecord, from, to []byte) ([]proto.BucketWrite, error) {
	have, err := c.to.View()
	if err != nil {
		return nil, err
	}
	defer have.Release()
	var writes []proto.BucketWrite
	put := func(r copiedRecord) {
		writes = append(writes, proto.BucketWrite{Bucket: name, Key: r.key, Value: r.value})
	}
	err = have.Scan(name, from, to, func(key, value []byte) bool {
		for len(want) > 0 && bytes.Compare(want[0].key, key) < 0 {
			put(want[0])
			want = want[1:]
		}
		switch {
		case len(want) == 0 || !bytes.Equal(want[0].key, key):
			writes = append(writes, proto.BucketWrite{Bucket: name, Key: bytes.Clone(key), Delete: true})
			return true
		case !bytes.Equal(want[0].value, value):
			put(want[0])
		}
		want = want[1:]
		return true
	})
	for _, r := range want {
		put(r)
	}
	return writes, err
}

// commit puts the writes into the copy in one transaction, and brings them to the disk.
func (c *copier) commit() error {
	defer func() {
		clear(c.writes)
		c.writes, c.arena = c.writes[:0], c.arena[:0]
	}()
	if len(c.writes) == 0 {
		return nil
	}
	w, err := c.to.Begin()
	if err != nil {
		return err
	}
	for _, one := range c.writes {
		if one.Delete {
			err = w.Delete(one.Bucket, one.Key)
		} else {
			err = w.Put(one.Bucket, one.Key, one.Value)
		}
		if err != nil {
			w.Rollback()
			return err
		}
	}
	if _, err := w.Commit(); err != nil {
		return err
	}
	c.records += int64(len(c.writes))
	return c.to.Flush()
}
