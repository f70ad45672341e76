package metrics

import (
	"math"
	"slices"
	"strings"
	"testing"

	"troupe/integration/harness"
)

// both starts the two servers and drives the same traffic on each.
func both(t *testing.T, args ...string) (troupe, etcd *traffic) {
	t.Helper()
	start := func(k harness.Kind) *traffic {
		return drive(t, harness.Start(t, harness.Options{Kind: k, Args: args}))
	}
	return start(harness.Troupe), start(harness.Etcd)
}

// settled scrapes until two looks in a row show the same work done: what is counted after an answer is counted by then.
func settled(t *testing.T, d *traffic) page {
	t.Helper()
	last := scrape(t, d.server)
	harness.Eventually(t, limit, "the counters stand still", func() error {
		now := scrape(t, d.server)
		defer func() { last = now }()
		return now.moved(last)
	})
	return last
}

func TestMetrics_EveryMetricOfEtcdsIsThereAndCountsTheSame(t *testing.T) {
	onTroupe, onEtcd := both(t, "--metrics", "extensive")
	troupe, etcd := settled(t, onTroupe), settled(t, onEtcd)
	for name, kind := range etcd.types {
		if got := troupe.types[name]; got != kind && missing[name] == "" {
			t.Errorf("%s is of type %q, etcd's is a %s", name, got, kind)
		}
	}
	for name := range troupe.types {
		if etcd.types[name] == "" && !strings.HasPrefix(name, "troupe_") {
			t.Errorf("%s is not etcd's and does not begin with troupe_", name)
		}
	}
	compareSeries(t, troupe, etcd)
	compareValues(t, troupe, etcd)
	everyDifferenceIsNeeded(t, etcd)
	onTroupe.locks()
	onEtcd.locks()
	compareLocks(t, settled(t, onTroupe), settled(t, onEtcd))
}

// compareLocks compares the calls of the Lock and Election services. What they do inside is not the same; etcd shows a
// method from its first call on.
func compareLocks(t *testing.T, troupe, etcd page) {
	t.Helper()
	found := 0
	for _, series := range sorted(etcd.values) {
		part, value := etcd.part(series), etcd.values[series]
		if !strings.HasPrefix(labels(series)["grpc_service"], "v3") || part == "bucket" || part == "sum" {
			continue
		}
		found++
		if got := troupe.values[series]; got != value {
			t.Errorf("%s is %v, etcd's is %v", series, got, value)
		}
	}
	if found == 0 {
		t.Error("etcd shows no calls of the Lock and Election services")
	}
}

// compareSeries compares labels, their values and buckets.
func compareSeries(t *testing.T, troupe, etcd page) {
	t.Helper()
	got, want := troupe.anonymous(), etcd.anonymous()
	for _, series := range sorted(want) {
		if _, found := got[series]; !found && !listed(missing, etcd.family(series), series) {
			t.Errorf("no series %s", series)
		}
	}
	for _, series := range sorted(got) {
		name := troupe.family(series)
		if _, found := want[series]; !found && etcd.types[name] != "" && !listed(additional, name, series) {
			t.Errorf("etcd has no series %s", series)
		}
	}
}

// compareValues compares counts: counters, gauges and the number of observations. How long things took differs.
func compareValues(t *testing.T, troupe, etcd page) {
	t.Helper()
	got, want := troupe.anonymous(), etcd.anonymous()
	for _, series := range sorted(want) {
		name, value := etcd.family(series), want[series]
		have, found := got[series]
		part := etcd.part(series)
		switch {
		case !found || part == "bucket" || part == "sum" || listed(free, name, series):
		case listed(positive, name, series):
			if have <= 0 || value <= 0 {
				t.Errorf("%s is %v, etcd's is %v; both should be above 0", series, have, value)
			}
		case listed(alike, name, series):
			if math.Abs(have-value) > alikePart*math.Max(have, value) {
				t.Errorf("%s is %v, etcd's is %v; they should be nearly the same", series, have, value)
			}
		case have != value:
			t.Errorf("%s is %v, etcd's is %v", series, have, value)
		}
	}
}

// anonymous gives the values by series, with the ids of members left out.
func (p page) anonymous() map[string]float64 {
	out := make(map[string]float64, len(p.values))
	for series, value := range p.values {
		for name, id := range labels(series) {
			if name == "Local" || name == "Remote" || name == "server_id" && len(id) > 8 {
				series = strings.Replace(series, name+`="`+id+`"`, name+`="ID"`, 1)
			}
		}
		out[series] = value
	}
	return out
}

func sorted(values map[string]float64) []string {
	out := make([]string, 0, len(values))
	for series := range values {
		out = append(out, series)
	}
	slices.Sort(out)
	return out
}

// everyDifferenceIsNeeded: an entry that excuses nothing would hide the next fault.
func everyDifferenceIsNeeded(t *testing.T, etcd page) {
	t.Helper()
	for _, list := range []map[string]string{missing, positive, alike, free} {
		for entry := range list {
			used := false
			for series := range etcd.values {
				used = used || listed(map[string]string{entry: "-"}, etcd.family(series), series)
			}
			if !used {
				t.Errorf("etcd shows nothing that the entry %q excuses", entry)
			}
		}
	}
}
