package storeactor

import (
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	gproto "google.golang.org/protobuf/proto"

	"troupe/proto"
)

// rig drives a machine without actors: it executes requests one by one and plays the backend itself, on the model
// file.
type rig struct {
	tb      testing.TB
	file    *ModelFile
	m       *machine
	unsent  []proto.BucketWrite
	events  []proto.Event
	changes []proto.LeaseChange
	cache   int64 // bytes
}

const rigLeaseTTLMin = 2

func newRig(tb testing.TB) *rig {
	r := &rig{tb: tb, file: NewModelFile(ModelOptions{}), cache: 1 << 20}
	r.start()
	return r
}

// start makes the machine from the file.
func (r *rig) start() {
	restored, err := Restore(r.file, r.cache)
	if err != nil {
		r.tb.Fatal(err)
	}
	r.m = newMachine(&Config{File: r.file, Restored: restored, LeaseTTLMin: rigLeaseTTLMin, QuotaBytes: -1})
}

// mustRun executes a request that must succeed.
func (r *rig) mustRun(request *pb.InternalRaftRequest) {
	r.tb.Helper()
	if _, err := r.run(request, true); err != nil {
		r.tb.Fatal(err)
	}
}

// tallyOf executes a request and gives what it counted.
func (r *rig) tallyOf(request *pb.InternalRaftRequest) tally {
	r.m.execute(&proto.Batch{Commands: []proto.Command{
		{Index: r.m.applied + 1, Term: 1, Request: request, Answer: discard{}}}})
	return r.m.takeOutput().tally
}

// discard is a waiter that does not look.
type discard struct{}

func (discard) Send(*proto.Result) {}
func (discard) Fail(error)         {}

// run executes one request as an entry of its own.
func (r *rig) run(request *pb.InternalRaftRequest, waited bool) (*proto.Result, error) {
	c := proto.Command{Index: r.m.applied + 1, Term: 1, Request: request}
	if waited {
		c.Answer = discard{}
	}
	r.m.execute(&proto.Batch{Commands: []proto.Command{c}})
	o := r.m.takeOutput()
	r.unsent = append(r.unsent, o.writes...)
	r.events = append(r.events, o.events...)
	r.changes = append(r.changes, o.leases...)
	if !waited {
		return nil, nil
	}
	return o.answers[0].result, o.answers[0].err
}

// must is run for a request that cannot fail.
func (r *rig) must(request *pb.InternalRaftRequest) *proto.Result {
	r.tb.Helper()
	result, err := r.run(request, true)
	if err != nil {
		r.tb.Fatalf("%v: %v", request, err)
	}
	return result
}

func (r *rig) put(key, value string) proto.Revision {
	r.tb.Helper()
	return r.must(&pb.InternalRaftRequest{Put: &pb.PutRequest{Key: []byte(key), Value: []byte(value)}}).Revision
}

func (r *rig) delete(key string) proto.Revision {
	r.tb.Helper()
	return r.must(&pb.InternalRaftRequest{DeleteRange: &pb.DeleteRangeRequest{Key: []byte(key)}}).Revision
}

// write commits writes to the file and gives the machine the new handle.
func (r *rig) write(writes []proto.BucketWrite) {
	r.tb.Helper()
	w, err := r.file.Begin()
	if err != nil {
		r.tb.Fatal(err)
	}
	for _, one := range writes {
		if one.Delete {
			err = w.Delete(one.Bucket, one.Key)
		} else {
			err = w.Put(one.Bucket, one.Key, one.Value)
		}
		if err != nil {
			r.tb.Fatal(err)
		}
	}
	if _, err := w.Commit(); err != nil {
		r.tb.Fatal(err)
	}
	view, err := r.file.View()
	if err != nil {
		r.tb.Fatal(err)
	}
	old := r.m.checkpointed(&checkpointed{
		index: r.m.applied, revision: r.m.revision, view: view, sizes: r.file.Sizes(),
	})
	old.Release()
}

// checkpoint writes everything executed so far.
func (r *rig) checkpoint() {
	r.tb.Helper()
	r.write(r.unsent)
	r.unsent = nil
}

// compactAll finishes the compactions under way, the index in small steps and then the file.
func (r *rig) compactAll() {
	r.tb.Helper()
	for r.m.compactionDue() {
		request := r.m.compactStep(3)
		if request == nil {
			continue
		}
		r.checkpoint()
		r.deletePhysically(request)
		close(r.m.compactedPhysically(request.revision))
	}
}

func (r *rig) deletePhysically(request *compactFile) {
	r.tb.Helper()
	var gone []proto.BucketWrite
	end := appendVersionKey(nil, proto.Version{Main: request.revision + 1})
	err := r.m.file.Scan(proto.BucketKey, nil, end, func(key, record []byte) bool {
		v, _, _ := parseVersionKey(key)
		if !request.keep(keyOfRecord(record), v) {
			gone = append(gone, proto.BucketWrite{
				Bucket: proto.BucketKey, Key: append([]byte(nil), key...), Delete: true,
			})
		}
		return true
	})
	if err != nil {
		r.tb.Fatal(err)
	}
	r.write(append(gone, proto.BucketWrite{
		Bucket: proto.BucketMeta, Key: metaFinished, Value: appendVersionKey(nil, proto.Version{Main: request.revision}),
	}))
}

// restart ends the machine with everything written, and starts anew from the file. The applied index is the rig's
// own.
func (r *rig) restart() {
	r.tb.Helper()
	r.checkpoint()
	applied := r.m.applied
	r.m.file.Release()
	r.start()
	r.m.applied = applied
}

// view reads the present state; the handle is the machine's.
func (r *rig) view() *View { return newView(r.m.state()) }

// stored lists the versions in the key bucket of the file, tombstones with a t.
func (r *rig) stored() []string {
	var all []string
	_ = r.m.file.Scan(proto.BucketKey, nil, nil, func(key, record []byte) bool {
		v, tombstone, _ := parseVersionKey(key)
		all = append(all, versionText(v, tombstone)+"="+string(keyOfRecord(record)))
		return true
	})
	return all
}

func (r *rig) get(key string) (string, bool) {
	r.tb.Helper()
	answer := &pb.RangeResponse{}
	decode(r.tb, r.must(&pb.InternalRaftRequest{Range: &pb.RangeRequest{Key: []byte(key)}}), answer)
	if len(answer.Kvs) == 0 {
		return "", false
	}
	return string(answer.Kvs[0].Value), true
}

// decode reads the body of a result with the official types, and gives the pooled pieces back.
func decode(tb testing.TB, result *proto.Result, into gproto.Message) {
	tb.Helper()
	var body []byte
	for _, piece := range result.Body.Pieces {
		body = append(body, piece...)
	}
	if len(body) != result.Body.Len() {
		tb.Fatalf("the body has %d bytes and says %d", len(body), result.Body.Len())
	}
	if err := gproto.Unmarshal(body, into); err != nil {
		tb.Fatalf("%T: %v", into, err)
	}
	if again, _ := gproto.Marshal(into); string(again) != string(body) {
		tb.Fatalf("%T does not come out as it went in:\n%x\n%x", into, again, body)
	}
	if result.Body.Release != nil {
		for _, piece := range result.Body.Pieces {
			_ = piece[len(piece)-1]
		}
		result.Body.Release()
	}
}
