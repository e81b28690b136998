package depth_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/laggard-dev/laggard/analyzer/feed"
	"github.com/laggard-dev/laggard/analyzer/simulate"
	"github.com/laggard-dev/laggard/analyzer/watch"
	"github.com/laggard-dev/laggard/analyzer/watch/depth"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/schemas/topology"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// recorded is a simulated job as its recorders see it: a step a look, with
// communication only where it is on.
type recorded struct {
	job   string
	rows  row.Rows
	topo  *topology.File
	steps [][]row.Step
	next  int

	mu   sync.Mutex
	deep map[string]bool
}

func (s *recorded) Jobs(context.Context) ([]string, error)            { return []string{s.job}, nil }
func (s *recorded) Newest(context.Context, string) (time.Time, error) { return time.Time{}, nil }
func (s *recorded) Topology() *topology.File                          { return s.topo }
func (s *recorded) Cursor() []byte                                    { return nil }
func (s *recorded) Damaged() []string                                 { return nil }
func (s *recorded) Follow(context.Context, string, []byte) (feed.Reader, error) {
	return s, nil
}

func (s *recorded) Read(_ context.Context, _ feed.Stage, take func(*row.Rows) error) (bool, error) {
	if s.next == len(s.steps) {
		return false, nil
	}

	part := row.Rows{Steps: slices.Clone(s.steps[s.next])}
	if s.next == 0 {
		part.Ranks = s.rows.Ranks
	}

	s.next++
	for i := range part.Steps {
		if r := &part.Steps[i]; !s.deep[r.Node] {
			r.CommNs, r.ExposedNs, r.SelfNs = -1, -1, -1
			r.CommTPNs, r.CommPPNs, r.CommDPNs, r.CommCPNs, r.CommEPNs, r.CommOtherNs = -1, -1, -1, -1, -1, -1
		}
	}

	return false, take(&part)
}

// Get implements depth.Switch.
func (s *recorded) Get(_ context.Context, _, node string) ([]depth.Setting, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return []depth.Setting{{Light: true, Communication: s.deep[node], Ours: s.deep[node]}}, nil
}

// Set implements depth.Switch.
func (s *recorded) Set(_ context.Context, _, node string, on bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deep[node] = on
	return nil
}

// TestLinkIsNamed: in a job that records the light kinds alone a link becomes slow, of
// which nothing shows but longer steps. In depth it is named, and then depth ends.
func TestLinkIsNamed(t *testing.T) {
	cfg, err := simulate.Sized("slow-link", 7, 64)
	if err != nil {
		t.Fatal(err)
	}

	cfg.Steps = 400
	s := &recorded{job: cfg.Job, topo: simulate.Topology(cfg), deep: map[string]bool{}}
	if s.rows, _, err = simulate.Rows(cfg); err != nil {
		t.Fatal(err)
	}

	low := s.rows.Steps[0].Step
	for i := range s.rows.Steps {
		low = min(low, s.rows.Steps[i].Step)
	}

	s.job = s.rows.Steps[0].Job
	s.steps = make([][]row.Step, cfg.Steps)
	for _, r := range s.rows.Steps {
		s.steps[r.Step-low] = append(s.steps[r.Step-low], r)
	}

	d, err := depth.New(depth.Options{Switch: s, Nodes: 8})
	if err != nil {
		t.Fatal(err)
	}

	var w *watch.Watcher
	var last *verdict.Verdict
	began, ended := -1, -1
	w, err = watch.New(watch.Options{Source: s, Observers: []func(context.Context, *verdict.Verdict, []watch.Change){func(ctx context.Context, v *verdict.Verdict, _ []watch.Change) {
		last = v
		d.Observe(v, w.Suspects(v.Job))
		for range 3 {
			d.Sync(ctx)
		}

		on := 0
		for _, is := range s.deep {
			if is {
				on++
			}
		}

		switch {
		case on > 0 && began < 0:
			began = s.next
			if len(v.Links) > 0 {
				t.Errorf("a link was named without communication: %+v", v.Links)
			}
		case on == 0 && began >= 0 && ended < 0:
			ended = s.next
			if len(v.Links) == 0 && !slices.ContainsFunc(v.Nodes, func(n verdict.Node) bool { return n.Cause == verdict.Communication }) {
				t.Errorf("depth ended at step %d with nothing named: %+v", v.Steps.Last, v.Findings)
			}
		}
	}}})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for range s.steps {
		if err := w.Look(t.Context()); err != nil {
			t.Fatal(err)
		}
	}

	t.Logf("fault %+v; in depth from look %d to %d of %d; links %+v", cfg.Faults, began, ended, cfg.Steps, last.Links)
	if began < 0 || ended < 0 || len(last.Links) == 0 {
		t.Fatalf("in depth from %d to %d; links %+v, findings %+v", began, ended, last.Links, last.Findings)
	}
}
