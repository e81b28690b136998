package chtest

import (
	"errors"
	"testing"
	"time"
)

// TestProcessStartsAgain: a process that is killed by somebody else runs again; one that the
// test ends stays away.
func TestProcessStartsAgain(t *testing.T) {
	p := process{t: t, what: "sleep", dir: t.TempDir()}
	again := make(chan int, 1)
	p.start(func() { again <- 1 }, "sleep", "600")
	first, _ := p.running()
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}

	<-again
	Eventually(t, "it runs again", time.Minute, func() error {
		if second, _ := p.running(); second == first {
			return errors.New("it is the first one still")
		}

		return nil
	})
	_, done := p.running()
	p.Kill()
	<-done
	select {
	case <-again:
		t.Error("it was started again though the test has ended it")
	default:
	}
}
