package native_test

import (
	"fmt"
	"testing"

	"laggard/collector/internal/rig"
)

func TestClock(t *testing.T) {
	for _, clock := range []string{"monotonic", "tsc", ""} {
		cmd := command(t, rig.Driver(t), rig.Shared(t), "clock", "400")
		cmd.Env = append(cmd.Env, "LAGGARD_CLOCK="+clock)
		var worst int
		if _, err := fmt.Sscan(runs(t, cmd), &worst); err != nil {
			t.Fatal(err)
		}
		t.Logf("LAGGARD_CLOCK=%s: at most %d ns from the kernel's clock in 400 ms", clock, worst)
		if worst > 20000 {
			t.Errorf("LAGGARD_CLOCK=%s: %d ns away from the kernel's clock", clock, worst)
		}
	}
}
