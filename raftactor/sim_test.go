package raftactor

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"troupe/actors"
	"troupe/actors/actorstest"
	"troupe/proto"
	"troupe/raftactor/disktest"
)

var (
	simSeed = flag.Uint64("sim.seed", 0, "run only this seed of TestSim")
	simRuns = flag.Uint64("sim.runs", 150, "number of seeds of TestSim")
)

// TestSim_AcknowledgedSurvivesEveryCrash runs one member through many lives on a disk that loses what was not synced,
// with the actors interleaved by a seed. What must hold: whatever was acknowledged is applied at the same index in
// every later life; a read's index covers what was acknowledged before the read; the log always opens and the member
// always serves again. The clock stands at the same time at each start, as one that was set back would.
func TestSim_AcknowledgedSurvivesEveryCrash(t *testing.T) {
	if *simSeed != 0 {
		newSim(t, *simSeed).run()
		return
	}
	for seed := range *simRuns {
		newSim(t, seed+1).run()
		if t.Failed() {
			t.Fatalf("replay: go test ./raftactor -run TestSim -sim.seed=%d", seed+1)
		}
	}
}

// simFile is what the database file durably holds.
type simFile struct {
	index proto.Index
	term  proto.Term
	conf  []byte
	keys  map[string]proto.Index
	state *proto.Membership
}

// sim is one member through its lives.
type sim struct {
	t      *testing.T
	seed   uint64
	random *rand.Rand
	disk   *disktest.Disk
	file   simFile
	// acknowledged are keys by the index they were acknowledged at.
	acknowledged map[string]proto.Index
	names        int
	// small is set on a disk that fills up.
	small *smallDisk

	// The present life.

	stepper *actorstest.Stepper
	clock   *actorstest.ManualClock
	client  *Client
	machine *simMachine
	dead    bool
	open    []simRequest
}

// simRequest is a request without an answer.
type simRequest struct {
	key   string
	put   actors.Reply[*proto.Result]
	read  actors.Reply[proto.Index]
	floor proto.Index
}

func newSim(t *testing.T, seed uint64) *sim {
	return &sim{t: t, seed: seed, random: rand.New(rand.NewPCG(seed, 1)), disk: disktest.New(seed),
		acknowledged: map[string]proto.Index{}, file: simFile{keys: map[string]proto.Index{}}}
}

// simMachine applies to memory and makes checkpoints as backend does: only after the log has confirmed the commit.
type simMachine struct {
	sim     *sim
	keys    map[string]proto.Index
	last    proto.Index
	term    proto.Term
	conf    []byte
	state   *proto.Membership
	saving  bool
	batches []*proto.Batch
}

// Apply takes a batch; work executes it later, as the store would in a turn of its own.
func (m *simMachine) Apply(b *proto.Batch) error {
	if len(m.batches) >= batchesOutstandingMax {
		m.sim.t.Errorf("%d batches are outstanding", len(m.batches)+1)
	}
	m.batches = append(m.batches, b)
	return nil
}

func (m *simMachine) work() {
	if len(m.batches) == 0 {
		return
	}
	b := m.batches[0]
	m.batches = m.batches[1:]
	for i := range b.Commands {
		c := &b.Commands[i]
		if c.Index != m.last+1 {
			m.sim.t.Errorf("command %d after %d", c.Index, m.last)
		}
		m.last, m.term = c.Index, c.Term
		if put := c.Request.GetPut(); put != nil {
			m.keys[string(put.Key)] = c.Index
		}
	}
	m.state = b.Membership
	if b.ConfState != nil {
		m.conf = b.ConfState
	}
	m.sim.client.Applied(m.last)
	for i := range b.Commands {
		if c := &b.Commands[i]; c.Answer != nil {
			c.Answer.Send(&proto.Result{Revision: proto.Revision(c.Index)})
		}
	}
}

// checkpoint asks for the commit index and then makes the file durable at once.
func (m *simMachine) checkpoint() {
	if m.saving || m.last == m.sim.file.index {
		return
	}
	m.saving = true
	keys := map[string]proto.Index{}
	for k, i := range m.keys {
		keys[k] = i
	}
	file := simFile{index: m.last, term: m.term, conf: m.conf, keys: keys, state: m.state}
	m.sim.client.ConfirmCommit(file.index, func(err error) {
		if m.saving = false; err != nil {
			return
		}
		m.sim.file = file
		m.sim.client.Checkpointed(file.index, file.term, file.conf, file.state)
	})
}

func (s *sim) run() {
	for range 6 {
		if s.start(); s.t.Failed() {
			return
		}
		operations, acts := 60, 150
		if s.small != nil {
			operations, acts = 500, 300 // it takes a while to fill a segment
		}
		s.disk.StopAt(s.random.IntN(operations)) // 0: never
		for range acts {
			if s.dead {
				break
			}
			s.fillOrFree()
			s.act()
		}
		if s.client.Status().LogFull {
			s.recoverFromFull()
		}
		s.settle()
		if s.random.IntN(3) == 0 {
			s.disk.Kill()
		} else {
			s.disk.Crash(s.random.Uint64())
		}
	}
}

