package differential

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	bolt "go.etcd.io/bbolt"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// snapshotPieceBytes is the size of every piece of a snapshot but the last.
const snapshotPieceBytes = 32 << 10

// snapshotLook is how long a compaction is given between two looks at how far it has come.
const snapshotLook = 20 * time.Millisecond

// snapshotTaken is what one server sent, without what is left out of the comparison.
type snapshotTaken struct {
	err, version string
	// records are all that the file holds, in its order, as lines of text.
	records []string
	left    map[string]int
}

// snapshot downloads a snapshot from both servers at the same point of the script. Each stream must have the form that
// etcd's has, and the two files must hold the same.
func (w *world) snapshot(s step) *difference {
	taken := both(w, func(side *side) snapshotTaken { return side.snapshot(w.base) })
	etcd, troupe := taken[etcdSide], taken[troupeSide]
	for name, n := range etcd.left {
		w.counters.used[name] += n
	}
	if etcd.err != "" || troupe.err != "" {
		return &difference{s.String(), etcd.err, troupe.err}
	}
	w.counters.outcomes["Snapshot: OK"]++
	if etcd.version < storageVersion {
		w.use(leftVersion)
		etcd.version = storageVersion
	}
	if etcd.version != troupe.version {
		return &difference{s.String(), "version " + etcd.version, "version " + troupe.version}
	}
	for i := range max(len(etcd.records), len(troupe.records)) {
		if a, b := lineAt(etcd.records, i), lineAt(troupe.records, i); a != b {
			return &difference{s.String(), a, b}
		}
	}
	w.counters.snapshots++
	w.counters.records += len(etcd.records)
	return nil
}

func lineAt(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return "(no more records)"
}

// snapshot downloads one snapshot and reads it. What a compaction has not deleted yet depends on how far each server's
// has come, so that the snapshot is taken again until the file says that it is done.
func (s *side) snapshot(base int64) snapshotTaken {
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	for {
		file, version, err := s.download(ctx)
		if err != nil {
			return snapshotTaken{err: err.Error()}
		}
		r := &fileReader{side: s, base: base, taken: snapshotTaken{version: version, left: make(map[string]int)}}
		if err := r.read(file); err != nil {
			return snapshotTaken{err: err.Error()}
		}
		if r.scheduled == r.finished {
			return r.taken
		}
		select {
		case <-time.After(snapshotLook):
		case <-ctx.Done():
			return snapshotTaken{err: fmt.Sprintf("the compaction at %d is not finished", r.scheduled-base)}
		}
	}
}

// download reads one stream and checks its form: full pieces and a last one, the remaining bytes counted down to
// nothing, one version, no header, and the SHA-256 of it all in a message of its own behind them.
func (s *side) download(ctx context.Context) (file []byte, version string, err error) {
	stream, err := pb.NewMaintenanceClient(s.conn).Snapshot(ctx, &pb.SnapshotRequest{})
	if err != nil {
		return nil, "", err
	}
	var all []*pb.SnapshotResponse
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			got := status.Convert(err)
			return nil, "", fmt.Errorf("%v: %s, after %d messages", got.Code(), got.Message(), len(all))
		}
		all = append(all, r)
	}
	if len(all) < 2 {
		return nil, "", fmt.Errorf("a stream of %d messages", len(all))
	}
	pieces, last := all[:len(all)-1], all[len(all)-1]
	for _, r := range pieces {
		file = append(file, r.Blob...)
	}
	remaining := len(file)
	for i, r := range all {
		size := min(snapshotPieceBytes, remaining)
		if i == len(pieces) {
			size = sha256.Size
		} else {
			remaining -= len(r.Blob)
		}
		if len(r.Blob) != size || r.RemainingBytes != uint64(remaining) || r.Header != nil || r.Version != last.Version {
			return nil, "", fmt.Errorf("message %d of %d: %d bytes, want %d; %d remaining, want %d; header %v; version %q, "+
				"at the end %q", i, len(all), len(r.Blob), size, r.RemainingBytes, remaining, r.Header, r.Version, last.Version)
		}
	}
	if sum := sha256.Sum256(file); !bytes.Equal(last.Blob, sum[:]) {
		return nil, "", fmt.Errorf("the last message is %x, the hash of %d bytes is %x", last.Blob, len(file), sum)
	}
	return file, last.Version, nil
}

// fileReader reads what a database file holds.
type fileReader struct {
	side  *side
	base  int64
	taken snapshotTaken
	// scheduled and finished are the last compaction that was asked for and the last whose deletions are done.
	scheduled, finished int64
}

