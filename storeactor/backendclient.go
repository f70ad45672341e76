package storeactor

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"troupe/actors"
)

// backendRef implements backendHandle.
type backendRef struct {
	ref       actors.Ref[backendMessage]
	published *atomic.Pointer[FileStatus]
}

// spawnBackend starts the actor that owns the file. It reads the compaction records and opens the first read handle
// before it returns.
func spawnBackend(sys *actors.System, cfg backendConfig) (backendHandle, error) {
	cfg.fillIn()
	metrics, err := newFileMetrics(cfg.Metrics, cfg.File, cfg.status)
	if err != nil {
		return nil, fmt.Errorf("register the metrics of the file: %w", err)
	}
	ref, err := actors.Spawn(sys, actors.Spec[backendMessage]{
		Name: "backend",
		Policy: actors.Lanes(
			actors.Batch[backendMessage](
				actors.Bound{Messages: backendControlMax, Bytes: backendTurnBytesMax},
				actors.Bound{Messages: backendControlMax, Bytes: backendTurnBytesMax}),
			actors.Batch[backendMessage](
				actors.Bound{Messages: backendMessagesMax, Bytes: backendBytesMax},
				actors.Bound{Messages: backendTurnMessagesMax, Bytes: backendTurnBytesMax})),
		Behavior: func() actors.Behavior[backendMessage] { return newBackend(cfg, metrics) },
		OnPanic:  actors.FailStop,
		Pinned:   true, // its turns wait for the disk
	})
	if err != nil {
		return nil, err
	}
	return &backendRef{ref: ref, published: cfg.status}, nil
}

// write implements backendClient. The backend need not wake for each write: between two checkpoints it only collects
// them.
func (c *backendRef) write(w *backendWrite) {
	err := c.ref.Whisper(actors.Normal, w)
	actors.Must(err == nil || errors.Is(err, actors.ErrStopped), "backend refused a write: %v", err)
}

// compact implements backendClient.
func (c *backendRef) compact(m *compactFile) { c.tell(m) }

// tell brings in what may not be lost. The store's credit keeps the mailbox from filling; after the end nothing is lost
// either, because the log has it.
func (c *backendRef) tell(m backendMessage) {
	err := c.ref.Tell(actors.Normal, m)
	actors.Must(err == nil || errors.Is(err, actors.ErrStopped), "backend refused a %T: %v", m, err)
}

// hash implements backendClient.
func (c *backendRef) hash(r *hashRequest) {
	if err := c.ref.Tell(actors.Normal, r); err != nil {
		r.reply.Fail(err)
	}
}

// snapshot implements backendClient.
func (c *backendRef) snapshot(m *snapshotFile) {
	if err := c.ref.Tell(actors.Normal, m); err != nil {
		m.fail(err)
	}
}

// defragment implements backendClient.
func (c *backendRef) defragment(m *defragmentFile) {
	if err := c.ref.Tell(actors.Normal, m); err != nil {
		m.reply.Fail(err)
	}
}

// status implements backendHandle.
func (c *backendRef) status() FileStatus { return *c.published.Load() }

// stop commits what was admitted and ends the actor. The error says what stays out of the file, and why; the log still
// has it.
func (c *backendRef) stop(ctx context.Context) error {
	last := &finishBackend{reply: actors.NewReply[struct{}]()}
	if err := c.ref.Tell(actors.Normal, last); err != nil {
		return c.ref.Stop(ctx)
	}
	_, err := actors.Await(ctx, c.ref, last.reply)
	return errors.Join(err, c.ref.Stop(ctx))
}