// start begins a life and waits until the member serves: its own proposal is answered.
func (s *sim) start() {
	s.stepper, s.clock, s.dead, s.open = actorstest.NewStepper(s.random.Uint64()), actorstest.NewManualClock(), false, nil
	s.machine = &simMachine{sim: s, keys: map[string]proto.Index{}, last: s.file.index, term: s.file.term,
		conf: s.file.conf, state: s.file.state}
	for k, i := range s.file.keys {
		s.machine.keys[k] = i
	}
	members := testMembership(1).Members
	cfg := Config{
		Meta: LogMeta{Member: 1, Cluster: 7}, Disk: s.disk, SnapDir: "/member/snap", Bootstrap: members,
		AppliedAtStart: s.file.index, Membership: s.file.state, SnapshotCount: 7, CatchUpEntries: 3,
		RequestTimeout: time.Hour, Machine: s.machine, Logger: zerolog.Nop(),
	}
	s.fillBeforeStart()
	if err := s.openLog(&cfg); err != nil {
		s.t.Errorf("seed %d: the log does not open: %v", s.seed, err)
		return
	}
	system := actors.NewSystem(actors.Config{Log: zerolog.Nop(), Clock: s.clock, Dispatcher: s.stepper,
		Fatal: func(actor string, reason any, _ []byte) {
			if s.dead = true; !s.disk.Stopped() && actor != "" {
				s.t.Errorf("seed %d: %s panicked without a reason of the disk: %v", s.seed, actor, reason)
			}
		}})
	client, err := Spawn(system, cfg)
	if err != nil {
		s.t.Errorf("seed %d: the member does not start: %v", s.seed, err)
		return
	}
	s.client = client
	s.serve()
}

// openLog opens the log, or makes it if a crash came before it was there.
func (s *sim) openLog(cfg *Config) error {
	if err := s.disk.MakeDir(cfg.SnapDir); err != nil {
		return err
	}
	exists, err := LogExists(s.disk, "/member/wal")
	if err != nil {
		return err
	}
	if exists {
		cfg.Log, cfg.Recovered, err = OpenLog(s.disk, "/member/wal")
	} else {
		cfg.Log, err = CreateLog(s.disk, "/member/wal", cfg.Meta)
	}
	return err
}

// serve steps until a put of this life is answered, and checks what was acknowledged before.
func (s *sim) serve() {
	s.put()
	for range 5000 {
		if len(s.open) == 0 {
			break
		}
		if s.random.IntN(10) == 0 {
			s.get() // before the member has caught up
		}
		s.step()
		s.collect()
	}
	s.recoverFromFull()
	if len(s.open) > 0 || s.dead {
		s.t.Errorf("seed %d: the member does not serve; status %+v", s.seed, s.client.Status())
		return
	}
	for key, index := range s.acknowledged {
		if s.machine.keys[key] != index {
			s.t.Errorf("seed %d: %s was acknowledged at %d and is at %d", s.seed, key, index, s.machine.keys[key])
		}
	}
}

// act does one random thing.
func (s *sim) act() {
	switch s.random.IntN(10) {
	case 0, 1, 2:
		s.put()
	case 3:
		s.get()
	case 4:
		s.machine.checkpoint()
	case 5:
		s.clock.Advance(100 * time.Millisecond)
	default:
		for range s.random.IntN(8) {
			s.step()
		}
	}
	s.collect()
}

// step gives one actor, or the machine, a turn.
func (s *sim) step() {
	if s.dead {
		return
	}
	if s.random.IntN(4) == 0 || !s.stepper.Step() {
		s.machine.work()
	}
}

// settle runs what goes on by itself for a while, not always to the end.
func (s *sim) settle() {
	for range s.random.IntN(60) {
		s.step()
	}
	s.collect()
}

func (s *sim) put() {
	s.names++
	key := fmt.Sprintf("k%d", s.names)
	p, err := s.client.prepare(s.request(key))
	if err != nil {
		s.t.Errorf("seed %d: %v", s.seed, err)
		return
	}
	reply := p.slot.Reply()
	p.message.answer = reply
	if s.client.ref.Tell(actors.Normal, &p.message) == nil {
		s.open = append(s.open, simRequest{key: key, put: reply})
	}
}

// get reads: the index must cover what was acknowledged before it was asked for.
func (s *sim) get() {
	floor := proto.Index(0)
	for _, i := range s.acknowledged {
		floor = max(floor, i)
	}
	if v := s.client.view.Load(); v.readable {
		if s.machine.last < floor {
			s.t.Errorf("seed %d: readable at %d, acknowledged is %d", s.seed, s.machine.last, floor)
		}
		return
	}
	reply := actors.NewReply[proto.Index]()
	if s.client.ref.Tell(actors.Normal, &read{answer: reply}) == nil {
		s.open = append(s.open, simRequest{read: reply, floor: floor})
	}
}

// collect takes the answers that have come.
func (s *sim) collect() {
	s.open = slices.DeleteFunc(s.open, func(r simRequest) bool {
		if r.key == "" {
			index, err, ok := r.read.Poll()
			if ok && err == nil && index < r.floor {
				s.t.Errorf("seed %d: a read got index %d after %d was acknowledged", s.seed, index, r.floor)
			}
			return ok
		}
		result, err, ok := r.put.Poll()
		switch {
		case !ok:
			return false
		case err == nil:
			s.acknowledged[r.key] = proto.Index(result.Revision)
		case s.small != nil && errors.Is(err, ErrNoSpace):
			s.small.refused[r.key] = true
		case !errors.Is(err, ErrTooManyRequests) && !s.dead:
			s.t.Errorf("seed %d: %s was answered %v", s.seed, r.key, err)
		}
		return true
	})
}
