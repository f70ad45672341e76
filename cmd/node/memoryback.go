package node

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// A member that has nothing to do collects every two minutes only, and gives hardly any pages back: after a load, or a
// start, which reads the whole index, it holds as much garbage as it holds data, and the pages behind both. So when it
// has been calm for a while and holds much more than is alive, it collects once and gives the pages to the system.
//
// The while is long, because the next load has to take every page anew. Giving them back after a few seconds costs
// 14 to 24 % more CPU for loads of a second with pauses of five between them, where a page fault takes 13 us; after
// half a minute of calm it is paid once.
const (
	// memoryLook is how often it looks, memoryCalmAfter for how long all looks have to be calm: less CPU used than
	// memoryCalmLoad, in processors.
	memoryLook      = 2 * time.Second
	memoryCalmAfter = 30 * time.Second
	memoryCalmLoad  = 0.2
	// memoryExcessMin and memoryExcessShare are how much more than the live heap is worth a collection: two thirds of what
	// the collector lets a small heap grow by, and a quarter of a large one.
	memoryExcessMin   = heapSlackBytes * 2 / 3
	memoryExcessShare = 4
	// memoryGrowthMin is how much more must have come together since the last time: what fragmentation holds cannot be
	// given back, and is not tried for again and again.
	memoryGrowthMin = 32 << 20
)

// heldMemory is what a look finds.
type heldMemory struct {
	// live is what the last collection found alive, held what the heap holds of the system's memory.
	live, held uint64
	period     time.Duration
	cpu        time.Duration
}

// memoryBack decides when memory is given back. It is a pure core.
type memoryBack struct {
	calm time.Duration
	left uint64 // what was held beyond the live heap after the last time
}

// due takes a look and says whether memory should be given back now.
func (b *memoryBack) due(h heldMemory) bool {
	if b.calm += h.period; float64(h.cpu) > memoryCalmLoad*float64(h.period) {
		b.calm = 0
	}
	excess := h.held - min(h.live, h.held)
	b.left = min(b.left, excess)
	return b.calm >= memoryCalmAfter && excess > max(memoryExcessMin, h.live/memoryExcessShare) &&
		excess > b.left+memoryGrowthMin
}

// done notes what is still held after memory was given back.
func (b *memoryBack) done(h heldMemory) { b.left, b.calm = h.held-min(h.live, h.held), 0 }

// giveMemoryBack looks until ctx ends. It leaves alone what the operator has set by GOGC.
func giveMemoryBack(ctx context.Context) {
	if os.Getenv("GOGC") != "" {
		return
	}
	go func() {
		var b memoryBack
		m := newMemoryMeter()
		tick := time.NewTicker(memoryLook)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			if b.due(m.read()) {
				debug.FreeOSMemory()
				b.done(m.read())
			}
		}
	}()
}

// forgetStart collects once, behind what comes next, when the start is over. It leaves alone what the operator has set
// by GOGC.
//
// A collection that runs while the start reads the index takes all that is allocated meanwhile for alive: 569 MiB of
// 220 with a million keys. Until the next one, which comes after two minutes or when the heap has grown to twice as
// much, nothing would seem worth giving back.
func forgetStart() {
	if os.Getenv("GOGC") == "" {
		go runtime.GC()
	}
}

// memoryMeter reads what the heap holds, and the CPU used since the last look.
type memoryMeter struct {
	at     time.Time
	cpu    time.Duration
	sample [4]metrics.Sample
}

func newMemoryMeter() *memoryMeter {
	m := &memoryMeter{sample: [4]metrics.Sample{
		{Name: liveHeapMetric}, {Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/unused:bytes"},
		{Name: "/memory/classes/heap/free:bytes"},
	}}
	m.read()
	return m
}

func (m *memoryMeter) read() heldMemory {
	now, cpu := time.Now(), processCPU()
	metrics.Read(m.sample[:])
	h := heldMemory{period: now.Sub(m.at), cpu: cpu - m.cpu}
	for i, s := range m.sample {
		switch {
		case s.Value.Kind() != metrics.KindUint64: // unknown to this version of Go: nothing is ever due
		case i == 0:
			h.live = s.Value.Uint64()
		default:
			h.held += s.Value.Uint64()
		}
	}
	m.at, m.cpu = now, cpu
	return h
}
