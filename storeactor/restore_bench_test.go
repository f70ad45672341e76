package storeactor

import (
	"fmt"
	"path/filepath"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
	gproto "google.golang.org/protobuf/proto"

	"troupe/proto"
)

// A start with a million keys of 64 bytes, each put once, and values of 256.
func BenchmarkRestore_AMillionKeys(b *testing.B) {
	const keys, perCommit = 1_000_000, 10_000
	file, err := OpenBoltFile(filepath.Join(b.TempDir(), "db"), BoltOptions{})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	value := make([]byte, 256)
	for i := 0; i < keys; i += perCommit {
		w, err := file.Begin()
		if err != nil {
			b.Fatal(err)
		}
		for n := i; n < i+perCommit; n++ {
			revision := int64(n + 2)
			kv, err := gproto.Marshal(&mvccpb.KeyValue{Key: fmt.Appendf(nil, "%064d", n), Value: value,
				CreateRevision: revision, ModRevision: revision, Version: 1})
			if err != nil {
				b.Fatal(err)
			}
			key := appendVersionKey(nil, proto.Version{Main: proto.Revision(revision)})
			if err := w.Put(proto.BucketKey, key, kv); err != nil {
				b.Fatal(err)
			}
		}
		if _, err := w.Commit(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		r, err := Restore(file, 0)
		if err != nil || r.Keys.keys != keys {
			b.Fatal(err)
		}
		r.View.Release()
	}
}
