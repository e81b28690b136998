package health

import (
	"context"
	"time"
)

// Waker has a step done again and again.
type Waker chan struct{}

// NewWaker returns one that sleeps.
func NewWaker() Waker { return make(Waker, 1) }

// Wake makes the next step due at once.
func (w Waker) Wake() {
	select {
	case w <- struct{}{}:
	default:
	}
}

// Run does the step until ctx ends: again after the time that it returned, or when woken.
func (w Waker) Run(ctx context.Context, step func(context.Context) time.Duration) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(step(ctx)):
		case <-w:
		}
	}
}
