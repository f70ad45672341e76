package storeactor

import "time"

// quotaWatch warns before the quota is reached and, if it may, ends this member's NOSPACE alarm when there is space
// again. It is pure.
//
// Space is there again when a put would not exceed the quota at once: when the *projected* size, that of the file with
// what is not written yet, is below the low mark. Compaction alone does not bring that about, because it makes free
// pages inside a file that stays as large. So when what is in use is below the low mark and the file is not, the file
// is defragmented first, which holds nobody up.
type quotaWatch struct {
	quota int64 // bytes; 0 or less: none
	// heal says that the alarm is to be ended without an operator (--quota-auto-disarm).
	heal bool

	// high says that the warning was given and has not been taken back.
	high bool
	// busy says that an attempt to heal is under way; not before again may come the next one, which will be pause after
	// that.
	busy         bool
	again, pause time.Duration
}

// quotaFacts are what the watch looks at.
type quotaFacts struct {
	sizes     FileSizes
	unwritten int64
	alarmed   bool // this member's NOSPACE alarm is raised, by the quota
}

// used is what the file would take if it had no free pages.
func (f *quotaFacts) used() int64 { return f.sizes.InUse - f.sizes.Pending + f.unwritten }

// quotaStep is what is to be done.
type quotaStep uint8

const (
	quotaNothing quotaStep = iota
	// quotaWarn and quotaRelax are lines for the log: the high mark was reached, the low mark is passed downwards.
	quotaWarn
	quotaRelax
	// quotaDefragment and quotaDisarm are attempts to heal; tried ends them.
	quotaDefragment
	quotaDisarm
)

// ofQuota is a part of the quota in bytes.
func (w *quotaWatch) ofQuota(percent int64) int64 { return w.quota / 100 * percent }

// look gives the next step. While it gives one, it is to be called again.
func (w *quotaWatch) look(now time.Duration, f quotaFacts) quotaStep {
	if w.quota <= 0 {
		return quotaNothing
	}
	low, projected := w.ofQuota(quotaLowPercent), f.sizes.Projected(f.unwritten)
	switch {
	case !w.high && projected >= w.ofQuota(quotaHighPercent):
		w.high = true
		return quotaWarn
	case w.high && projected < low:
		w.high = false
		return quotaRelax
	case !w.heal || !f.alarmed || w.busy || now < w.again || f.used() >= low:
		return quotaNothing
	}
	w.busy = true
	if projected < low {
		return quotaDisarm
	}
	return quotaDefragment
}

// tried takes the end of an attempt. Whatever became of it, the next one waits, longer each time until there was none
// for long: a request that never fits would raise the alarm again at once, and a file that does not become small enough
// would be copied for nothing.
func (w *quotaWatch) tried(now time.Duration, step quotaStep, err error) {
	w.busy = false
	if now > w.again+quotaHealPauseMax {
		w.pause = 0
	}
	if w.pause == 0 && step == quotaDefragment && err == nil {
		w.pause = quotaHealPauseMin
		w.again = now // what the copy has made of the file is looked at right away
		return
	}
	w.pause = min(max(2*w.pause, quotaHealPauseMin), quotaHealPauseMax)
	w.again = now + w.pause
}
