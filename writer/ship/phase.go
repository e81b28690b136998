package ship

import (
	"context"
	"time"
)

// meet waits before the store is spoken to for the first time: a fleet that starts together
// asks it some ten questions an agent. A longer flush than the default tells that there is a
// fleet. A pass, which gives up some time, does not wait, and neither does a shipper that has
// a full batch.
func (s *Shipper) meet(ctx context.Context, timer *time.Timer) error {
	if s.o.Flush <= defaultFlush || s.o.GiveUp > 0 {
		return nil
	}

	timer.Reset(s.phase)
	for {
		s.mu.Lock()
		full := s.fullLocked()
		s.mu.Unlock()
		if full {
			return nil
		}

		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
			return nil
		case <-s.kick:
		}
	}
}

// due returns how long the next round has time; 0 is now.
func (s *Shipper) due() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.flushes) > 0 {
		return 0
	}

	if len(s.waiting) == 0 {
		return time.Hour
	}

	// A Put that waits for memory has nothing to hope for but this round.
	if !s.memory.TryAcquire(1) {
		return 0
	}

	s.memory.Release(1)
	if s.fullLocked() {
		return 0
	}

	return max(s.phaseLocked(), 0)
}

// phaseLocked returns how long it is until the next flush. Flushes are Options.Flush apart,
// beginning at a random part of it after the first Put: agents that were started together
// would flush together for as long as they live. A row waits for Options.Flush at most. s.mu is held.
func (s *Shipper) phaseLocked() time.Duration {
	if s.next.IsZero() {
		s.next = s.since.Add(s.phase)
	}

	if late := s.since.Sub(s.next); late > 0 { // flushes without rows
		s.next = s.next.Add(late.Truncate(s.o.Flush) + s.o.Flush)
	}

	return time.Until(s.next)
}
