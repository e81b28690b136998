package watch

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/laggard-dev/laggard/analyzer/detect"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestThresholds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "thresholds.yaml")
	write := func(s string) {
		if err := os.WriteFile(path, []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w := &Watcher{o: Options{Thresholds: path}}
	write("effect: 0.1\nalarm: 6\n")
	cfg, changed, err := w.readThresholds()
	if err != nil || !changed || cfg.Effect != 0.1 || cfg.Alarm != 6 || cfg.MinEffect != detect.Default().MinEffect {
		t.Fatalf("readThresholds() = %+v, %v, %v", cfg, changed, err)
	}

	if _, changed, err = w.readThresholds(); changed || err != nil {
		t.Fatalf("readThresholds() of the same file: %v, %v", changed, err)
	}

	for bad, want := range map[string]string{
		`{"efect": 0.1}`: `did you mean effect?`, `{"effect": -1}`: "not a positive number", `{"effect": "x"}`: "is no number", "a: [": "parse",
	} {
		write(bad)
		if _, changed, err := w.readThresholds(); changed || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("readThresholds() of %s: %v, %v; want %q", bad, changed, err, want)
		}

		if _, changed, err := w.readThresholds(); changed || err != nil {
			t.Errorf("readThresholds() tells of %s twice: %v, %v", bad, changed, err)
		}
	}

	write(`{"effect": 0.2}`)
	if cfg, changed, err := w.readThresholds(); err != nil || !changed || cfg.Effect != 0.2 {
		t.Fatalf("readThresholds() after bad ones = %+v, %v, %v", cfg, changed, err)
	}
}

// TestThresholdsOfRunningJob raises the thresholds while a node is suspected: what
// was found under the old ones is not found any more.
func TestThresholdsOfRunningJob(t *testing.T) {
	s, _ := simulated(t, "compute-1.10", 7)
	path := filepath.Join(t.TempDir(), "t.json")
	nodes := func(mid string) int {
		if err := os.WriteFile(path, []byte(`{}`), 0o600); err != nil {
			t.Fatal(err)
		}

		w, err := New(Options{Source: s, Thresholds: path})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		for look := range s.list {
			if look == 1 {
				if err := os.WriteFile(path, []byte(mid), 0o600); err != nil {
					t.Fatal(err)
				}
			}

			if err := w.Look(t.Context()); err != nil {
				t.Fatal(err)
			}
		}

		if err := w.Finish(t.Context()); err != nil {
			t.Fatal(err)
		}

		n := 0
		for _, x := range w.Status().Jobs[s.job].Verdict.Nodes {
			if x.State == verdict.Degraded {
				n++
			}
		}

		return n
	}
	if n := nodes(`{}`); n != 1 {
		t.Fatalf("%d nodes with the defaults, want 1", n)
	}

	if n := nodes(`{"min_effect": 0.5, "effect": 0.6}`); n != 0 {
		t.Fatalf("%d nodes with thresholds above the fault, want 0", n)
	}

	if n := nodes(`{"min_efect": 0.5}`); n != 1 {
		t.Fatalf("%d nodes with a bad file, want the last good thresholds' 1", n)
	}
}

// broken is a sink that fails so often.
type broken struct {
	fails int
	rows  []row.Verdict
}

func (b *broken) store(_ context.Context, rows []row.Verdict) error {
	if b.fails > 0 {
		b.fails--
		return errors.New("the store is away")
	}

	b.rows = append(b.rows, rows...)
	return nil
}

// TestChangesAreSentOnce sends every change once to a sink that fails at first,
// over restarts; nothing is repeated while nothing changes.
func TestChangesAreSentOnce(t *testing.T) {
	s, _ := simulated(t, "compute-2", 9)
	dir, sink := t.TempDir(), &broken{fails: 2}
	var want []string
	o := Options{Source: s, StateDir: dir, Sink: sink.store, Observers: []func(context.Context, *verdict.Verdict, []Change){func(_ context.Context, _ *verdict.Verdict, changes []Change) {
		for _, c := range changes {
			want = append(want, c.Node+c.Finding+c.Group+c.State+c.Cause)
		}
	}}}
	for range len(s.list) + 3 {
		w, err := New(o)
		if err != nil {
			t.Fatal(err)
		}

		if err := w.Look(t.Context()); err != nil && !strings.Contains(err.Error(), "away") {
			t.Fatal(err)
		}

		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}

	var got []string
	for _, r := range sink.rows {
		got = append(got, r.Node+r.Finding+r.Group+r.State+r.Cause)
	}

	if len(want) == 0 || !slices.Equal(got, want) {
		t.Fatalf("sent %v, want %v", got, want)
	}
}

// TestEndedJobIsDropped drops a job after its time, and reads nothing of it then.
func TestEndedJobIsDropped(t *testing.T) {
	s, _ := simulated(t, "compute-2", 9)
	now := time.Unix(1_800_000_000, 0)
	w, err := New(Options{Source: s, Now: func() time.Time { return now }, Forget: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := w.Look(t.Context()); err != nil {
		t.Fatal(err)
	}

	if n := len(w.Status().Jobs); n != 1 {
		t.Fatalf("%d jobs, want 1", n)
	}

	for range len(s.list) + 1 {
		if err := w.Look(t.Context()); err != nil {
			t.Fatal(err)
		}
	}

	now = now.Add(61 * time.Minute)
	if err := w.Look(t.Context()); err != nil {
		t.Fatal(err)
	}

	if st := w.Status(); len(st.Jobs) != 0 || st.Dropped != 1 {
		t.Fatalf("%d jobs, %d dropped; want 0, 1", len(st.Jobs), st.Dropped)
	}
}

func TestStateIsLocked(t *testing.T) {
	dir := t.TempDir()
	d, err := Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if _, err := Lock(dir); err == nil || !strings.Contains(err.Error(), "another") {
		t.Fatalf("Lock twice: %v", err)
	}
}
