package chtest

import (
	"errors"
	"testing"
	"time"
)

// TestProcessStartsAgain: a process that is killed by somebody else runs again; one that the
// test ends stays away.
func TestProcessStartsAgain(t *testing.T) {
	var p process
	again := make(chan int, 1)
	p.start(t, "sleep", t.TempDir(), "said", []string{"sleep", "600"}, func() { again <- 1 })
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
