package drain

import (
	"testing"
	"time"

	"github.com/laggard-dev/laggard/collector/ring"
)

// TestPauseAfter: at whatever rate slots come, the looks are such that a ring, drained when one finds it a quarter full,
// doesn't fill up, and where few come they are as rare as may be.
func TestPauseAfter(t *testing.T) {
	for rate := 100; rate < ring.LightSlots*int(time.Second/(2*rush)); rate += 97 {
		pause, held, total := rush, 0, time.Duration(0)
		const looks = 100
		for range looks {
			held += int(pause * time.Duration(rate) / time.Second)
			if held > 3*ring.LightSlots/4 {
				t.Fatalf("%d slots a second: %d are there after %s, of %d", rate, held, pause, ring.LightSlots)
			}

			full := held*4 > ring.LightSlots
			if full {
				held = 0
			}

			total += pause
			pause = pauseAfter(pause, full)
		}

		if time.Duration(rate)*glance*looks < ring.LightSlots/4*time.Second && total < (looks-10)*glance {
			t.Fatalf("%d slots a second: %d looks in %s", rate, looks, total)
		}
	}
}
