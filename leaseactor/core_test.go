package leaseactor

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"troupe/actors"
	"troupe/proto"
)

// TestCore_Transcripts runs testdata/*.txt: ticks of 100 ms (checkpoint=n sets their distance), an election timeout
// of 10 ticks. Each command prints the effects; answers are printed with the name of the renewal.
func TestCore_Transcripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &script{}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string { return s.run(t, d) })
	})
}

type script struct {
	core *core
}

func (s *script) run(t *testing.T, d *datadriven.TestData) string {
	c := s.core
	switch d.Cmd {
	case "new":
		ticks := 0
		d.MaybeScanArgs(t, "checkpoint", &ticks)
		s.core = newCore(settings{ticksPerSecond: 10, electionTicks: 10, checkpointTicks: tick(ticks)})
		return ""
	case "lead":
		c.lead(proto.Term(number(t, d, "term")), leasesOf(d.Input))
	case "resign":
		c.lead(0, nil)
	case "reload":
		c.reload(leasesOf(d.Input))
	case "grant":
		c.change([]proto.LeaseChange{{Kind: proto.LeaseGranted, Lease: proto.Lease{
			ID: proto.LeaseID(number(t, d, "id")), TTL: int64(number(t, d, "ttl")),
		}}})
	case "gone": // the store's notice
		c.change([]proto.LeaseChange{{Kind: proto.LeaseRevoked, Lease: proto.Lease{ID: proto.LeaseID(number(t, d, "id"))}}})
	case "tick":
		c.advance(moment(c.wheel.now+tick(number(t, d, "n"))) * c.tickLength())
	case "ms": // within ticks
		c.advance(c.now + moment(number(t, d, "n"))*1e6)
	case "renew":
		fresh := d.HasArg("fresh")
		c.renew(proto.LeaseID(number(t, d, "id")), []actors.Reply[int64]{{}}, fresh)
	case "revoked":
		term := c.term
		if d.HasArg("term") {
			term = proto.Term(number(t, d, "term"))
		}
		first := proto.LeaseID(number(t, d, "id"))
		last := first
		if d.HasArg("through") {
			last = proto.LeaseID(number(t, d, "through"))
		}
		for id := first; id <= last; id++ {
			at := c.now
			if l := c.leases[id]; l != nil {
				at = l.proposed
			}
			c.revoked(id, term, at, !d.HasArg("refused"), d.HasArg("gone"))
		}
	case "confirmed":
		var err error
		if d.HasArg("refused") {
			err = errors.New("refused")
		}
		round := c.round
		if d.HasArg("round") {
			round = uint64(number(t, d, "round"))
		}
		c.confirmed(round, err)
	case "remaining":
		r := c.remainingOf(proto.LeaseID(number(t, d, "id")))
		return fmt.Sprintf("%+v\n", r)
	default:
		t.Fatalf("unknown command %s", d.Cmd)
	}
	return s.print(d.HasArg("count"))
}

func (s *script) print(count bool) string {
	var b strings.Builder
	proposed, gone, late := 0, 0, moment(0)
	for _, e := range s.core.take() {
		switch e := e.(type) {
		case answer:
			fmt.Fprintf(&b, "answer %d x%d: ttl=%d", e.id, len(e.replies), e.ttl)
			if e.err != nil {
				fmt.Fprintf(&b, " %v", e.err)
			}
			b.WriteByte('\n')
		case propose:
			if proposed++; !count {
				late := (e.at - s.core.deadline(s.core.leases[e.id])) / 1e6
				fmt.Fprintf(&b, "revoke %d in term %d, %d ms after its expiry\n", e.id, e.term, late)
			}
		case ended:
			gone, late = gone+1, max(late, e.late)
		case confirm:
			fmt.Fprintf(&b, "confirm round %d\n", e.round)
		case saveRemaining:
			fmt.Fprintf(&b, "checkpoint in term %d:", e.term)
			for _, l := range e.leases {
				fmt.Fprintf(&b, " %d=%ds", l.ID, l.Remaining)
			}
			b.WriteByte('\n')
		}
	}
	if gone > 0 && !count {
		fmt.Fprintf(&b, "%d revoked, up to %d ms after expiry\n", gone, late/1e6)
	}
	if count {
		i := s.core.inspect()
		fmt.Fprintf(&b, "%d revocations, %d in flight of %d, %d queued, %d overdue since %d ms\n", proposed,
			i.RevokesInFlight, i.RevokeWindow, i.Queued, i.Overdue, (s.core.now-i.oldest)/1e6)
	}
	if b.Len() == 0 {
		return "ok\n"
	}
	return b.String()
}

func number(t *testing.T, d *datadriven.TestData, key string) int {
	n := 0
	d.ScanArgs(t, key, &n)
	return n
}

// leasesOf reads lines "id ttl [remaining]", or "first-last ttl" for many.
func leasesOf(text string) []proto.Lease {
	var list []proto.Lease
	for line := range strings.Lines(text) {
		var first, last, ttl, left int64
		if n, _ := fmt.Sscanf(line, "%d-%d %d", &first, &last, &ttl); n < 3 {
			last, left = 0, 0
			_, _ = fmt.Sscanf(line, "%d %d %d", &first, &ttl, &left)
			last = first
		}
		for id := first; id <= last; id++ {
			list = append(list, proto.Lease{ID: proto.LeaseID(id), TTL: ttl, Remaining: left})
		}
	}
	return list
}
