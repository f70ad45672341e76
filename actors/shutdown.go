package actors

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rs/zerolog"
)

// Phase is one step of a shutdown.
type Phase struct {
	Name string
	// Timeout ends the phase; the next one runs all the same. 0: only the whole shutdown's context does.
	Timeout time.Duration
	// Why says what must still be alive during the phase; it is logged when the phase fails.
	Why string
	// Stop does the work and gives up when its context ends.
	Stop func(ctx context.Context) error
}

// StopInOrder runs the phases one after the other, whatever each returns: a phase that fails must not keep the log from
// being closed. It returns all errors, joined. The order is the caller's: no actor is another one's child, so nothing
// stops unless it is named here.
func StopInOrder(ctx context.Context, phases []Phase, log zerolog.Logger) error {
	var all []error
	for i := range phases {
		if err := phases[i].run(ctx, log); err != nil {
			all = append(all, err)
		}
	}
	return errors.Join(all...)
}

func (p *Phase) run(ctx context.Context, log zerolog.Logger) error {
	cancel := context.CancelFunc(func() {})
	if p.Timeout > 0 {
		ctx, cancel = context.WithTimeoutCause(ctx, p.Timeout,
			fmt.Errorf("%s did not stop within %v: %w", p.Name, p.Timeout, context.DeadlineExceeded))
	}
	defer cancel()
	began := time.Now()
	err := p.Stop(ctx)
	took := time.Since(began)
	if err != nil {
		log.Error().Str("phase", p.Name).Dur("took", took).Str("why", p.Why).Err(err).Msg("shutdown phase failed")
		return fmt.Errorf("shutdown phase %s: %w", p.Name, err)
	}
	log.Debug().Str("phase", p.Name).Dur("took", took).Msg("shutdown phase done")
	return nil
}
