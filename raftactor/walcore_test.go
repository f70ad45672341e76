package raftactor

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"troupe/proto"
)

// The transcripts show, batch by batch, what the wal actor's core makes of messages: how many writes and syncs, and
// who is told what in which order. A line of input is one message:
//
//	append seq=N [entries=N] [commit=N] [sync]     confirm index=N     snapshot index=N [commit=N]
func TestWALCore_Transcripts(t *testing.T) {
	datadriven.Walk(t, "testdata/wal", func(t *testing.T, file string) {
		core := &walCore{}
		datadriven.RunTest(t, file, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "start":
				var commit uint64
				d.ScanArgs(t, "commit", &commit)
				core = &walCore{written: proto.Index(commit), synced: proto.Index(commit)}
				return ""
			case "batch":
				var batch []walMessage
				for line := range strings.Lines(d.Input) {
					batch = append(batch, parseWALMessage(t, line))
				}
				return describeWALEffects(core.plan(batch)) + describeWALCore(core)
			}
			d.Fatalf(t, "unknown command %s", d.Cmd)
			return ""
		})
	})
}

func parseWALMessage(t *testing.T, line string) walMessage {
	t.Helper()
	kind, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	values := map[string]uint64{}
	for _, field := range strings.Fields(rest) {
		name, value, _ := strings.Cut(field, "=")
		var n uint64
		if value != "" {
			if _, err := fmt.Sscan(value, &n); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
		}
		values[name] = n
	}
	_, hasCommit := values["commit"]
	switch kind {
	case "append":
		_, sync := values["sync"]
		a := &walAppend{seq: values["seq"], mustSync: sync}
		for i := range values["entries"] {
			a.entries = append(a.entries, logEntry(1, i+1, nil))
		}
		if hasCommit {
			a.hardState = logState(1, 1, values["commit"])
		}
		return a
	case "confirm":
		return &walConfirm{index: proto.Index(values["index"])}
	case "snapshot":
		s := &walSnapshot{record: SnapshotRecord{Index: proto.Index(values["index"])}}
		if hasCommit {
			s.hardState = logState(1, 1, values["commit"])
		}
		return s
	}
	t.Fatalf("unknown message %q", line)
	return nil
}

func describeWALEffects(effects []walEffect) string {
	var b strings.Builder
	for _, effect := range effects {
		switch e := effect.(type) {
		case writeLog:
			entries := 0
			for _, a := range e.appends {
				entries += len(a.entries)
			}
			fmt.Fprintf(&b, "write appends=%d entries=%d", len(e.appends), entries)
			if e.hardState != nil {
				fmt.Fprintf(&b, " commit=%d", e.hardState.GetCommit())
			}
			if e.sync {
				b.WriteString(" sync")
			}
			if e.confirming {
				b.WriteString(" for a confirmation")
			}
			b.WriteByte('\n')
		case tellPersisted:
			fmt.Fprintf(&b, "persisted %d\n", e.seq)
		case tellConfirmed:
			fmt.Fprintf(&b, "confirmed %d\n", e.confirm.index)
		case storeSnapshot:
			fmt.Fprintf(&b, "snapshot %d\n", e.snapshot.record.Index)
		}
	}
	return b.String()
}

func describeWALCore(c *walCore) string {
	return fmt.Sprintf("(commit written %d, synced %d; %d waiting)\n", c.written, c.synced, len(c.waiting))
}
