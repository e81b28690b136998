package drain

import (
	"testing"
	"time"

	"github.com/laggard-dev/laggard/collector/ring"
)

// TestPauseAfter: at whatever rate slots come, the pauses are such that a ring doesn't fill up, and where
// few come they are as long as may be.
func TestPauseAfter(t *testing.T) {
	o := &Options{Interval: defaultInterval}
	for rate := 100; rate < ring.LightSlots*int(time.Second/(2*rush)); rate += 97 {
		pause, total := rush, time.Duration(0)
		const passes = 100
		for range passes {
			held := int(pause * time.Duration(rate) / time.Second)
			if held > ring.LightSlots/2 {
				t.Fatalf("%d slots a second: %d are there after %s, of %d", rate, held, pause, ring.LightSlots)
			}

			total += pause
			pause = o.pauseAfter(pause, held*4 > ring.LightSlots)
		}

		if time.Duration(rate)*o.Interval < ring.LightSlots/4*time.Second && total < (passes-10)*o.Interval {
			t.Fatalf("%d slots a second: %d passes in %s", rate, passes, total)
		}
	}

	o.Interval = rush / 10
	if got := o.pauseAfter(o.Interval, true); got != o.Interval {
		t.Fatalf("a pause of %s after a full ring, with an interval of %s", got, o.Interval)
	}
}
