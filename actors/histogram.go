package actors

import (
	"math"
	"math/bits"
	"time"
)

// histogramBuckets is the number of powers of two kept: bucket i counts durations below 2^(i+8) nanoseconds, so the
// first ends at 256 ns and the last but one at 2^38 ns, more than four minutes; the last has no end.
const (
	histogramBuckets    = 32
	histogramFirstPower = 8
)

// histogram counts durations by powers of two. Its owner guards it.
type histogram struct {
	counts [histogramBuckets]uint32
	sum    int64 // nanoseconds
}

func (h *histogram) add(nanoseconds int64) {
	nanoseconds = max(nanoseconds, 0)
	i := bits.Len64(uint64(nanoseconds) >> histogramFirstPower)
	h.counts[min(i, histogramBuckets-1)]++
	h.sum += nanoseconds
}

// Histogram is a copy of measured durations, in powers of two.
type Histogram struct {
	// Counts[i] is the number of durations in [UpperBound(i-1), UpperBound(i)).
	Counts [histogramBuckets]uint64
	// Sum is all of them added up.
	Sum time.Duration
}

// merge adds what h has counted.
func (g *Histogram) merge(h *histogram) {
	for i, n := range h.counts {
		g.Counts[i] += uint64(n)
	}
	g.Sum += time.Duration(h.sum)
}

func (g *Histogram) add(o *Histogram) {
	for i, n := range o.Counts {
		g.Counts[i] += n
	}
	g.Sum += o.Sum
}

// Since gives what was counted after o, an earlier copy of the same histogram; all of it when o is not one, because the
// actor has begun anew.
func (g *Histogram) Since(o *Histogram) Histogram {
	out := *g
	for i, n := range o.Counts {
		if n > g.Counts[i] {
			return *g
		}
		out.Counts[i] -= n
	}
	out.Sum -= o.Sum
	return out
}

// Count is the number of durations.
func (g *Histogram) Count() uint64 {
	var n uint64
	for _, c := range g.Counts {
		n += c
	}
	return n
}

// UpperBound is the end of bucket i; the last bucket ends at the largest duration there is.
func (*Histogram) UpperBound(i int) time.Duration {
	if i >= histogramBuckets-1 {
		return math.MaxInt64
	}
	return 1 << (i + histogramFirstPower)
}

// Quantile gives the upper end of the bucket that holds the q-th part (0 to 1) of the durations, 0 when there are none.
func (g *Histogram) Quantile(q float64) time.Duration {
	total := g.Count()
	if total == 0 {
		return 0
	}
	want := max(uint64(math.Ceil(q*float64(total))), 1)
	var seen uint64
	for i, c := range g.Counts {
		if seen += c; seen >= want {
			return g.UpperBound(i)
		}
	}
	return g.UpperBound(histogramBuckets - 1)
}
