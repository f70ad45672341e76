package storeactor

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/raft/v3/raftpb"
	gproto "google.golang.org/protobuf/proto"

	"troupe/proto"
)

// Restore reads everything a start needs out of the file, written by us or by etcd 3.5 or later, in bounded memory
// beside what the index keeps. cacheBytes bounds the values that are kept in memory later; 0 is the default. On success
// the caller owns the read handle in the answer. A file without auth revision gets revision 1, as etcd does at its
// start.
func Restore(file File, cacheBytes int64) (*Restored, error) {
	if err := writeAuthRevision(file); err != nil {
		return nil, err
	}
	view, err := file.View()
	if err != nil {
		return nil, err
	}
	r := &Restored{View: view, Sizes: file.Sizes()}
	if err := r.read(cacheBytes); err != nil {
		view.Release()
		return nil, err
	}
	return r, nil
}

// writeAuthRevision writes the first auth revision, in a commit of its own that is skipped when there is one.
func writeAuthRevision(file File) error {
	view, err := file.View()
	if err != nil {
		return err
	}
	_, found, err := view.Append(nil, proto.BucketAuth, authRevisionKey)
	view.Release()
	if err != nil || found {
		return err
	}
	w, err := file.Begin()
	if err != nil {
		return err
	}
	if err := w.Put(proto.BucketAuth, authRevisionKey, binary.BigEndian.AppendUint64(nil, 1)); err != nil {
		w.Rollback()
		return err
	}
	_, err = w.Commit()
	return err
}

// read fills everything in. Leases come before keys, because a key's lease is attached while the index is finished.
func (r *Restored) read(cacheBytes int64) error {
	for _, part := range []func() error{
		r.readMeta, r.readLeases, r.readAlarms, r.readMembers, r.readCluster, r.readAuth,
	} {
		if err := part(); err != nil {
			return err
		}
	}
	return r.readKeys(cacheBytes)
}

// record reads one record; nil when there is none, not when it is empty.
func (r *Restored) record(bucket proto.Bucket, key []byte) ([]byte, error) {
	value, found, err := r.View.Append([]byte{}, bucket, key)
	if err != nil || !found {
		return nil, err
	}
	return value, nil
}

// number reads an 8-byte record; 0 when there is none.
func (r *Restored) number(bucket proto.Bucket, key []byte) (uint64, error) {
	value, err := r.record(bucket, key)
	if err != nil || value == nil {
		return 0, err
	}
	if len(value) != 8 {
		return 0, damagedRecord(bucket, key, fmt.Errorf("%d bytes instead of 8", len(value)))
	}
	return binary.BigEndian.Uint64(value), nil
}

func damagedRecord(bucket proto.Bucket, key []byte, err error) error {
	return fmt.Errorf("%w: bucket %s, key %q: %w", ErrFileDamaged, bucket, key, err)
}

func (r *Restored) readMeta() error {
	index, err := r.number(proto.BucketMeta, metaConsistentIndex)
	if err != nil {
		return err
	}
	term, err := r.number(proto.BucketMeta, metaTerm)
	if err != nil {
		return err
	}
	r.Index, r.Term = proto.Index(index), proto.Term(term)
	compactions, err := readCompactions(r.View)
	if err != nil {
		return err
	}
	r.Scheduled, r.Finished = compactions.scheduled, compactions.finished
	conf, err := r.record(proto.BucketMeta, metaConfState)
	if err != nil || conf == nil {
		return err
	}
	r.ConfState = &raftpb.ConfState{}
	if err := json.Unmarshal(conf, r.ConfState); err != nil {
		return damagedRecord(proto.BucketMeta, metaConfState, err)
	}
	return nil
}

// each runs f for every record of a bucket and stops at the first error, which it reports with its place.
func (r *Restored) each(bucket proto.Bucket, f func(key, value []byte) error) error {
	var bad error
	err := r.View.Scan(bucket, nil, nil, func(key, value []byte) bool {
		if err := f(key, value); err != nil {
			bad = damagedRecord(bucket, key, err)
		}
		return bad == nil
	})
	return cmp.Or(bad, err)
}

func (r *Restored) readLeases() error {
	return r.each(proto.BucketLease, func(key, value []byte) error {
		if len(key) != 8 {
			return errors.New("the key of a lease has 8 bytes")
		}
		var record proto.LeaseRecord
		if err := gproto.Unmarshal(value, &record); err != nil {
			return err
		}
		r.Leases = append(r.Leases, proto.Lease{
			ID: proto.LeaseID(record.GetId()), TTL: record.GetTtl(), Remaining: record.GetRemainingTtl(),
		})
		return nil
	})
}

func (r *Restored) readAlarms() error {
	return r.each(proto.BucketAlarm, func(key, _ []byte) error {
		var record pb.AlarmMember
		if err := gproto.Unmarshal(key, &record); err != nil {
			return err
		}
		r.Alarms = append(r.Alarms, Alarm{Member: proto.MemberID(record.GetMemberID()), Type: record.GetAlarm()})
		return nil
	})
}

