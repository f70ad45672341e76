package main

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Scenario (g): a million keys at rest, and a restart with them.
const (
	millionKeys       = 1_000_000
	millionKeyBytes   = 64
	millionValueBytes = 256
	// millionPuts single puts after the loading bring both servers past their next snapshot, which they take every 10,000
	// entries: a member that has run for a while never replays more.
	millionPuts = 10_000
	// millionSettle is how long a server may tidy up before its memory is looked at: troupe gives memory back after half
	// a minute of calm.
	millionSettle = 45 * time.Second
)

func millionScenario() scenario {
	return scenario{
		letter: "g", title: "1,000,000 keys of 64 bytes with values of 256",
		figures: []figure{
			{key: "rss", title: "RSS at rest after loading, MiB", target: shareOfEtcd("rss", 1)},
			{key: "anonymous", title: "of it not the mapped file, MiB"},
			{key: "peak", title: "peak RSS while loading, MiB"},
			{
				key: "restart", title: "restart until a linearizable count, s", digits: 2,
				target: shareOfEtcd("restart", 0.5),
			},
			{key: "restart cpu", title: "CPU of the restart, s", digits: 2},
			{key: "rss again", title: "RSS at rest after the restart, MiB", target: shareOfEtcd("rss again", 1)},
			{key: "anonymous again", title: "of it not the mapped file, MiB"},
		},
		play: playMillion,
	}
}

func playMillion(t *trial) error {
	keys := t.count(millionKeys, 10_000)
	key := func(i int) string {
		k := fmt.Sprintf("million/%08d/", i)
		return k + strings.Repeat("k", millionKeyBytes-len(k))
	}
	value := make([]byte, millionValueBytes)
	if err := loadKeys(t, keys, key, value, nil); err != nil {
		return err
	}
	if err := loadRevisions(t, t.count(millionPuts, 100), key, value); err != nil {
		return err
	}
	t.note("%d keys loaded", keys)
	if err := t.memoryAtRest(""); err != nil {
		return err
	}
	peak, err := peakMemory(t.server.Pid())
	if err != nil {
		return err
	}
	t.set("peak", peak)
	t.server.Signal(syscall.SIGTERM)
	select {
	case <-t.server.Exited():
	case <-t.ctx.Done():
		return errors.New("the server does not stop")
	}
	begin := time.Now()
	if err := t.server.Run(); err != nil {
		return err
	}
	if err := countKeys(t, "million/", "million0", keys); err != nil {
		return err
	}
	t.set("restart", time.Since(begin).Seconds())
	used, err := cpuTime(t.server.Pid())
	if err != nil {
		return err
	}
	t.set("restart cpu", used.Seconds())
	return t.memoryAtRest(" again")
}

// memoryAtRest lets the server settle and looks at its memory; the suffix is that of the figures.
func (t *trial) memoryAtRest(suffix string) error {
	if err := t.rest(millionSettle); err != nil {
		return err
	}
	resident, err := residentMemory(t.server.Pid())
	if err != nil {
		return err
	}
	anonymous, err := anonymousMemory(t.server.Pid())
	if err != nil {
		return err
	}
	t.set("rss"+suffix, resident)
	t.set("anonymous"+suffix, anonymous)
	t.heap("rest" + suffix)
	return nil
}

// countKeys checks with a linearizable read that all keys of a range are there.
func countKeys(t *trial, first, end string, keys int) error {
	conn, err := t.server.Dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	r, err := pb.NewKVClient(conn).Range(t.ctx, &pb.RangeRequest{
		Key: []byte(first), RangeEnd: []byte(end), CountOnly: true,
	})
	if err == nil && r.Count != int64(keys) {
		err = fmt.Errorf("%d keys, want %d", r.Count, keys)
	}
	return err
}
