package node

import (
	"testing"
	"time"
)

func TestDefault_IsValid(t *testing.T) {
	c := Default()
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	if got := c.dataDir(); got != "default.etcd" {
		t.Errorf("data directory %q", got)
	}
}

func TestLeaseTTLMin_IsOneAndAHalfElectionTimeoutsRoundedUp(t *testing.T) {
	c := Default()
	for _, x := range []struct {
		heartbeat, election time.Duration
		want                int64
	}{
		{100 * time.Millisecond, time.Second, 2},
		{100 * time.Millisecond, 5 * time.Second, 8},
		{10 * time.Millisecond, 50 * time.Millisecond, 1},
		{500 * time.Millisecond, 50 * time.Second, 75},
	} {
		c.Heartbeat, c.Election = x.heartbeat, x.election
		if got := c.leaseTTLMin(); got != x.want {
			t.Errorf("heartbeat %v, election %v: minimum %d s, want %d s", x.heartbeat, x.election, got, x.want)
		}
	}
}
