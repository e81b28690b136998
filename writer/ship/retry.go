package ship

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// Bounds of the back-off: it doubles from the first to the last, and each wait is
// a random part of it (full jitter), so that a fleet does not come back in step.
const (
	firstBackoff = 100 * time.Millisecond
	lastBackoff  = 30 * time.Second
	// openAfter failures in a row the breaker is open: nothing but a cheap call is
	// tried until the store answers one.
	openAfter = 5
	// busyBackoff is the first wait when the store says that it has too many parts: it needs
	// seconds of merging, and more inserts meanwhile make that longer.
	busyBackoff = 2 * time.Second
	// sayEvery is how often a lasting failure is logged.
	sayEvery = 30 * time.Second
)

func now() time.Time { return time.Now() }

// retry is the state of the one goroutine that talks to the sink.
type retry struct {
	jitter   func() float64
	failures int
	busy     bool // the last failure was that the store has too much to do
	since    time.Time
	said     time.Time
}

func newRetry(o Options) retry {
	jitter := o.Jitter
	if jitter == nil {
		jitter = rand.Float64
	}

	return retry{jitter: jitter}
}

// until calls f until it succeeds or ctx ends. A success ends no series of failures by
// itself: a store that answers questions may still take no rows.
func (r *retry) until(ctx context.Context, s *Shipper, what string, f func() error) error {
	for {
		err := f()
		if err == nil {
			return nil
		}

		if ctx.Err() != nil {
			return ctx.Err()
		}

		if err := r.wait(ctx, s, what, classify(err)); err != nil {
			return err
		}
	}
}

// wait counts a failure, says so at most every half minute, and waits. With the
// breaker open it goes on waiting until the sink can be reached.
func (r *retry) wait(ctx context.Context, s *Shipper, what string, e *Error) error {
	r.note(s, what, e)
	for {
		if s.o.GiveUp > 0 && (e.Class == Refused || now().Sub(r.since) >= s.o.GiveUp) {
			return fmt.Errorf("%s: %w", what, e)
		}

		if err := pause(ctx, r.backoff()); err != nil {
			return err
		}

		if r.failures < openAfter {
			return nil
		}

		err := s.sink.Ping(ctx)
		if err == nil {
			return nil
		}

		if ctx.Err() != nil {
			return ctx.Err()
		}

		e = classify(err)
		r.note(s, "reach the store", e)
	}
}

func (r *retry) note(s *Shipper, what string, e *Error) {
	t := now()
	if r.failures == 0 {
		r.since, r.said = t, time.Time{}
	}

	r.failures++
	r.busy = e.Busy
	s.stats.fail(e, t)
	if t.Sub(r.said) >= sayEvery {
		r.said = t
		if e.Class == Refused {
			s.o.Logger.Error("the store refuses: paused, nothing is dropped", "do", what, "err", e, "failures", r.failures)
			return
		}

		s.o.Logger.Warn("the store fails: retrying", "do", what, "err", e, "failures", r.failures, "for", t.Sub(r.since).Round(time.Second))
	}
}

// recovered ends a series of failures.
func (r *retry) recovered(s *Shipper) {
	if r.failures == 0 {
		return
	}

	s.o.Logger.Info("the store answers again: recovered", "failures", r.failures, "after", now().Sub(r.since).Round(time.Millisecond))
	r.failures = 0
	s.stats.ok()
}

func (r *retry) backoff() time.Duration {
	first := firstBackoff
	if r.busy {
		first = busyBackoff
	}

	d := lastBackoff
	if n := r.failures - 1; n < 9 {
		d = min(first<<max(n, 0), lastBackoff)
	}

	wait := time.Duration(r.jitter() * float64(d))
	if r.busy { // half of it at least: a fleet that comes back at once is what it suffers from
		wait = d/2 + wait/2
	}

	// Never quite at once: a store that refuses connections refuses them fast.
	return max(wait, time.Millisecond)
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
