package recorder

import (
	"os"
	"strings"
)

// ticks reads the time stamp counter.
func ticks() uint64

// cpuid asks the processor what it can do.
func cpuid(leaf uint32) (eax, ebx, ecx, edx uint32)

// invariant reports whether the counter runs at one rate in every power state and the
// kernel itself keeps its time by it.
func invariant() bool {
	const powerManagement, invariantTSC = 0x80000007, 1 << 8
	if most, _, _, _ := cpuid(0x80000000); most < powerManagement {
		return false
	}

	if _, _, _, edx := cpuid(powerManagement); edx&invariantTSC == 0 {
		return false
	}

	b, err := os.ReadFile("/sys/devices/system/clocksource/clocksource0/current_clocksource")
	return err == nil && strings.TrimSpace(string(b)) == "tsc"
}
