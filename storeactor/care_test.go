package storeactor

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"troupe/proto"
)

// TestCareTranscripts plays the files of testdata/care against the two cores. Commands:
//
//	keep period=D | keep revisions=N      a compactor, at revision 1 and moment 0
//	quota bytes=N [heal]                  a watch
//	look for=D [every=D] [puts=N] [follow] time passes; at each look there are N revisions more
//	size total=N inuse=N [unwritten=N] [alarm]  what the watch sees
//	done | fail                           the end of what was asked for
func TestCareTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata/care", func(t *testing.T, path string) {
		c := &careRig{revision: 1}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			c.said.Reset()
			c.command(t, d)
			return c.said.String()
		})
	})
}

type careRig struct {
	said      strings.Builder
	now       time.Duration
	revision  proto.Revision
	compactor *autoCompactor
	quota     *quotaWatch
	facts     quotaFacts
	step      quotaStep
}

func (c *careRig) say(format string, args ...any) {
	fmt.Fprintf(&c.said, "%v: %s\n", c.now, fmt.Sprintf(format, args...))
}

func (c *careRig) command(t *testing.T, d *datadriven.TestData) {
	switch d.Cmd {
	case "keep":
		var period time.Duration
		var revisions int64
		d.MaybeScanArgs(t, "period", &period)
		d.MaybeScanArgs(t, "revisions", &revisions)
		c.compactor = newAutoCompactor(Retention{Period: period, Revisions: revisions}, c.revision)
		c.say("notes every %v, at most %d; looks on: %v", c.compactor.interval, c.compactor.notesMax, c.compactor.on())
	case "quota":
		c.quota = &quotaWatch{heal: d.HasArg("heal")}
		d.ScanArgs(t, "bytes", &c.quota.quota)
	case "size":
		c.facts = quotaFacts{alarmed: d.HasArg("alarm")}
		d.ScanArgs(t, "total", &c.facts.sizes.Total)
		d.ScanArgs(t, "inuse", &c.facts.sizes.InUse)
		d.MaybeScanArgs(t, "pending", &c.facts.sizes.Pending)
		d.MaybeScanArgs(t, "unwritten", &c.facts.unwritten)
		c.watch()
	case "look":
		c.look(t, d)
	case "done":
		c.end(nil)
	case "fail":
		c.end(errors.New("refused"))
	default:
		t.Fatalf("unknown command %s", d.Cmd)
	}
}

func (c *careRig) look(t *testing.T, d *datadriven.TestData) {
	var long, puts int64
	var passes, every time.Duration
	d.ScanArgs(t, "for", &passes)
	every = time.Second
	d.MaybeScanArgs(t, "every", &every)
	d.MaybeScanArgs(t, "puts", &puts)
	for long = int64(passes / every); long > 0; long-- {
		c.now += every
		c.revision += proto.Revision(puts)
		if c.compactor != nil {
			if upTo := c.compactor.look(c.now, c.revision, !d.HasArg("follow")); upTo != 0 {
				c.say("compact %d at revision %d", upTo, c.revision)
			}
		}
		if c.quota != nil {
			c.watch()
		}
	}
}

func (c *careRig) watch() {
	for {
		step := c.quota.look(c.now, c.facts)
		if step == quotaNothing {
			return
		}
		c.say("%s", [...]string{"", "warn", "relax", "defragment", "disarm"}[step])
		if step == quotaDefragment || step == quotaDisarm {
			c.step = step
		}
	}
}

func (c *careRig) end(err error) {
	if c.compactor != nil {
		c.compactor.answered(c.now, err == nil)
		return
	}
	c.quota.tried(c.now, c.step, err)
}
