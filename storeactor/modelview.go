package storeactor

import (
	"bytes"
	"fmt"
	"io"

	"troupe/proto"
)

// modelView is FileView over one commit of the model.
type modelView struct {
	gate   viewGate
	commit *modelCommit
}

// View implements File.
func (f *ModelFile) View() (FileView, error) {
	v := &modelView{}
	err := f.enter(&v.gate, func() error {
		v.commit = f.last()
		return nil
	}, func() {})
	if err != nil {
		return nil, err
	}
	return v, nil
}

// Retain implements FileView.
func (v *modelView) Retain() bool { return v.gate.retain() }

// Release implements FileView.
func (v *modelView) Release() { v.gate.release() }

// Append implements FileView.
func (v *modelView) Append(to []byte, bucket proto.Bucket, key []byte) ([]byte, bool, error) {
	if !v.gate.enter() {
		return to, false, ErrViewCutOff
	}
	defer v.gate.leave()
	tree := v.commit.buckets[bucket]
	if tree == nil {
		return to, false, nil
	}
	pair, found := tree.Get(modelPair{key: key})
	return append(to, pair.value...), found, nil
}

// ValueSize implements FileView.
func (v *modelView) ValueSize(bucket proto.Bucket, key []byte) (int, bool, error) {
	value, found, err := v.Append(nil, bucket, key)
	return len(value), found, err
}

// Scan implements FileView.
func (v *modelView) Scan(bucket proto.Bucket, from, to []byte, f func(key, value []byte) bool) error {
	if !v.gate.enter() {
		return ErrViewCutOff
	}
	defer v.gate.leave()
	tree := v.commit.buckets[bucket]
	if tree == nil {
		return nil
	}
	cutOff := false
	tree.Ascend(modelPair{key: from}, func(pair modelPair) bool {
		if v.gate.ended() {
			cutOff = true
			return false
		}
		if to != nil && bytes.Compare(pair.key, to) >= 0 {
			return false
		}
		return f(pair.key, pair.value)
	})
	if cutOff {
		return ErrViewCutOff
	}
	return nil
}

// cutOff implements endableView.
func (v *modelView) cutOff() { v.gate.shut() }

// ended implements endableView.
func (v *modelView) ended() bool { return v.gate.ended() }

// Size implements wholeView.
func (v *modelView) Size() int64 { return int64(len(v.commit.image())) }

// WriteTo implements wholeView: the model's file is a text with all records.
func (v *modelView) WriteTo(w io.Writer) (int64, error) {
	if !v.gate.enter() {
		return 0, ErrViewCutOff
	}
	defer v.gate.leave()
	n, err := (&gatedWriter{gate: &v.gate, to: w}).Write(v.commit.image())
	return int64(n), err
}

// image is what the model has instead of the bytes of a file.
func (c *modelCommit) image() []byte {
	var out []byte
	for _, name := range buckets {
		c.buckets[name].Scan(func(pair modelPair) bool {
			out = fmt.Appendf(out, "%s %x=%x\n", name, pair.key, pair.value)
			return true
		})
	}
	return out
}
