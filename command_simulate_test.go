package main

import (
	"math"
	"strings"
	"testing"

	"github.com/laggard-dev/laggard/analyzer/feed"
	"github.com/laggard-dev/laggard/analyzer/simulate"
	"github.com/laggard-dev/laggard/schemas/row"
)

// tracedJob makes a trace of a job's rows, whose groups are told by nobody else.
func tracedJob(t *testing.T, name string, rows *row.Rows) (*simulate.Trace, error) {
	t.Helper()
	var h feed.History
	h.Add(rows)
	f, err := h.Frame(nil)
	if err != nil {
		t.Fatal(err)
	}

	groups, ranks := lastAttempt(f)
	return simulate.NewTrace(name, groups, ranks)
}

// A recorded job's rows become a trace of its grid, healed, whoever says the groups;
// what is replayed is as long as what was recorded.
func TestSimulate_RecordedJob(t *testing.T) {
	for name, c := range map[string]simulate.Config{
		"data parallel": {Shape: simulate.Shape{DP: 6, RanksPerNode: 2}},
		"pipeline":      {Shape: simulate.Shape{TP: 2, DP: 3, PP: 2, MicroBatches: 4, RanksPerNode: 4}},
		"other order":   {Shape: simulate.Shape{TP: 2, DP: 3, PP: 2, MicroBatches: 4, RanksPerNode: 4, Order: "tp-cp-pp-dp"}, Record: simulate.Recording{Backward: true}},
		"restarted":     {Shape: simulate.Shape{DP: 4, RanksPerNode: 1}, Restarts: []simulate.Restart{{At: 20, Drop: []int{1}, Shuffle: true}}},
		"no groups":     {Shape: simulate.Shape{DP: 4, RanksPerNode: 2}, Record: simulate.Recording{NoGroups: true}},
	} {
		t.Run(name, func(t *testing.T) {
			c.Seed, c.Steps, c.Noise = 6, 50, simulate.Noise{OpSD: 0.004, DeviceSD: 0.003}
			healthy, _, err := simulate.Rows(c)
			if err != nil {
				t.Fatal(err)
			}

			c.Faults = []simulate.Fault{{Kind: simulate.Compute, Locals: []int{0}, Factor: 1.5}}
			rows, _, err := simulate.Rows(c)
			if err != nil {
				t.Fatal(err)
			}

			tr, err := tracedJob(t, name, &rows)
			if err != nil {
				t.Fatal(err)
			}

			tp, dp, pp := max(1, c.Shape.TP), c.Shape.DP-len(c.Restarts), max(1, c.Shape.PP)
			if tr.Shape.TP != tp || tr.Shape.DP != dp || tr.Shape.PP != pp {
				t.Errorf("shape %+v, want tp %d, dp %d, pp %d", tr.Shape, tp, dp, pp)
			}

			length := 0.0
			for _, s := range healthy.Steps {
				length += float64(s.StepNs) / 1e9 / float64(len(healthy.Steps))
			}

			_, truth, err := simulate.Rows(simulate.Config{Steps: 40, Replay: tr})
			if err != nil || math.Abs(truth.Seconds/length-1) > 0.15 {
				t.Errorf("replayed steps take %v s, those of the job without its fault %v s, %v", truth.Seconds, length, err)
			}

			if _, err := simulate.Replayed("compute-1.2", 3, tr); err != nil {
				t.Error(err)
			}
		})
	}

	rows, _, err := simulate.Rows(simulate.Config{Seed: 6, Steps: 20, Shape: simulate.Shape{DP: 2}, Record: simulate.Recording{Off: []string{"FP"}}})
	if err != nil {
		t.Fatal(err)
	}

	if _, err := tracedJob(t, "j", &rows); err == nil || !strings.Contains(err.Error(), "FP") {
		t.Errorf("a job without forward passes: %v", err)
	}
}
