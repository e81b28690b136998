package switchboard

import (
	"testing"

	"github.com/laggard-dev/laggard/collector/internal/ringtest"
	"github.com/laggard-dev/laggard/collector/ring"
	"github.com/laggard-dev/laggard/collector/trace"
)

// TestSwitchOfOneJob: a word of one job reaches its recorders alone, a word of all jobs
// replaces those, and the first word of a source that spoke before is left to the drain.
func TestSwitchOfOneJob(t *testing.T) {
	const uid = "6f3a0c1e-5d0b-4b8e-9a55-0123456789ab"
	run := ringtest.Shared(t)
	processes := map[string]*ring.Process{}
	for _, job := range []string{"a", "b", uid} {
		processes[job] = begin(t, run, job, trace.On)
	}

	s := New(Options{RunDir: run, Job: "ns/c"})
	for _, job := range []string{"a", "b", uid} {
		if _, ok := s.Wanted(job); ok {
			t.Errorf("of %s something is wanted that nobody said", job)
		}
	}

	allOff, lightOnly := trace.State{}, trace.State{Light: true}
	check := func(a, b, c trace.State) {
		t.Helper()
		for job, want := range map[string]trace.State{"a": a, "b": b, uid: c} {
			if got := told(t, processes[job]); got != want {
				t.Errorf("job %s is told %v, want %v", job, got, want)
			}
		}
	}
	set := func(job string, state trace.State) {
		t.Helper()
		if err := s.set(job, state, ""); err != nil {
			t.Fatal(err)
		}
	}
	follow := func(job string, state trace.State) {
		t.Helper()
		if err := s.Follow(job, state); err != nil {
			t.Fatal(err)
		}
	}
	set("a", allOff)
	check(allOff, trace.On, trace.On)
	set("c", lightOnly)
	check(allOff, trace.On, lightOnly)
	follow("b", allOff) // what held before: the drain's to tell
	check(allOff, trace.On, lightOnly)
	if bits, ok := s.Wanted("b"); !ok || trace.FromBits(bits) != allOff {
		t.Errorf("of b is wanted %v, %v", trace.FromBits(bits), ok)
	}

	if _, ok := s.Wanted("later"); ok {
		t.Error("a word of one job is wanted of a later one")
	}

	follow("b", lightOnly) // news
	check(allOff, lightOnly, lightOnly)
	follow("", lightOnly) // what held before, of every job
	check(allOff, lightOnly, lightOnly)
	for _, job := range []string{"a", "b", uid, "later"} {
		if bits, ok := s.Wanted(job); !ok || trace.FromBits(bits) != lightOnly {
			t.Errorf("of %s is wanted %v, %v: a word of all jobs replaces the others", job, trace.FromBits(bits), ok)
		}
	}

	follow("", trace.On)
	check(trace.On, trace.On, trace.On)
	if bits, ok := s.Wanted("later"); !ok || trace.FromBits(bits) != trace.On {
		t.Errorf("a word of all jobs is not wanted of a later one: %v, %v", trace.FromBits(bits), ok)
	}
}
