package badinput

import (
	"fmt"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"troupe/integration/harness"
)

const (
	limit = time.Minute
	// witnesses are the keys that are written before an attack and must be there after it.
	witnesses = 20
)

// surviving starts a server, lets attack run, and then checks that the server has lost nothing, still serves, and does
// so again after kill -9.
func surviving(t *testing.T, attack func(*harness.Server)) {
	t.Helper()
	s := harness.Start(t, harness.Options{})
	put := func(key, value string) {
		t.Helper()
		request := &pb.PutRequest{Key: []byte(key), Value: []byte(value)}
		if _, err := pb.NewKVClient(s.Conn(t)).Put(harness.Context(t, limit), request); err != nil {
			t.Fatalf("put %s: %v", key, err)
		}
	}
	for i := range witnesses {
		put(fmt.Sprintf("witness/%02d", i), fmt.Sprint(i))
	}
	attack(s)
	check := func(when string) {
		t.Helper()
		request := &pb.RangeRequest{Key: []byte("witness/"), RangeEnd: []byte("witness0")}
		r, err := pb.NewKVClient(s.Conn(t)).Range(harness.Context(t, limit), request)
		if err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		if len(r.Kvs) != witnesses {
			t.Fatalf("%s: %d of %d keys are left", when, len(r.Kvs), witnesses)
		}
		for i, kv := range r.Kvs {
			if string(kv.Key) != fmt.Sprintf("witness/%02d", i) || string(kv.Value) != fmt.Sprint(i) {
				t.Errorf("%s: key %d is %v", when, i, kv)
			}
		}
	}
	if !s.Running() {
		t.Fatalf("the server has died:\n%s", s.Log().Tail(20))
	}
	check("after the attack")
	put("after", "the attack")
	s.Kill(t)
	s.Start(t)
	check("after the restart")
	put("after", "the restart")
}
