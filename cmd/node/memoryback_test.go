package node

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

const mebibyte = 1 << 20

func TestMemoryBack_IsDueWhenCalmAndMuchIsHeld(t *testing.T) {
	look := func(live, held uint64) heldMemory {
		const period = memoryCalmAfter / 2
		return heldMemory{live: live * mebibyte, held: held * mebibyte, period: period, cpu: period / 100}
	}
	busy := look(200, 400)
	busy.cpu = busy.period / 2
	for name, c := range map[string]struct {
		looks []heldMemory
		due   bool
	}{
		"much garbage, calm":              {[]heldMemory{look(200, 400), look(200, 400)}, true},
		"calm for half the time only":     {[]heldMemory{busy, look(200, 400)}, false},
		"busy":                            {[]heldMemory{look(200, 400), busy}, false},
		"a small heap may hold its slack": {[]heldMemory{look(10, 50), look(10, 50)}, false},
		"a quarter more is usual":         {[]heldMemory{look(400, 490), look(400, 490)}, false},
	} {
		var b memoryBack
		due := false
		for _, l := range c.looks {
			due = b.due(l)
		}
		if due != c.due {
			t.Errorf("%s: due is %v", name, due)
		}
	}
}

// Pages that are given back between two loads have to be taken anew by the second, which costs more than many requests.
func TestMemoryBack_KeepsItsPagesFromOneBurstToTheNext(t *testing.T) {
	var b memoryBack
	for second := range 600 {
		look := heldMemory{live: 50 * mebibyte, held: 200 * mebibyte, period: time.Second}
		if second%15 == 0 {
			look.cpu = time.Second
		}
		if b.due(look) {
			t.Fatalf("due in second %d of a load that comes every 15", second)
		}
	}
}

func TestMemoryBack_DoesNotTryAgainForWhatStays(t *testing.T) {
	var b memoryBack
	look := heldMemory{live: 100 * mebibyte, held: 200 * mebibyte, period: memoryCalmAfter}
	b.done(look)
	for range 10 {
		if b.due(look) {
			t.Fatal("due again though nothing has changed")
		}
	}
	look.held += 2 * memoryGrowthMin
	if !b.due(look) {
		t.Fatal("not due though more has come together")
	}
}

func TestMemoryBack_MeterSeesGarbage(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	debug.FreeOSMemory()
	m := newMemoryMeter()
	before := m.read()
	garbage := make([][]byte, 64)
	for i := range garbage {
		garbage[i] = make([]byte, mebibyte)
	}
	full := m.read()
	runtime.KeepAlive(garbage) // until here
	if full.held < before.held+32*mebibyte {
		t.Fatalf("64 MiB more, and held went from %d to %d", before.held, full.held)
	}
	debug.FreeOSMemory()
	if after := m.read(); after.held > full.held-32*mebibyte || after.period <= 0 || after.cpu <= 0 {
		t.Fatalf("after a collection %+v, before %+v", after, full)
	}
}

// TestMemoryBack_CollectsAfterTheStart: whatever the last collection found alive.
func TestMemoryBack_CollectsAfterTheStart(t *testing.T) {
	t.Setenv("GOGC", "")
	forced := func() uint32 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.NumForcedGC
	}
	before := forced()
	forgetStart()
	for end := time.Now().Add(30 * time.Second); forced() == before; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("nothing was collected")
		}
	}
}
