package storeactor

import (
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
	gproto "google.golang.org/protobuf/proto"

	"troupe/proto"
)

// goldenFile holds what this session leaves behind: put a 1, put b 1, del a, put a 2 (revisions 2 to 5). All hashes
// below are those that etcd 3.7.3 and etcdutl 3.7.3 gave for it, with a compaction at 4 before the last put.
func goldenFile(t *testing.T) *ModelFile {
	t.Helper()
	file := NewModelFile(ModelOptions{})
	w, err := file.Begin()
	if err != nil {
		t.Fatal(err)
	}
	put := func(rev int64, mark string, kv *mvccpb.KeyValue) {
		value, err := gproto.Marshal(kv)
		if err != nil {
			t.Fatal(err)
		}
		key := append(appendVersionKey(nil, proto.Version{Main: proto.Revision(rev)}), mark...)
		if err := w.Put(proto.BucketKey, key, value); err != nil {
			t.Fatal(err)
		}
	}
	value := func(key, value string, rev int64) *mvccpb.KeyValue {
		return &mvccpb.KeyValue{Key: []byte(key), Value: []byte(value), CreateRevision: rev, ModRevision: rev, Version: 1}
	}
	put(2, "", value("a", "1", 2))
	put(3, "", value("b", "1", 3))
	put(4, "t", &mvccpb.KeyValue{Key: []byte("a")})
	put(5, "", value("a", "2", 5))
	if _, err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	return file
}

// goldenKeep is what a compaction of that session at 4 keeps: b, and the tombstone.
func goldenKeep(_ []byte, v proto.Version) bool { return v.Main != 2 }

// TestHash_GoldenNumbersOfEtcd compares with numbers that etcd printed; every case is computed with the deletions still
// to be done, and again after them.
func TestHash_GoldenNumbersOfEtcd(t *testing.T) {
	const (
		compactionHash = 3105699308 // logged by the compaction at 4, and HashKV at 4 while etcd remembers it
		current        = 2784821907 // HashKV at 5
		atCompacted    = 943091523  // etcdutl hashkv --rev 4
	)
	file := goldenFile(t)
	check := func(when string) {
		view, err := file.View()
		if err != nil {
			t.Fatal(err)
		}
		defer view.Release()
		for rev, want := range map[proto.Revision]uint32{5: current, 4: atCompacted} {
			got, err := hashKeyValues(view, hashRule{revision: rev, compacted: 4, keep: goldenKeep})
			if err != nil || got != want {
				t.Errorf("%s: hash at %d is %d (%v), etcd's is %d", when, rev, got, err, want)
			}
		}
	}
	check("before the deletions")
	view, err := file.View()
	if err != nil {
		t.Fatal(err)
	}
	defer view.Release()
	for limit := 1; limit <= 5; limit++ {
		d := newDeletion(&compactFile{revision: 4, keep: goldenKeep}, -1, 0, limit)
		var step deletionStep
		for !step.done {
			if step, err = d.step(view); err != nil {
				t.Fatal(err)
			}
			w, err := file.Begin()
			if err != nil {
				t.Fatal(err)
			}
			apply(w, step.writes)
			if _, err := w.Commit(); err != nil {
				t.Fatal(err)
			}
		}
		if d.hash.sum != compactionHash || d.deleted != 1 {
			t.Errorf("steps of %d: hash %d of %d deletions, etcd's is %d", limit, d.hash.sum, d.deleted, compactionHash)
		}
	}
	check("after the deletions")
}

// TestHash_WholeFileLeavesOutWhatDiffersBetweenEqualMembers changes each record that Hash must not count, and one that
// it must.
func TestHash_WholeFileLeavesOutWhatDiffersBetweenEqualMembers(t *testing.T) {
	file := goldenFile(t)
	hash := func() uint32 {
		view, err := file.View()
		if err != nil {
			t.Fatal(err)
		}
		defer view.Release()
		sum, err := hashWholeFile(view)
		if err != nil {
			t.Fatal(err)
		}
		return sum
	}
	change := func(bucket proto.Bucket, key []byte) {
		w, err := file.Begin()
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Put(bucket, key, []byte("changed")); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	before := hash()
	for _, key := range [][]byte{metaTerm, metaConsistentIndex, metaStorageVersion} {
		change(proto.BucketMeta, key)
	}
	if after := hash(); after != before {
		t.Errorf("hash %d, was %d", after, before)
	}
	change(proto.BucketMeta, metaConfState)
	if after := hash(); after == before {
		t.Error("confState does not count")
	}
}

// TestStoredHashes_KeepTheNewestTen.
func TestStoredHashes_KeepTheNewestTen(t *testing.T) {
	var s storedHashes
	for rev := proto.Revision(1); rev <= 15; rev++ {
		s.add(HashResult{HashRevision: rev, Hash: uint32(rev)})
	}
	for rev := proto.Revision(1); rev <= 15; rev++ {
		h, found := s.at(rev)
		if found != (rev > 15-hashesStoredMax) || found && h.Hash != uint32(rev) {
			t.Errorf("revision %d: %+v %v", rev, h, found)
		}
	}
}
