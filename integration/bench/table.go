package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"troupe/integration/harness"
)

// results holds every sample of a run.
type results struct {
	rows    []row
	samples map[string]map[harness.Kind][]sample
}

func newResults(rows []row) *results {
	return &results{rows: rows, samples: map[string]map[harness.Kind][]sample{}}
}

func (r *results) add(row string, kind harness.Kind, s sample) {
	if r.samples[row] == nil {
		r.samples[row] = map[harness.Kind][]sample{}
	}
	r.samples[row][kind] = append(r.samples[row][kind], s)
}

// Heads of the columns that have targets.
const (
	p99Column = "p99 ms"
	cpuColumn = "server CPU us/op"
)

// columns are the measured values, with how many digits they are shown.
var columns = []struct {
	head   string
	value  func(sample) float64
	digits int
}{
	{"ops/s", func(s sample) float64 { return s.rate }, 0},
	{"p50 ms", func(s sample) float64 { return s.p50 }, 2},
	{p99Column, func(s sample) float64 { return s.p99 }, 2},
	{cpuColumn, func(s sample) float64 { return s.cpu }, 1},
	{"peak RSS MiB", func(s sample) float64 { return s.peak }, 0},
}

// table renders the run as markdown: for each row one line for each server, median and in parentheses the lowest and
// the highest round, and one line with the ratio of the medians, troupe to etcd.
func (r *results) table(rounds int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %d CPUs, %s, %s/%s; %d rounds; median (lowest - highest).\n\n",
		time.Now().Format("2006-01-02"), runtime.NumCPU(), runtime.Version(), runtime.GOOS, runtime.GOARCH, rounds)
	b.WriteString("| load | server |")
	for _, c := range columns {
		fmt.Fprintf(&b, " %s |", c.head)
	}
	b.WriteString(" target of the ratio |\n|---|---|" + strings.Repeat("---|", len(columns)+1) + "\n")
	for _, row := range r.rows {
		for _, kind := range []harness.Kind{harness.Troupe, harness.Etcd} {
			fmt.Fprintf(&b, "| %s | %s |", row.title, kind)
			for _, c := range columns {
				low, median, high := spread(r.samples[row.name][kind], c.value)
				if high == 0 { // the tool gives no p99 of fewer than a hundred requests
					b.WriteString(" - |")
					continue
				}
				fmt.Fprintf(&b, " %.*f (%.*f - %.*f) |", c.digits, median, c.digits, low, c.digits, high)
			}
			b.WriteString(" |\n")
		}
		b.WriteString(r.ratioLine(row))
	}
	return b.String()
}

// ratioLine renders the ratios of a row's medians, troupe to etcd, and whether they reach the row's targets.
func (r *results) ratioLine(row row) string {
	line := "| | ratio |"
	var judged []string
	for _, c := range columns {
		_, troupe, _ := spread(r.samples[row.name][harness.Troupe], c.value)
		_, etcd, _ := spread(r.samples[row.name][harness.Etcd], c.value)
		if etcd == 0 {
			line += " - |"
			continue
		}
		line += fmt.Sprintf(" **%.2f** |", troupe/etcd)
		if bound, ok := row.targets[c.head]; ok {
			judged = append(judged, fmt.Sprintf("%s at most %.2f: %s", c.head, bound, metWord(troupe/etcd <= bound)))
		}
	}
	return line + " " + strings.Join(judged, "; ") + " |\n"
}

func metWord(met bool) string {
	if met {
		return "met"
	}
	return "**missed**"
}

// spread gives the lowest, the median and the highest value of the samples.
func spread(samples []sample, value func(sample) float64) (low, median, high float64) {
	all := make([]float64, len(samples))
	for i, s := range samples {
		all[i] = value(s)
	}
	return spreadOf(all)
}

// spreadOf gives the lowest, the median and the highest of the values, which it sorts; zeros when there are none.
func spreadOf(all []float64) (low, median, high float64) {
	if len(all) == 0 {
		return 0, 0, 0
	}
	slices.Sort(all)
	median = all[len(all)/2]
	if len(all)%2 == 0 {
		median = (median + all[len(all)/2-1]) / 2
	}
	return all[0], median, all[len(all)-1]
}

// A table lives between two lines of the file, so that text around it stays.
type place struct{ begin, end string }

var (
	speedPlace = place{
		"<!-- begin: written by integration/bench -->", "<!-- end: written by integration/bench -->",
	}
	scenarioPlace = place{
		"<!-- begin scenarios: written by integration/bench -->", "<!-- end scenarios: written by integration/bench -->",
	}
)

// writeTable puts the table into a markdown file, in the place of the one before it, or at its end.
func writeTable(path string, at place, table string) error {
	old, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		old, err = []byte("# Benchmarks\n"), os.MkdirAll(filepath.Dir(path), 0o755)
	}
	if err != nil {
		return err
	}
	text := string(old)
	block := at.begin + "\n\n" + table + "\n" + at.end
	begin, end := strings.Index(text, at.begin), strings.Index(text, at.end)
	if begin >= 0 && end > begin {
		text = text[:begin] + block + text[end+len(at.end):]
	} else {
		text = strings.TrimRight(text, "\n") + "\n\n" + block + "\n"
	}
	return os.WriteFile(path, []byte(text), 0o644)
}
