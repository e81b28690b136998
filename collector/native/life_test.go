package native_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/laggard-dev/laggard/collector/internal/ringtest"
	"github.com/laggard-dev/laggard/collector/native"
	"github.com/laggard-dev/laggard/schemas/record"
)

// TestFork, R27: 64 children of a trainer with a range open; every second records
// nothing and makes no files; one becomes a daemon.
func TestFork(t *testing.T) {
	const children = 64
	run := ringtest.Shared(t)
	runs(t, command(t, ringtest.Driver(t), run, "fork", strconv.Itoa(children)))
	c := ringtest.NewDrain(t, run)
	c.Finish(t)
	var got []string
	for _, w := range c.Writers {
		var one []string
		for _, r := range w.Records {
			one = append(one, fmt.Sprintf("%s=%d", r.Word(), r.Bytes))
		}

		got = append(got, strings.Join(one, " "))
		if w.End.How != "closed" || w.Open != nil {
			t.Errorf("end %+v, open %v", w.End, w.Open)
		}
	}

	want := []string{"parent's string=1 Step=0 parent's string=2", "parent's string=300"}
	for i := 1; i < children; i += 2 {
		want = append(want, fmt.Sprintf("parent's string=%d child's string=%d", 100+i, 200+i))
	}

	slices.Sort(got)
	slices.Sort(want)
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// TestWorkers, R27: 64 workers forked while four threads of the trainer record and
// hold the library's lock now and then: none hangs, each has rings of its own, every
// range is there once or, of the trainer's, counted as lost in a ring that was full:
// on a busy machine the drain gets no turn while four threads fill 1,024 slots each.
func TestWorkers(t *testing.T) {
	const workers = 64
	run := ringtest.Shared(t)
	c, said := drained(t, run, "workers", strconv.Itoa(workers))
	want, err := strconv.Atoi(strings.TrimSpace(said))
	if err != nil {
		t.Fatal(err)
	}

	type place struct {
		ring uint32
		seq  uint64
	}
	seen, parent, full := make(map[int64]int), make(map[place]bool), 0
	for _, w := range c.Writers {
		busy := false
		for _, r := range w.Records {
			switch {
			case strings.HasPrefix(r.Name, "busy"):
				busy, parent[place{r.Ring, r.Seq}] = true, true
			case r.Kind == record.Step:
				seen[r.Step]++
			default:
				seen[r.Bytes]++
			}
		}

		for _, l := range w.Losses {
			if !busy || l.Reason != record.RingFull {
				t.Errorf("lost %+v, a trainer's: %t", l, busy)
			}

			full += int(l.Count)
		}

		if w.End.How != "closed" || w.Open != nil {
			t.Errorf("end %+v, open %v", w.End, w.Open)
		}
	}

	if len(c.Writers) != 1+workers || len(seen) != workers || len(parent)+full != want {
		t.Errorf("%d incarnations, %d workers, %d ranges of the parent's and %d counted, want %d", len(c.Writers), len(seen), len(parent), full, want)
	}

	t.Logf("%d ranges of the parent's, %d of them found a full ring", want, full)
	for i, n := range seen {
		if n != 3 {
			t.Errorf("worker %d: %d ranges, want 3", i, n)
		}
	}
}

// drained runs the driver and drains it meanwhile; it returns what the driver said.
func drained(t *testing.T, run string, args ...string) (*ringtest.Drain, string) {
	t.Helper()
	cmd := command(t, ringtest.Driver(t), run, args...)
	var out strings.Builder
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	c := ringtest.NewDrain(t, run)
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for running := true; running; {
		select {
		case err := <-done:
			if err != nil {
				t.Fatalf("%v: %v", cmd.Args, err)
			}

			running = false
		default:
			if _, err := c.Pass(); err != nil {
				t.Fatal(err)
			}
		}
	}

	c.Finish(t)
	return c, out.String()
}

// TestThreadChurn, R27: threads that record once and end, 10,000 one after the other
// and 64 at a time.
func TestThreadChurn(t *testing.T) {
	for _, c := range []struct{ rounds, width int }{{10000, 1}, {100, 64}} {
		t.Run(fmt.Sprintf("%dx%d", c.rounds, c.width), func(t *testing.T) {
			d, _ := drained(t, ringtest.Shared(t), "churn", strconv.Itoa(c.rounds), strconv.Itoa(c.width))
			w := d.Only(t)
			seen := make(map[int64]bool)
			for _, r := range w.Records {
				if seen[r.Bytes] {
					t.Fatalf("record %d twice", r.Bytes)
				}

				seen[r.Bytes] = true
			}

			n := uint64(c.rounds * c.width)
			if uint64(len(seen))+w.Lost() != n || w.End.Emitted["other"] != n {
				t.Errorf("%d stored + %d lost of %d, emitted %v", len(seen), w.Lost(), n, w.End.Emitted)
			}

			for _, l := range w.Losses {
				if l.Reason == record.NoRing {
					t.Errorf("a thread found no ring: %v", l)
				}
			}

			t.Logf("%d threads, %d of their records found a full ring", n, w.Lost())
		})
	}
}

// TestUnload, R27: a plugin is closed while a thread that recorded lives on.
func TestUnload(t *testing.T) {
	lib, run := ringtest.Library(t), ringtest.Shared(t)
	out := filepath.Join(t.TempDir(), "unload")
	if err := ringtest.Program(t.Context(), lib, "testdata/unload.c", out, "-ldl"); err != nil {
		t.Fatal(err)
	}

	runs(t, command(t, out, run, filepath.Join(lib, native.Library)))
	c := ringtest.NewDrain(t, run)
	c.Finish(t)
	w := c.Only(t)
	for i, r := range w.Records {
		if r.Kind != record.FP || r.Tokens != int64(i) {
			t.Errorf("record %d: %+v", i, r)
		}
	}

	if len(w.Records) != 10 || w.Open != nil || w.Lost() != 0 {
		t.Errorf("%d records, open %v, lost %d", len(w.Records), w.Open, w.Lost())
	}
}

func TestEndOnAnotherThread(t *testing.T) {
	run := ringtest.Shared(t)
	runs(t, command(t, ringtest.Driver(t), run, "handover"))
	c := ringtest.NewDrain(t, run)
	c.Finish(t)
	w := c.Only(t)
	if len(w.Records) != 3 || len(w.Open) != 1 || w.Open[0].Kind != record.FP {
		t.Errorf("records %v, open %v", w.Records, w.Open)
	}
}

// TestSignalHandlers, R27: records in a handler that comes between any two
// instructions of the recorder.
func TestSignalHandlers(t *testing.T) {
	c, said := drained(t, ringtest.Shared(t), "signal", "300")
	var main, handled uint64
	if _, err := fmt.Sscan(said, &main, &handled); err != nil {
		t.Fatal(err)
	}

	w := c.Only(t)
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