// read reads every record of every bucket.
func (r *fileReader) read(file []byte) error {
	f, err := os.CreateTemp("", "differential-*.db")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	_, err = f.Write(file)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	db, err := bolt.Open(f.Name(), 0o600, &bolt.Options{ReadOnly: true})
	if err != nil {
		return fmt.Errorf("open the file of the snapshot: %w", err)
	}
	defer func() { _ = db.Close() }()
	return db.View(func(tx *bolt.Tx) error {
		for err := range tx.Check() {
			return fmt.Errorf("the file of the snapshot is damaged: %w", err)
		}
		return tx.ForEach(func(bucket []byte, b *bolt.Bucket) error {
			r.taken.records = append(r.taken.records, "bucket "+string(bucket))
			if first := len(r.taken.records); string(bucket) == "members" || string(bucket) == "members_removed" {
				defer func() { slices.Sort(r.taken.records[first:]) }() // they are in the order of their ids
			}
			return b.ForEach(func(key, value []byte) error {
				line, err := r.record(string(bucket), key, value)
				if line != "" {
					r.taken.records = append(r.taken.records, fmt.Sprintf("%s: %s", bucket, line))
				}
				return err
			})
		})
	})
}

// record writes one record, or nothing when it is left out of the comparison.
func (r *fileReader) record(bucket string, key, value []byte) (string, error) {
	switch bucket {
	case "key":
		return r.revision(key, value)
	case "meta":
		return r.meta(string(key), value)
	case "members": // hex id -> JSON
		r.leave(leftIDs)
		return r.member(key, value)
	case "members_removed":
		r.leave(leftIDs)
		id, err := r.memberID(key)
		return fmt.Sprintf("%d = %q", id, value), err
	case "alarm": // the record is the key
		alarm := new(pb.AlarmMember)
		err := proto.Unmarshal(key, alarm)
		return fmt.Sprintf("%s, %q", text(alarm), value), err
	}
	return fmt.Sprintf("%q = %q", key, value), nil
}

func (r *fileReader) leave(why string) { r.taken.left[why]++ }

// revision writes one revision of a key, as the script counts. A tombstone has nothing but its key, and a third part
// in the record's.
func (r *fileReader) revision(key, value []byte) (string, error) {
	const mainBytes, partsBytes = 8, 8 + 1 + 8
	if len(key) < partsBytes {
		return "", fmt.Errorf("a revision of %d bytes: %x", len(key), key)
	}
	kv := new(mvccpb.KeyValue)
	if err := proto.Unmarshal(value, kv); err != nil {
		return "", fmt.Errorf("revision %x: %w", key, err)
	}
	shift(kv, -r.base)
	contract(kv)
	return fmt.Sprintf("%d%q = %s", int64(binary.BigEndian.Uint64(key))-r.base, key[mainBytes:], text(kv)), nil
}

// meta writes a record of the bucket of that name. Compactions are both ways round as the script counts.
func (r *fileReader) meta(key string, value []byte) (string, error) {
	switch key {
	case "consistent_index", "term":
		r.leave(leftRaft)
		return key + " is there", nil
	case "confState":
		r.leave(leftIDs)
		return confStateWithoutIDs(value)
	case "storageVersion":
		if string(value) < storageVersion {
			r.leave(leftVersion)
			value = []byte(storageVersion)
		}
	case "scheduledCompactRev", "finishedCompactRev":
		if len(value) < 8 {
			return "", fmt.Errorf("%s is %x", key, value)
		}
		revision := int64(binary.BigEndian.Uint64(value))
		if key == "finishedCompactRev" {
			r.finished = revision
		} else {
			r.scheduled = revision
		}
		return fmt.Sprintf("%s = %d%q", key, revision-r.base, value[8:]), nil
	}
	return fmt.Sprintf("%s = %q", key, value), nil
}

// memberID is what scripts call the member with that key, 0 when it is of an earlier script.
func (r *fileReader) memberID(key []byte) (int, error) {
	id, err := strconv.ParseUint(string(key), 16, 64)
	return slices.Index(r.side.members, id) + 1, err
}

// member writes a member as the file has it, in the words of scripts.
func (r *fileReader) member(key, value []byte) (string, error) {
	id, err := r.memberID(key)
	if err != nil {
		return "", err
	}
	number, err := strconv.ParseUint(string(key), 16, 64)
	line := strings.Replace(string(value), fmt.Sprintf(`"id":%d,`, number), fmt.Sprintf(`"id":%d,`, id), 1)
	line = strings.ReplaceAll(line, r.side.server.PeerURL, selfPeer)
	return strings.ReplaceAll(line, r.side.server.URL, selfClient), err
}

// confStateWithoutIDs writes who votes and who learns as how many do.
func confStateWithoutIDs(value []byte) (string, error) {
	var m map[string]any
	if err := json.Unmarshal(value, &m); err != nil {
		return "", err
	}
	for field, v := range m {
		if list, ok := v.([]any); ok {
			m[field] = len(list)
		}
	}
	line, err := json.Marshal(m)
	return "confState = " + string(line), err
}
