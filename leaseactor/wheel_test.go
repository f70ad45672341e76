package leaseactor

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"troupe/proto"
)

// TestWheel_FiresWhenDue compares the wheel with a list, for random arming, disarming and steps of any length.
func TestWheel_FiresWhenDue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var w wheel
		timers := make([]*timer, 8)
		due := map[int]tick{}
		for i := range timers {
			timers[i] = &timer{lease: &lease{id: proto.LeaseID(i)}}
		}
		distance := rapid.OneOf(
			rapid.Int64Range(-3, 3), rapid.Int64Range(0, 200), rapid.Int64Range(0, 20_000), rapid.Int64Range(0, 1<<21),
		)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			i := rapid.IntRange(0, len(timers)-1).Draw(t, "timer")
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0, 1:
				at := w.now + tick(distance.Draw(t, "distance"))
				w.arm(timers[i], at)
				due[i] = max(at, w.now+1)
			case 2:
				timers[i].disarm()
				delete(due, i)
			default:
				to := w.now + tick(max(distance.Draw(t, "step"), 0)%5000)
				var fired, want []int
				w.advance(to, func(l *lease, _ *timer) {
					if due[int(l.id)] != w.now {
						t.Fatalf("timer %d fired at %d, due at %d", l.id, w.now, due[int(l.id)])
					}
					fired = append(fired, int(l.id))
				})
				for k, at := range due {
					if at <= to {
						want = append(want, k)
					}
				}
				slices.Sort(fired)
				slices.Sort(want)
				if !slices.Equal(fired, want) {
					t.Fatalf("fired %v, want %v", fired, want)
				}
				for _, k := range want {
					delete(due, k)
				}
			}
			for k, timer := range timers {
				if _, armed := due[k]; armed != timer.armed() {
					t.Fatalf("timer %d armed: %v, want %v", k, timer.armed(), armed)
				}
			}
		}
	})
}

// TestWheel_KeepsArmingOrder checks that timers of one tick fire in the order in which they were armed.
func TestWheel_KeepsArmingOrder(t *testing.T) {
	var w wheel
	for i := range 5 {
		w.arm(&timer{lease: &lease{id: proto.LeaseID(i)}}, 70)
	}
	var got []proto.LeaseID
	w.advance(70, func(l *lease, _ *timer) { got = append(got, l.id) })
	if !slices.IsSorted(got) || len(got) != 5 {
		t.Fatalf("fired in the order %v", got)
	}
}

// TestWheel_ReachesTheLongestLease checks that the longest TTL there may be fits.
func TestWheel_ReachesTheLongestLease(t *testing.T) {
	const longestTTL = 9_000_000_000
	if reach := tick(1) << (wheelBits * wheelLevels); reach < longestTTL*10 {
		t.Fatalf("the wheel reaches %d ticks, the longest lease has %d", reach, tick(longestTTL*10))
	}
}
