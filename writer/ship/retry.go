package ship

import (
	"context"
	"fmt"
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

// failing is the series of failures of the sink that lasts; the zero value is none.
type failing struct {
	failures int
	busy     bool // the last failure was that the store has too much to do
	since    time.Time
	said     time.Time
}

// until calls f until it succeeds or ctx ends. A success ends no series of failures by
// itself: a store that answers questions may still take no rows.
func (s *Shipper) until(ctx context.Context, what string, f func() error) error {
	for {
		err := f()
		if err == nil {
			return nil
		}

		if ctx.Err() != nil {
			return ctx.Err()
		}

		if err := s.wait(ctx, what, classify(err)); err != nil {
			return err
		}
	}
}

// wait counts a failure, says so at most every half minute, and waits. With the
// breaker open it goes on waiting until the sink can be reached.
func (s *Shipper) wait(ctx context.Context, what string, e *Error) error {
	s.note(what, e)
	for {
		if s.o.GiveUp > 0 && (e.Class == Refused || time.Since(s.failing.since) >= s.o.GiveUp) {
			return fmt.Errorf("%s: %w", what, e)
		}

		if err := pause(ctx, s.failing.backoff(s.o.Jitter())); err != nil {
			return err
		}

		if s.failing.failures < openAfter {
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
		s.note("reach the store", e)
	}
}

// note counts a failure and logs it, at most every sayEvery.
func (s *Shipper) note(what string, e *Error) {
	t, r := time.Now(), &s.failing
	if r.failures == 0 {
		r.since, r.said = t, time.Time{}
	}

	r.failures++
	r.busy = e.Busy
	s.count(func(st *Stats) {
		st.Retries++
		st.Failing, st.FailingAt, st.LastError = e.Class.String(), r.since, e.Error()
	})
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
func (s *Shipper) recovered() {
	r := s.failing
	if r.failures == 0 {
		return
	}

	s.o.Logger.Info("the store answers again: recovered", "failures", r.failures, "after", time.Since(r.since).Round(time.Millisecond))
	s.failing = failing{}
	s.count(func(st *Stats) { st.Failing, st.LastError, st.FailingAt = "", "", time.Time{} })
}

// backoff is how long is waited; jitter is in [0, 1).
func (r failing) backoff(jitter float64) time.Duration {
	first := firstBackoff
	if r.busy {
		first = busyBackoff
	}

	d := lastBackoff
	if n := r.failures - 1; n < 9 {
		d = min(first<<max(n, 0), lastBackoff)
	}

	wait := time.Duration(jitter * float64(d))
	if r.busy { // half of it at least: a fleet that came back at once would overload it again
		wait = d/2 + wait/2
	}

	// Never quite at once: a store that refuses connections refuses them fast.
	return max(wait, time.Millisecond)
}

// pause waits, or returns the end of ctx.
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
