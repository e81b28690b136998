package chtest

import (
	"os"
	"testing"
	"time"
)

func TestUsage(t *testing.T) {
	began, before := time.Now(), ProcessorTime(t, os.Getpid())
	for ProcessorTime(t, os.Getpid()) < before+20*time.Millisecond {
		if time.Since(began) > time.Minute {
			t.Fatal("a minute's work took less than 20 ms of processor time")
		}
	}

	if kib, err := Memory(os.Getpid(), "VmRSS"); err != nil || kib < 1<<10 || kib > 1<<24 {
		t.Errorf("VmRSS of this process: %d KiB, %v", kib, err)
	}

	if kib, err := Memory(os.Getpid(), "VmNone"); err == nil {
		t.Errorf("a figure that there is none of: %d KiB", kib)
	}

	if kib, err := Memory(1<<30, "VmRSS"); err == nil {
		t.Errorf("a process that there is none of: %d KiB", kib)
	}
}