func (r *Restored) readMembers() error {
	r.Membership = &proto.Membership{}
	err := r.each(proto.BucketMembers, func(key, value []byte) error {
		id, err := strconv.ParseUint(string(key), 16, 64)
		if err != nil {
			return err
		}
		var member proto.Member
		if err := json.Unmarshal(value, &member); err != nil {
			return err
		}
		if member.ID != proto.MemberID(id) {
			return fmt.Errorf("the record is of member %s", member.ID)
		}
		r.Membership.Members = append(r.Membership.Members, member)
		return nil
	})
	if err != nil {
		return err
	}
	err = r.each(proto.BucketMembersRemoved, func(key, _ []byte) error {
		id, err := strconv.ParseUint(string(key), 16, 64)
		r.Membership.Removed = append(r.Membership.Removed, proto.MemberID(id))
		return err
	})
	// The file's order is that of the hex texts, which have no leading zeros.
	slices.SortFunc(r.Membership.Members, func(a, b proto.Member) int { return cmp.Compare(a.ID, b.ID) })
	slices.Sort(r.Membership.Removed)
	return err
}

func (r *Restored) readCluster() error {
	version, err := r.record(proto.BucketCluster, clusterVersionKey)
	if err != nil {
		return err
	}
	r.Membership.ClusterVersion = string(version)
	value, err := r.record(proto.BucketCluster, clusterDowngradeKey)
	if err != nil || value == nil {
		return err
	}
	var downgrade struct {
		Target  string `json:"target-version"`
		Enabled bool   `json:"enabled"`
	}
	if err := json.Unmarshal(value, &downgrade); err != nil {
		return damagedRecord(proto.BucketCluster, clusterDowngradeKey, err)
	}
	if downgrade.Enabled {
		r.Membership.DowngradeTarget = downgrade.Target
	}
	return nil
}

func (r *Restored) readAuth() error {
	enabled, err := r.record(proto.BucketAuth, authEnabledKey)
	if err != nil {
		return err
	}
	r.AuthEnabled = len(enabled) == 1 && enabled[0] == 1
	r.AuthRevision, err = r.number(proto.BucketAuth, authRevisionKey)
	return err
}

// Records travel from the file to the index in pieces of this many, and so many pieces are made: one is filled, one is
// read, and one may wait. Their memory is that of their keys.
const (
	keyPieceRecords = 1024
	keyPieces       = 3
)

// keyPiece is a run of records with copies of their keys: the file's bytes stay with the transaction that gave them.
type keyPiece struct {
	records []keyRecord
	keys    []byte
}

func (p *keyPiece) add(r keyRecord) {
	at := len(p.keys)
	p.keys = append(p.keys, r.key...)
	r.key = p.keys[at:len(p.keys):len(p.keys)] // when keys moves, this stays where it was
	p.records = append(p.records, r)
}

func (p *keyPiece) clear() { p.records, p.keys = p.records[:0], p.keys[:0] }

// readKeys streams the key bucket through the index builder. Reading the file, which waits for the disk and for pages,
// and building the index take as long as each other, so each has a goroutine.
func (r *Restored) readKeys(cacheBytes int64) error {
	filled, free := make(chan *keyPiece, keyPieces), make(chan *keyPiece, keyPieces)
	for range keyPieces {
		free <- &keyPiece{}
	}
	scanned := make(chan error, 1)
	go func() {
		defer close(filled)
		piece := <-free
		scanned <- r.each(proto.BucketKey, func(key, value []byte) error {
			record, ok := parseKeyRecord(key, value)
			if !ok {
				return errors.New("not the key of a revision")
			}
			if piece.add(record); len(piece.records) == keyPieceRecords {
				filled <- piece
				piece = <-free
			}
			return nil
		})
		filled <- piece
	}()
	builder := newIndexBuilder(cacheBytes)
	for piece := range filled {
		for i := range piece.records {
			builder.add(&piece.records[i])
		}
		piece.clear()
		free <- piece
	}
	if err := <-scanned; err != nil {
		return err
	}
	r.Keys = builder.finish(r.Leases)
	return nil
}

// RemoveLeftovers removes from the directory of the file what a crash has left there: half-received snapshots (tmp*)
// and half-made copies of a defragmentation (db.tmp*). It gives the names removed. Only the process that holds the lock
// of the file may call it.
func RemoveLeftovers(directory string) (removed []string, err error) {
	entries, err := os.ReadDir(directory)
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		name := entry.Name()
		if entry.IsDir() || !strings.HasPrefix(name, "tmp") && !strings.HasPrefix(name, "db.tmp") {
			continue
		}
		if err := os.Remove(filepath.Join(directory, name)); err != nil {
			return removed, err
		}
		removed = append(removed, name)
	}
	return removed, nil
}
