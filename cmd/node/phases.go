package node

import (
	"context"
	"errors"
	"time"

	"troupe/actors"
	"troupe/storeactor"
)

// phases is the order in which the actors stop: whoever makes work before whoever does it.
func (t *Troupe) phases() []actors.Phase {
	var all []actors.Phase
	add := func(name string, timeout time.Duration, why string, stop func(context.Context) error) {
		all = append(all, actors.Phase{Name: name, Timeout: timeout, Why: why, Stop: stop})
	}
	if t.Care != nil {
		add("caretaker", time.Second, "asks for nothing more", t.Care.Stop)
	}
	if t.Versions != nil {
		add("versions", time.Second, "decides nothing more", t.Versions.Stop)
	}
	if t.Leases != nil {
		add("lease", time.Second, "no new revokes; raft is alive to refuse or finish those under way", t.Leases.Stop)
	}
	if t.Watch != nil {
		add("watch", 2*time.Second, "streams are gone by now, the hub only reads the store", t.Watch.Stop)
	}
	if t.Raft != nil {
		add("raft", 5*time.Second, "pending proposals fail, the last batch is synced and the log closed; "+
			"the store is alive to publish what was committed", t.Raft.Stop)
	}
	if t.Store != nil {
		add("store", 10*time.Second, "applies what it was given and writes it into the file", t.stopStore)
	}
	return all
}

// stopStore stops the store. A file that could not be brought up to date because its disk is full is no failure: the
// log is durable and has it all, and the next start does the rest.
func (t *Troupe) stopStore(ctx context.Context) error {
	err := t.Store.Stop(ctx)
	if !errors.Is(err, storeactor.ErrDiskFull) {
		return err
	}
	t.log.Warn().Err(err).Str("file", filePathOf(&t.cfg)).
		Msg("the database file was not brought up to date, its disk is full; nothing is lost: the log has everything, and " +
			"the next start goes on from it")
	return nil
}
