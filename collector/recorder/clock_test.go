package recorder

import (
	"sync"
	"testing"
	"time"
)

// TestClock_FollowsTheKernels: the counter's time, where it is used, is the kernel's
// clock's, and a look at it is never before the one that came before.
func TestClock_FollowsTheKernels(t *testing.T) {
	for _, want := range []string{"monotonic", "tsc", ""} {
		c := newClock()
		c.start(want)
		var worst, back int64
		for began := time.Now(); time.Since(began) < 300*time.Millisecond; {
			for adjusted := time.Now(); time.Since(adjusted) < 20*time.Millisecond; {
				a := c.kernel()
				n := c.now()
				b := c.kernel()
				worst = max(worst, a-n, n-b)
				back = max(back, n-c.now())
			}

			c.adjust()
		}

		scaled := c.scale.Load() != nil
		t.Logf("LAGGARD_CLOCK=%s: counter used %v, at most %d ns from the kernel's clock, %d ns back", want, scaled, worst, back)
		if worst > 20_000 || back > 0 {
			t.Errorf("LAGGARD_CLOCK=%s: %d ns away from the kernel's clock, %d ns back", want, worst, back)
		}

		if want == "monotonic" && scaled || want == "tsc" && !scaled && ticks() != 0 {
			t.Errorf("LAGGARD_CLOCK=%s: counter used %v", want, scaled)
		}
	}
}

// TestClock_StaleScale: nobody has looked at the kernel's clock for longer than a
// scale is believed, and the scale was too fast: time stands still until the kernel's
// clock is there, and goes on with the next scale.
func TestClock_StaleScale(t *testing.T) {
	if ticks() == 0 {
		t.Skip("NOT TESTED: there is no counter to go by on this processor")
	}

	c := newClock()
	c.start("tsc")
	for c.scale.Load() == nil {
		c.adjust()
	}

	fast := *c.scale.Load()
	fast.mult *= 100
	fast.span = 1000
	c.scale.Store(&fast)
	ahead := fast.at(fast.span)
	a := c.now()
	if a < ahead {
		t.Errorf("%d ns before what the scale has said", ahead-a)
	}

	c.adjust()
	if b := c.now(); b < a {
		t.Errorf("the next scale begins %d ns before the last", a-b)
	}
}

// TestClock_ManyReaders read while the scale changes.
func TestClock_ManyReaders(t *testing.T) {
	c := newClock()
	c.start("tsc")
	done := make(chan struct{})
	var readers sync.WaitGroup
	for range 4 {
		readers.Add(1)
		go func() {
			defer readers.Done()
			last := int64(0)
			for {
				select {
				case <-done:
					return
				default:
				}

				n := c.now()
				if last-n > 1000 {
					t.Errorf("%d ns back", last-n)
					return
				}

				last = n
			}
		}()
	}

	for began := time.Now(); time.Since(began) < 100*time.Millisecond; {
		c.adjust()
	}

	close(done)
	readers.Wait()
}
