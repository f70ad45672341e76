package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"troupe/integration/harness"
)

const report = `
Summary:
  Total:	1.2460 secs.
  Requests/sec:	1605.1171

Latency distribution:
  10% in 0.0003 secs.
  50% in 0.0004 secs.
  99% in 0.0045 secs.
  99.9% in 0.0644 secs.
`

func TestParseReport_AddsRatesAndKeepsTheWorsePercentile(t *testing.T) {
	one, err := parseReport(report)
	if err != nil || one.rate != 1605.1171 || one.p50 != 0.4 || one.p99 != 4.5 {
		t.Errorf("one report: %+v, %v", one, err)
	}
	two, err := parseReport(report + strings.ReplaceAll(report, "0.0045", "0.0090"))
	if err != nil || two.rate != 2*1605.1171 || two.p99 != 9 {
		t.Errorf("two reports: %+v, %v", two, err)
	}
}

func TestParseReport_RefusesFailedRequestsAndEmptyOutput(t *testing.T) {
	if _, err := parseReport(report + "\nError distribution:\n  [3]\trpc error\n"); err == nil {
		t.Errorf("failed requests were not noticed")
	}
	if _, err := parseReport("nothing"); err == nil {
		t.Errorf("an empty report was not noticed")
	}
}

func TestMerge_PiecesOfARowAreOneSample(t *testing.T) {
	got := merge([]sample{
		{rate: 100, p50: 1, p99: 9, cpu: 10, peak: 50}, {rate: 50, p50: 2, p99: 7, cpu: 20, peak: 60},
		{rate: 100, p50: 4, p99: 8, cpu: 30, peak: 40}, {rate: 50, p50: 1, p99: 8, cpu: 20, peak: 40},
	})
	if want := (sample{rate: 4 / 0.06, p50: 2, p99: 8, cpu: 20, peak: 60}); got != want {
		t.Errorf("merged into %+v, not %+v", got, want)
	}
}

func TestWriteTable_ReplacesOnlyItsOwnPart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "docs", "benchmarks.md")
	for _, table := range []string{"first", "second"} {
		if err := writeTable(path, speedPlace, table); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), table) || strings.Count(string(text), speedPlace.begin) != 1 {
			t.Errorf("after %s:\n%s", table, text)
		}
		if err := os.WriteFile(path, append(text, "behind\n"...), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTable_ShowsMedianSpreadAndRatio(t *testing.T) {
	r := newResults([]row{{name: "a", title: "load a"}})
	for _, rate := range []float64{10, 30, 20} {
		r.add("a", harness.Troupe, sample{rate: rate})
		r.add("a", harness.Etcd, sample{rate: rate / 2})
	}
	table := r.table(3)
	// What was not measured is not 0.
	for _, want := range []string{"| load a | troupe | 20 (10 - 30) | - | - |", "**2.00**"} {
		if !strings.Contains(table, want) {
			t.Errorf("no %q in\n%s", want, table)
		}
	}
}

func TestLatencies_AStallShowsInTheRequestsThatItMeets(t *testing.T) {
	start := time.Now()
	at := func(begin, took int) timing {
		return timing{start.Add(time.Duration(begin) * time.Millisecond), time.Duration(took) * time.Millisecond}
	}
	stallBegin, stallEnd := start.Add(100*time.Millisecond), start.Add(200*time.Millisecond)
	all := []timing{at(10, 1), at(20, 2), at(99, 150), at(150, 60), at(210, 3)}
	before := within(all, start, stallBegin)
	if len(before) != 2 || before.quantile(1) != 2 || before.quantile(0) != 1 {
		t.Errorf("before the stall: %v", before)
	}
	while := overlapping(all, stallBegin, stallEnd)
	if len(while) != 2 || while.quantile(1) != 150 {
		t.Errorf("while it lasts: %v", while)
	}
	if both := while.with(before); len(both) != 4 || both.quantile(0) != 1 || both.quantile(1) != 150 {
		t.Errorf("both together: %v", both)
	}
	if (latencies{}).quantile(1) != 0 {
		t.Errorf("no requests have a latency")
	}
}

func TestScenarioTable_JudgesTargetsAndShowsFailures(t *testing.T) {
	s := scenario{letter: "x", title: "something", figures: []figure{
		{key: "before", title: "before, ms"},
		{key: "while", title: "while, ms", target: timesBefore("while", "before", 1.5)},
		{key: "cpu", title: "CPU", digits: 1, target: shareOfEtcd("cpu", 0.5)},
		{key: "late", title: "late", target: belowEtcd("late")},
		{key: "peak", title: "peak", target: atMost("peak", 600)},
		{key: "longest", title: "longest", target: aboveBefore("longest", "before", 100)},
	}}
	p := plan{scenarios: []scenario{s}, kinds: []harness.Kind{harness.Troupe, harness.Etcd}, scale: 1, rounds: 2}
	result := &played{
		values: map[string]map[harness.Kind][]values{"x": {
			harness.Troupe: {
				{"before": 2, "while": 3, "cpu": 1, "late": 5, "peak": 601, "longest": 102},
				{"before": 2, "while": 3, "cpu": 2, "late": 5, "peak": 601, "longest": 102},
			},
			harness.Etcd: {{"before": 2, "while": 300, "cpu": 3, "late": 5, "peak": 4000, "longest": 900}},
		}},
		failures: map[string]map[harness.Kind]error{"x": {harness.Etcd: errors.New("a | b\nmore")}},
	}
	table := p.table(result)
	for _, want := range []string{
		"| while, ms | 3 | 300 | 0.01 | at most 1.50 times before | met |",
		"| CPU | 1.5 | 3.0 | 0.50 | at most 0.50 of etcd's | met |",
		"| late | 5 | 5 | 1.00 | below etcd's | **missed** |",
		"| peak | 601 | 4000 | 0.15 | at most 600 | **missed** |",
		"| longest | 102 | 900 | 0.11 | at most 100 above before | met |",
		"| etcd failed: a / b | | | | | **missed** |",
	} {
		if !strings.Contains(table, want) {
			t.Errorf("no %q in\n%s", want, table)
		}
	}
}

// The readers decide whether a watch is complete from the encoded response alone.
func TestWatchAnswer_ReadsWhatTheReadersNeed(t *testing.T) {
	response := &pb.WatchResponse{
		Header: &pb.ResponseHeader{Revision: 9}, WatchId: 7, Canceled: true, CompactRevision: 3,
		Events: []*mvccpb.Event{
			{
				Kv:     &mvccpb.KeyValue{Key: []byte("a"), ModRevision: 4, Value: []byte("v")},
				PrevKv: &mvccpb.KeyValue{ModRevision: 1},
			},
			{Kv: &mvccpb.KeyValue{Key: []byte("a"), ModRevision: 6}},
		},
	}
	data, err := rawCodec{}.Marshal(response)
	if err != nil {
		t.Fatal(err)
	}
	var a watchAnswer
	if err := (rawCodec{}).Unmarshal(data, &a); err != nil {
		t.Fatal(err)
	}
	want := watchAnswer{watchID: 7, canceled: true, compactRevision: 3, events: 2, first: 4, last: 6, ordered: true}
	if a != want {
		t.Errorf("read %+v, want %+v", a, want)
	}
	var p progress
	if !p.take(a, 5) || !p.cancelled || p.disorder {
		t.Errorf("a cancelled watch has not come to its end: %+v", p)
	}
	if p.take(a, 5) || !p.disorder {
		t.Errorf("events that come twice were not noticed: %+v", p)
	}
}
