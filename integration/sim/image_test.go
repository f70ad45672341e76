package sim

import (
	"encoding/binary"
	"path"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/raft/v3/raftpb"
	gproto "google.golang.org/protobuf/proto"

	"troupe/proto"
	"troupe/raftactor"
	"troupe/raftactor/disktest"
	"troupe/storeactor"
)

// checkImage looks at what a crash has left, before anybody repairs it: what rule 4.5 promises about the log, the .snap
// files and the database file together, and that everything that was ever applied is in the log or behind it.
func (w *world) checkImage() {
	c, err := copyDisk(w.disk, walDir, snapDir)
	if err != nil {
		w.fail("copy the disk: %w", err)
		return
	}
	held := w.held()
	exists, err := raftactor.LogExists(c, walDir)
	if err != nil || !exists {
		if err != nil || held > 0 || w.history.last() > 0 {
			w.fail("the log is gone (%v); the file holds index %d, applied was %d", err, held, w.history.last())
		}
		return
	}
	log, r, err := raftactor.OpenLog(c, walDir)
	if err != nil {
		w.fail("the log does not open: %w", err)
		return
	}
	defer func() { _ = log.Close() }() // of a copy
	commit, last := proto.Index(r.HardState.GetCommit()), r.Start.Index+proto.Index(len(r.Entries))
	w.trace.add("image", r.Start.Index, held, commit, last, r.Repaired)
	if r.Start.Index > held || held > commit {
		w.fail("on the disk: snapshot record %d, file %d, commit %d", r.Start.Index, held, commit)
	}
	if last < w.history.last() {
		w.fail("on the disk: the log ends at %d, applied was %d: %s", last, w.history.last(),
			w.history.at(w.history.last()).describe())
	}
	w.checkEntries(r)
	if r.Start.Index > 0 {
		w.tally.snapshots++
		w.checkSnap(c, &r.Start)
	}
}

// checkEntries compares the entries in the log with what was applied.
func (w *world) checkEntries(r *raftactor.Recovered) {
	for i, e := range r.Entries {
		index := r.Start.Index + 1 + proto.Index(i)
		if index > w.history.last() || w.failure != nil {
			return
		}
		was := w.history.at(index)
		if was.term != proto.Term(e.GetTerm()) {
			w.fail("on the disk: entry %d is of term %d, applied was term %d", index, e.GetTerm(), was.term)
		}
		if was.request == nil || e.GetType() != raftpb.EntryNormal {
			continue
		}
		var request pb.InternalRaftRequest
		if err := gproto.Unmarshal(e.Data, &request); err != nil || !gproto.Equal(&request, was.request) {
			w.fail("on the disk: entry %d is %v (%v), applied was %v", index, &request, err, was.request)
		}
	}
}

// checkSnap looks for the file that a snapshot record points to. etcd would start from it.
func (w *world) checkSnap(d *disktest.Disk, record *raftactor.SnapshotRecord) {
	names, err := raftactor.ListSnapFiles(d, snapDir)
	if err != nil {
		w.fail("on the disk: %w", err)
		return
	}
	for _, name := range names {
		s, err := raftactor.ReadSnapFile(d, path.Join(snapDir, name))
		if err != nil {
			continue
		}
		meta := s.GetMetadata()
		if proto.Index(meta.GetIndex()) == record.Index && proto.Term(meta.GetTerm()) == record.Term &&
			gproto.Equal(meta.GetConfState(), record.ConfState) {
			return
		}
	}
	w.fail("on the disk: no whole .snap for the snapshot record at %d among %q", record.Index, names)
}

// fileIndex reads the index that a database file holds.
func fileIndex(f storeactor.File) (proto.Index, error) {
	v, err := f.View()
	if err != nil {
		return 0, err
	}
	defer v.Release()
	b, found, err := v.Append(nil, proto.BucketMeta, []byte("consistent_index"))
	if err != nil || !found {
		return 0, err
	}
	return proto.Index(binary.BigEndian.Uint64(b)), nil
}
