package mspti_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/laggard-dev/laggard/collector/internal/ringtest"
	"github.com/laggard-dev/laggard/collector/ring"
	"github.com/laggard-dev/laggard/schemas/record"
)

// openRanges counts the ranges that are open in a run directory; a folder that is just
// being made has none.
func openRanges(t testing.TB, run string) (n int) {
	t.Helper()
	names, err := ring.Names(run)
	if err != nil {
		t.Fatal(err)
	}

	for _, name := range names {
		f, err := ring.OpenFolder(run, name)
		if err != nil {
			continue
		}
		defer f.Close()
		s, _ := f.Status()
		for i := range s.Rings {
			if r, err := f.OpenReader(i + 1); err == nil {
				open, _ := r.OpenRanges()
				n += len(open)
				r.Close()
			}
		}
	}

	return n
}

// passEvery is how often a drain looks while a trainer computes: without a pause it takes a processor for as long.
const passEvery = 5 * time.Millisecond

// TestHang names the ranges that were begun and never ended, with the time they
// really began.
func TestHang(t *testing.T) {
	run := ringtest.Shared(t)
	k := talkTo(t, command(t, run, "trainer", "hang", "0", "2"))
	if got := k.line(); got != "hangs" {
		t.Fatal(got)
	}

	before := time.Now().UnixNano()
	c := ringtest.NewDrain(t, run)
	tick := time.NewTicker(passEvery)
	defer tick.Stop()
	for deadline := time.Now().Add(3 * time.Minute); openRanges(t, run) < 2; <-tick.C {
		if _, err := c.Pass(); err != nil {
			t.Fatal(err)
		}

		if time.Now().After(deadline) {
			t.Fatalf("%d ranges are open", openRanges(t, run))
		}
	}

	if err := k.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}

	_ = k.cmd.Wait() // killed: the error is the point
	w := c.Finish(t).Only(t)
	slices.SortFunc(w.Open, func(a, b record.Record) int { return strings.Compare(a.Word(), b.Word()) })
	if len(w.Open) != 2 {
		t.Fatalf("open %v", w.Open)
	}

	comm, step := w.Open[0], w.Open[1]
	if comm.Op != "broadcast" || comm.Group != "dp" || step.Kind != record.Step || step.Step != 77 {
		t.Errorf("open %+v and %+v", comm, step)
	}

	for _, r := range w.Open {
		if r.Start > before || r.Start < before-5e9 {
			t.Errorf("%s began at %d, about %d ns before the hang was said", r.Word(), r.Start, before-r.Start)
		}
	}
}

// TestKill: SIGKILL loses at most what libmspti had not handed over and what the
// library was at, and leaves no half records.
func TestKill(t *testing.T) {
	n, steps := ringtest.Kills(3), 0
	for i := range n {
		run := ringtest.Shared(t)
		k := talkTo(t, command(t, run, "trainer", "forever", "0", "20"))
		if got := k.line(); got != "on" {
			t.Fatal(got)
		}

		c := ringtest.NewDrain(t, run)
		timer := time.NewTimer(time.Duration(3000+i*237) * time.Millisecond)
		tick := time.NewTicker(passEvery)
		defer tick.Stop()
		for waiting := true; waiting; {
			select {
			case <-timer.C:
				waiting = false
			case <-tick.C:
				if _, err := c.Pass(); err != nil {
					t.Fatal(err)
				}
			}
		}

		if err := k.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}

		at := time.Now()
		_ = k.cmd.Wait() // killed: the error is the point
		w := c.Finish(t).Only(t)
		if w.End == nil || w.End.How != "killed" || w.End.Dropped[record.Corrupt] != 0 {
			t.Fatalf("end %+v", w.End)
		}

		steps += killed(t, w, at.Add(-2500*time.Millisecond).UnixNano())
	}

	t.Logf("%d kills with SIGKILL (LAGGARD_KILLS), %d steps stored", n, steps)
}

// killed checks that each step is there once at most, and those that began before a
// moment are there. The n-th batch was loaded in step n.
func killed(t *testing.T, w *ringtest.Memory, before int64) int {
	t.Helper()
	seen := make(map[int64]int)
	var loads []int64
	for _, r := range w.Records {
		switch r.Kind {
		case record.Step:
			seen[r.Step]++
		case record.DataLoader:
			loads = append(loads, r.Start)
		}
	}

	old := 0
	for i, start := range loads {
		n := seen[int64(i)]
		if n > 1 || n == 0 && start < before && w.Lost() == 0 {
			t.Fatalf("step %d of %d is there %d times; end %+v", i, len(loads), n, w.End)
		}

		if start < before {
			old++
		}
	}

	if old == 0 {
		t.Fatalf("no step is old enough, of %d", len(loads))
	}

	return len(seen)
}
