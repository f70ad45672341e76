package actors

import (
	"context"
	"runtime"
	"testing"
)

// sleeper counts its turns and what it handled, and listens to whispers or not.
type sleeper struct {
	listens bool
	turns   chan int
}

func (s *sleeper) Start(self Self[int]) error {
	self.Listen(Normal, s.listens)
	return nil
}

func (s *sleeper) Handle(_ Self[int], batch []int) { s.turns <- len(batch) }
func (s *sleeper) Stop()                           {}

// asleep waits until the run of the actor's start is over: it would take what is whispered before its end.
func asleep[M any](ref Ref[M]) {
	for awake := true; awake; runtime.Gosched() {
		ref.b.mu.Lock()
		awake = ref.b.awake
		ref.b.mu.Unlock()
	}
}

func spawnSleeper(t *testing.T, listens bool) (Ref[int], *sleeper) {
	t.Helper()
	s := &sleeper{listens: listens, turns: make(chan int, 2*WhispersMax)}
	sys := NewSystem(Config{Name: t.Name()})
	ref, err := Spawn(sys, Spec[int]{Name: "sleeper", Behavior: func() Behavior[int] { return s },
		Policy: Batch[int](Bound{Messages: 1 << 20, Bytes: 1 << 30}, Bound{Messages: 1 << 20, Bytes: 1 << 30})})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ref.Stop(context.Background()) })
	asleep(ref)
	return ref, s
}

func TestWhisper_WaitsForAWakeUpAndArrivesInOrder(t *testing.T) {
	ref, s := spawnSleeper(t, false)
	for n := range 10 {
		if err := ref.Whisper(Normal, n); err != nil {
			t.Fatal(err)
		}
	}
	if len(s.turns) != 0 || ref.Depth(Normal) != 10 {
		t.Fatalf("whispers woke the actor: %d turns, depth %d", len(s.turns), ref.Depth(Normal))
	}
	_ = ref.Tell(Normal, 10)
	if got := <-s.turns; got != 11 {
		t.Errorf("the turn took %d messages, want all 11", got)
	}
}

func TestWhisper_EnoughOfThemWakeTheActor(t *testing.T) {
	ref, s := spawnSleeper(t, false)
	for n := range WhispersMax {
		_ = ref.Whisper(Normal, n)
	}
	if got := <-s.turns; got != WhispersMax {
		t.Errorf("the turn took %d messages, want %d", got, WhispersMax)
	}
}

func TestWhisper_IsATellForAnActorThatListens(t *testing.T) {
	ref, s := spawnSleeper(t, true)
	_ = ref.Whisper(Normal, 1)
	if got := <-s.turns; got != 1 {
		t.Errorf("the turn took %d messages", got)
	}
}

func TestWhisper_IsHandledBeforeTheEnd(t *testing.T) {
	ref, s := spawnSleeper(t, false)
	_ = ref.Whisper(Normal, 1)
	if err := ref.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	if len(s.turns) != 1 {
		t.Error("the stop lost a whisper")
	}
}

// weight is a message that counts for as many bytes as it says.
type weight int

func (w weight) Size() int { return int(w) }

// weigher counts its turns and does not listen.
type weigher struct{ turns chan int }

func (w weigher) Start(self Self[weight]) error {
	self.Listen(Normal, false)
	return nil
}

func (w weigher) Handle(_ Self[weight], batch []weight) { w.turns <- len(batch) }
func (weigher) Stop()                                   {}

// TestWhisper_AFullLaneWakesTheActor: a large message may have no room in a lane that holds less than what wakes.
// Nobody could make room if its actor slept on.
func TestWhisper_AFullLaneWakesTheActor(t *testing.T) {
	for name, policy := range map[string]Policy[weight]{
		"reject": Reject[weight](Bound{Messages: 100, Bytes: 300}),
		"resync": Resync(Bound{Messages: 100, Bytes: 300},
			func(weight) weight { return 1 }, func(marker, _ weight) weight { return marker }),
	} {
		t.Run(name, func(t *testing.T) {
			turns := make(chan int, 10)
			ref, err := Spawn(NewSystem(Config{Name: name}), Spec[weight]{Name: "weigher", Policy: policy,
				Behavior: func() Behavior[weight] { return weigher{turns} }})
			if err != nil {
				t.Fatal(err)
			}
			asleep(ref)
			_ = ref.Whisper(Normal, 100)
			if len(turns) != 0 || ref.Depth(Normal) != 1 {
				t.Fatal("the first whisper woke the actor")
			}
			_ = ref.Whisper(Normal, 250)
			<-turns
			if err := ref.Stop(context.Background()); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestWhisper_IsCountedWhenItWakesNobody(t *testing.T) {
	sys := NewSystem(Config{Name: t.Name()})
	for i, want := range map[bool]uint64{false: 2, true: 0} {
		turns := make(chan int, 10)
		ref, err := Spawn(sys, Spec[int]{Name: "sleeper", Policy: Reject[int](Bound{Messages: 100, Bytes: 1 << 20}),
			Behavior: func() Behavior[int] { return &sleeper{listens: i, turns: turns} }})
		if err != nil {
			t.Fatal(err)
		}
		asleep(ref)
		_, _ = ref.Whisper(Normal, 1), ref.Whisper(Normal, 2)
		if got := sys.Snapshot()[0].Lanes[0].Whispered; got != want {
			t.Errorf("listening %v: %d whispers counted, want %d", i, got, want)
		}
		if err := ref.Stop(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
}

// oneEared does not listen to whispers in one lane.
type oneEared struct {
	deaf  Lane
	turns chan int
}

func (o oneEared) Start(self Self[int]) error {
	self.Listen(o.deaf, false)
	return nil
}

func (o oneEared) Handle(_ Self[int], batch []int) { o.turns <- len(batch) }
func (oneEared) Stop()                             {}

// What an actor awaits in one lane says nothing about the other.
func TestWhisper_EachLaneIsListenedToByItself(t *testing.T) {
	bound := Bound{Messages: 100, Bytes: 1 << 20}
	for deaf, heard := range map[Lane]Lane{Control: Normal, Normal: Control} {
		turns := make(chan int, 10)
		ref, err := Spawn(NewSystem(Config{Name: t.Name()}), Spec[int]{Name: "oneeared",
			Policy:   Lanes(Batch[int](bound, bound), Batch[int](bound, bound)),
			Behavior: func() Behavior[int] { return oneEared{deaf, turns} }})
		if err != nil {
			t.Fatal(err)
		}
		asleep(ref)
		_ = ref.Whisper(deaf, 1)
		if len(turns) != 0 || ref.Depth(deaf) != 1 {
			t.Errorf("deaf to %s: a whisper there woke the actor", deaf)
		}
		_ = ref.Whisper(heard, 2)
		if got := <-turns; got != 2 {
			t.Errorf("deaf to %s: the turn took %d messages, want both", deaf, got)
		}
		if err := ref.Stop(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
}
