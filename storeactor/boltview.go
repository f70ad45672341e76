package storeactor

import (
	"bytes"
	"cmp"
	"fmt"
	"io"

	"go.etcd.io/bbolt"

	"troupe/proto"
)

// boltView is FileView over one read transaction of bbolt. See boltFile for why many goroutines may share it.
type boltView struct {
	gate    viewGate
	tx      *bbolt.Tx
	size    int64
	buckets map[proto.Bucket]*bbolt.Bucket // filled at open, only read afterwards
}

// View implements File.
func (f *boltFile) View() (FileView, error) {
	v := &boltView{buckets: make(map[proto.Bucket]*bbolt.Bucket, len(buckets))}
	var generation *boltGeneration
	err := f.enter(&v.gate, func() (err error) {
		generation = f.generation
		if v.tx, err = generation.db.Begin(false); err != nil {
			return fmt.Errorf("begin a read transaction on %s: %w", f.path, err)
		}
		generation.enter()
		v.size = v.tx.Size()
		for _, name := range buckets {
			v.buckets[name] = v.tx.Bucket([]byte(name))
		}
		return nil
	}, func() {
		_ = v.tx.Rollback()
		generation.leave()
	})
	if err != nil {
		return nil, err
	}
	return v, nil
}

// Retain implements FileView.
func (v *boltView) Retain() bool { return v.gate.retain() }

// Release implements FileView.
func (v *boltView) Release() { v.gate.release() }

// Append implements FileView.
func (v *boltView) Append(to []byte, bucket proto.Bucket, key []byte) ([]byte, bool, error) {
	if !v.gate.enter() {
		return to, false, ErrViewCutOff
	}
	defer v.gate.leave()
	b := v.buckets[bucket]
	if b == nil {
		return to, false, nil
	}
	value := b.Get(key)
	if value == nil {
		return to, false, nil
	}
	return append(to, value...), true, nil
}

// ValueSize implements FileView.
func (v *boltView) ValueSize(bucket proto.Bucket, key []byte) (int, bool, error) {
	if !v.gate.enter() {
		return 0, false, ErrViewCutOff
	}
	defer v.gate.leave()
	b := v.buckets[bucket]
	if b == nil {
		return 0, false, nil
	}
	value := b.Get(key)
	return len(value), value != nil, nil
}

// cutOff implements endableView.
func (v *boltView) cutOff() { v.gate.shut() }

// ended implements endableView.
func (v *boltView) ended() bool { return v.gate.ended() }

// Scan implements FileView.
func (v *boltView) Scan(bucket proto.Bucket, from, to []byte, f func(key, value []byte) bool) error {
	if !v.gate.enter() {
		return ErrViewCutOff
	}
	defer v.gate.leave()
	b := v.buckets[bucket]
	if b == nil {
		return nil
	}
	c := b.Cursor()
	n := 0
	for key, value := c.Seek(from); key != nil; key, value = c.Next() {
		// A long scan must not keep the owner waiting who cuts the handle off.
		if n++; n%scanGateRecords == 0 && v.gate.ended() {
			return ErrViewCutOff
		}
		if to != nil && bytes.Compare(key, to) >= 0 {
			return nil
		}
		if !f(key, value) {
			return nil
		}
	}
	return nil
}

// Size implements wholeView.
func (v *boltView) Size() int64 { return v.size }

// WriteTo implements wholeView: the pages of the file as they are, with the header that belongs to this handle.
func (v *boltView) WriteTo(w io.Writer) (int64, error) {
	if !v.gate.enter() {
		return 0, ErrViewCutOff
	}
	defer v.gate.leave()
	gated := &gatedWriter{gate: &v.gate, to: w}
	n, err := v.tx.WriteTo(gated)
	return n, cmp.Or(gated.err, err)
}
