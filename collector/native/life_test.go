package native_test

import (
	"bufio"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"laggard/collector/internal/rig"
	"laggard/schemas/record"
)

func TestFork(t *testing.T) {
	run := rig.Shared(t)
	runs(t, command(t, rig.Driver(t), run, "fork", "6"))
	c := newCollect(t, run)
	c.finish(t, run)
	if len(c.writers) != 1+3+1 { // the parent, children 1, 3 and 5, the daemon
		t.Errorf("%d incarnations", len(c.writers))
	}
	var all []string
	for _, w := range c.writers {
		var one []string
		for _, r := range w.Records {
			one = append(one, fmt.Sprintf("%s=%d", r.Word(), r.Bytes))
		}
		all = append(all, strings.Join(one, " "))
		if w.End.How != "closed" || w.Open != nil {
			t.Errorf("end %+v, open %v", w.End, w.Open)
		}
	}
	slices.Sort(all)
	want := []string{
		"parent's string=1 Step=0 parent's string=2",
		"parent's string=101 child's string=201",
		"parent's string=103 child's string=203",
		"parent's string=105 child's string=205",
		"parent's string=300",
	}
	if d := cmp.Diff(want, all); d != "" {
		t.Error(d)
	}
}

func TestThreadChurn(t *testing.T) {
	const rounds, width = 300, 32
	run := rig.Shared(t)
	cmd := command(t, rig.Driver(t), run, "churn", strconv.Itoa(rounds), strconv.Itoa(width))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := newCollect(t, run)
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for running := true; running; {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			running = false
		default:
			if _, err := c.Pass(); err != nil {
				t.Fatal(err)
			}
		}
	}
	c.finish(t, run)
	w := c.only(t)
	seen := make(map[int64]bool)
	for _, r := range w.Records {
		if seen[r.Bytes] {
			t.Fatalf("record %d twice", r.Bytes)
		}
		seen[r.Bytes] = true
	}
	if n := uint64(len(seen)) + w.Lost(); n != rounds*width || w.End.Emitted["other"] != n {
		t.Errorf("%d stored + %d lost of %d, emitted %v", len(seen), w.Lost(), rounds*width, w.End.Emitted)
	}
	t.Logf("%d threads, %d of their records found no ring", rounds*width, w.Lost())
}

func TestEndOnAnotherThread(t *testing.T) {
	run := rig.Shared(t)
	runs(t, command(t, rig.Driver(t), run, "handover"))
	c := newCollect(t, run)
	c.finish(t, run)
	w := c.only(t)
	if len(w.Records) != 3 || len(w.Open) != 1 || w.Open[0].Kind != record.FP {
		t.Errorf("records %v, open %v", w.Records, w.Open)
	}
}

// TestSignalHandlers records in a handler that comes between any two
// instructions of the recorder.
func TestSignalHandlers(t *testing.T) {
	run := rig.Shared(t)
	cmd := command(t, rig.Driver(t), run, "signal", "300")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := newCollect(t, run)
	line := make(chan string, 1)
	go func() {
		s, _ := bufio.NewReader(out).ReadString('\n')
		line <- s
	}()
	var said string
	for said == "" {
		select {
		case said = <-line:
		default:
			if _, err := c.Pass(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	c.finish(t, run)
	var main, handled uint64
	if _, err := fmt.Sscan(said, &main, &handled); err != nil {
		t.Fatal(err)
	}
	w := c.only(t)
	var n, h, marks uint64
	for _, r := range w.Records {
		switch {
		case r.Kind == record.Communication && r.Op == "main":
			n++
		case r.Kind == record.Communication:
			marks++
		default:
			h++
		}
	}
	if n+h+marks+w.Lost() != main+2*handled || w.End.Dropped["corrupt"] != 0 || w.Open != nil {
		t.Errorf("stored %d+%d+%d, lost %d; recorded %d and 2*%d; open %v", n, h, marks, w.Lost(), main, handled, w.Open)
	}
	t.Logf("%d records under %d signals, %d counted as dropped", main, handled, w.Lost())
}
