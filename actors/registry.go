package actors

import (
	"cmp"
	"context"
	"slices"
)

// kind is what all actors of one kind share: the profiler label, and the counters of those that have ended, without
// which the sums over a kind would go down.
type kind struct {
	name   string
	labels context.Context //nolint:containedctx // carries pprof labels, which exist only in a context

	ended KindStats // guarded by System.mu
}

// remember enters an actor that has been spawned.
func (s *System) remember(m member) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*m.place() = int32(len(s.members))
	s.members = append(s.members, m)
}

// forget removes an actor that has ended and keeps its counters.
func (s *System) forget(m member) {
	last := m.stats()
	s.mu.Lock()
	defer s.mu.Unlock()
	i := *m.place()
	end := len(s.members) - 1
	s.members[i] = s.members[end]
	*s.members[i].place() = i
	s.members[end] = nil
	s.members = s.members[:end]
	if cap(s.members) > 64 && len(s.members) < cap(s.members)/4 {
		s.members = slices.Clip(slices.Clone(s.members))
	}
	s.kinds[last.Kind].ended.retain(&last)
}

// cut gives the living actors and the sums over the ended ones at one moment, so that an actor that ends meanwhile is
// counted once. Room is made before the lock is taken: a spawn should not wait for an allocation of megabytes.
func (s *System) cut() ([]member, map[*kind]*group) {
	s.mu.Lock()
	size := len(s.members)
	s.mu.Unlock()
	members := make([]member, 0, size+size/64)
	s.mu.Lock()
	defer s.mu.Unlock()
	groups := make(map[*kind]*group, len(s.kinds))
	for _, k := range s.kinds {
		g := &group{sums: k.ended}
		g.sums.Kind, g.sums.Lanes = k.name, slices.Clone(k.ended.Lanes)
		groups[k] = g
	}
	return append(members, s.members...), groups
}

// Snapshot takes a picture of every living actor, sorted by name. Each is locked for a moment, one after the other.
func (s *System) Snapshot() []Stats {
	members, _ := s.cut()
	all := make([]Stats, 0, len(members))
	for _, m := range members {
		all = append(all, m.stats())
	}
	slices.SortFunc(all, func(a, b Stats) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// Strays is the number of messages that reached an actor through the library instead of a Ref, and were ignored.
func (s *System) Strays() uint64 { return s.strays.Load() }
