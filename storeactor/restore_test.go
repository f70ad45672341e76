package storeactor

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.uber.org/goleak"
	gproto "google.golang.org/protobuf/proto"

	"troupe/proto"
)

func fileWith(t *testing.T, writes ...proto.BucketWrite) *ModelFile {
	t.Helper()
	file := NewModelFile(ModelOptions{})
	w, err := file.Begin()
	if err != nil {
		t.Fatal(err)
	}
	apply(w, writes)
	if _, err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	return file
}

func record(bucket proto.Bucket, key, value string) proto.BucketWrite {
	return proto.BucketWrite{Bucket: bucket, Key: []byte(key), Value: []byte(value)}
}

func big(n uint64) string { return string(binary.BigEndian.AppendUint64(nil, n)) }

// TestRestore_ReadsEveryBucket in etcd's formats, the order of hex ids and ids above 2^53 among them.
func TestRestore_ReadsEveryBucket(t *testing.T) {
	alarm, err := gproto.Marshal(&pb.AlarmMember{MemberID: 0xabc, Alarm: pb.AlarmType_NOSPACE})
	if err != nil {
		t.Fatal(err)
	}
	lease, err := gproto.Marshal(&proto.LeaseRecord{Id: 7, Ttl: 60, RemainingTtl: 5})
	if err != nil {
		t.Fatal(err)
	}
	file := fileWith(t,
		record(proto.BucketMeta, "consistent_index", big(42)), record(proto.BucketMeta, "term", big(3)),
		record(proto.BucketMeta, "confState", `{"voters":[2748,18446744073709551615],"auto_leave":false}`),
		record(proto.BucketMeta, "scheduledCompactRev", big(9)+"_"+big(0)),
		record(proto.BucketLease, big(7), string(lease)), record(proto.BucketAlarm, string(alarm), ""),
		record(proto.BucketMembers, "abc", `{"id":2748,"peerURLs":["http://a"],"name":"one","clientURLs":["http://b"]}`),
		record(proto.BucketMembers, "ffffffffffffffff", `{"id":18446744073709551615,"peerURLs":[],"isLearner":true}`),
		record(proto.BucketMembersRemoved, "10", "removed"), record(proto.BucketMembersRemoved, "9", "removed"),
		record(proto.BucketCluster, "clusterVersion", "3.7.0"),
		record(proto.BucketCluster, "downgrade", `{"target-version":"3.6.0","enabled":true}`),
		record(proto.BucketAuth, "authEnabled", "\x01"), record(proto.BucketAuth, "authRevision", big(8)),
		record(proto.BucketKey, big(5)+"_"+big(0), "\n\x01a"), record(proto.BucketKey, big(6)+"_"+big(0)+"t", "\n\x01a"),
		record(proto.BucketKey, big(8)+"_"+big(0), ""), // what etcdutl --bump-revision leaves
	)
	r, err := Restore(file, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer r.View.Release()
	if r.Index != 42 || r.Term != 3 || r.Scheduled != 9 || r.Finished != -1 || r.Keys.revision != 8 {
		t.Errorf("restored %+v", r)
	}
	if want := []proto.Lease{{ID: 7, TTL: 60, Remaining: 5}}; !slices.Equal(r.Leases, want) {
		t.Errorf("leases %v", r.Leases)
	}
	if want := []Alarm{{Member: 0xabc, Type: pb.AlarmType_NOSPACE}}; !slices.Equal(r.Alarms, want) {
		t.Errorf("alarms %v", r.Alarms)
	}
	m := r.Membership
	if len(m.Members) != 2 || m.Members[0].Name != "one" || !m.Members[1].IsLearner || m.Members[1].ID != 1<<64-1 ||
		!slices.Equal(m.Removed, []proto.MemberID{9, 16}) || m.ClusterVersion != "3.7.0" || m.DowngradeTarget != "3.6.0" {
		t.Errorf("membership %+v", m)
	}
	if voters := r.ConfState.GetVoters(); len(voters) != 2 || voters[1] != 1<<64-1 {
		t.Errorf("voters %v", voters)
	}
	if !r.AuthEnabled || r.AuthRevision != 8 {
		t.Errorf("auth %v %d", r.AuthEnabled, r.AuthRevision)
	}
}

// TestRestore_FreshFileGetsTheFirstAuthRevision, once.
func TestRestore_FreshFileGetsTheFirstAuthRevision(t *testing.T) {
	file := NewModelFile(ModelOptions{})
	for range 2 {
		r, err := Restore(file, 0)
		if err != nil {
			t.Fatal(err)
		}
		if r.Index != 0 || r.ConfState != nil || r.AuthRevision != 1 || r.Scheduled != -1 || r.Finished != -1 {
			t.Fatalf("restored %+v", r)
		}
		r.View.Release()
	}
}

// TestRestore_DamagedRecordIsNamed: the error says where, no handle is left open.
func TestRestore_DamagedRecordIsNamed(t *testing.T) {
	for name, damage := range map[string]proto.BucketWrite{
		"short index":             record(proto.BucketMeta, "consistent_index", "\x01"),
		"short compact revision":  record(proto.BucketMeta, "finishedCompactRev", big(1)),
		"confState is no JSON":    record(proto.BucketMeta, "confState", "{"),
		"lease key of 3 bytes":    record(proto.BucketLease, "abc", ""),
		"lease is no message":     record(proto.BucketLease, big(1), "\xff"),
		"alarm is no message":     record(proto.BucketAlarm, "\xff", ""),
		"member id is no hex":     record(proto.BucketMembers, "xyz", "{}"),
		"member of another id":    record(proto.BucketMembers, "1", `{"id":2}`),
		"member is no JSON":       record(proto.BucketMembers, "1", "nonsense"),
		"removed id is no hex":    record(proto.BucketMembersRemoved, "xyz", "removed"),
		"downgrade is no JSON":    record(proto.BucketCluster, "downgrade", "nonsense"),
		"revision key too short":  record(proto.BucketKey, "abc", ""),
		"revision key, no mark":   record(proto.BucketKey, big(1)+"-"+big(0), ""),
		"revision key, odd mark":  record(proto.BucketKey, big(1)+"_"+big(0)+"x", ""),
		"short auth revision":     record(proto.BucketAuth, "authRevision", ""),
		"auth revision too large": record(proto.BucketAuth, "authRevision", big(1)+"x"),
	} {
		t.Run(name, func(t *testing.T) {
			file := fileWith(t, damage)
			if _, err := Restore(file, 0); !errors.Is(err, ErrFileDamaged) {
				t.Fatalf("restored with %v", err)
			}
			if n := file.OpenViews(); n != 0 {
				t.Fatalf("%d handles are left", n)
			}
		})
	}
}

// TestRemoveLeftovers_TakesOnlyWhatACrashLeft.
func TestRemoveLeftovers_TakesOnlyWhatACrashLeft(t *testing.T) {
	dir := t.TempDir()
	keep := []string{"0000000000000001-0000000000000005.snap", "0000000000000005.snap.db", "db", "x.broken"}
	for _, name := range append([]string{"tmp123", "db.tmp.456"}, keep...) {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	removed, err := RemoveLeftovers(dir)
	if err != nil || !slices.Equal(removed, []string{"db.tmp.456", "tmp123"}) {
		t.Fatalf("removed %q: %v", removed, err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if !slices.Equal(left, keep) {
		t.Fatalf("left %q", left)
	}
}

// Keys survive the pieces in which they travel: more of them than there are pieces, of different lengths, one put in
// each piece and deleted in the last.
func TestRestore_KeysOfManyPiecesAreWhole(t *testing.T) {
	const records = keyPieceRecords*(keyPieces+2) + 17
	writes := make([]proto.BucketWrite, 0, records+1)
	encoded := func(i int) string {
		key := strings.Repeat("k", i%50) + big(uint64(i))
		if i%keyPieceRecords == 0 {
			key = "often"
		}
		return "\n" + string(rune(len(key))) + key
	}
	for i := range records {
		writes = append(writes, record(proto.BucketKey, big(uint64(i+2))+"_"+big(0), encoded(i)))
	}
	writes = append(writes, record(proto.BucketKey, big(records+2)+"_"+big(0)+"t", encoded(0)))
	r, err := Restore(fileWith(t, writes...), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer r.View.Release()
	often := records/keyPieceRecords + 1
	if r.Keys.keys != records-often || r.Keys.revision != records+2 || r.Keys.damaged != 0 {
		t.Errorf("%d keys at revision %d, %d damaged", r.Keys.keys, r.Keys.revision, r.Keys.damaged)
	}
	for i := range records {
		kv, _ := parseKeyValue([]byte(encoded(i)))
		e, ok := r.Keys.tree.Get(&keyEntry{key: kv.key})
		if !ok || !e.has(proto.Version{Main: proto.Revision(i + 2)}) || e.alive() == (string(kv.key) == "often") {
			t.Fatalf("record %d, key %q: %+v", i, kv.key, e)
		}
	}
}

// A damaged record ends the reading, wherever it is, and what reads ahead ends too.
func TestRestore_DamagedRecordEndsBothSides(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	const good = keyPieceRecords*keyPieces + 5
	var writes []proto.BucketWrite
	for i := range good {
		writes = append(writes, record(proto.BucketKey, big(uint64(i+2))+"_"+big(0), "\n\x01a"))
	}
	writes = append(writes, record(proto.BucketKey, big(good+2)+"?", "\n\x01a"))
	for i := range good {
		writes = append(writes, record(proto.BucketKey, big(uint64(good+3+i))+"_"+big(0), "\n\x01a"))
	}
	if _, err := Restore(fileWith(t, writes...), 0); !errors.Is(err, ErrFileDamaged) {
		t.Errorf("the error is %v, want %v", err, ErrFileDamaged)
	}
}
