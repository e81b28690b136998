package simulate

import (
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/laggard-dev/laggard/schemas/topology"
)

// A recorded job's rows become a trace of its grid, healed, whoever says the groups;
// what is replayed is as long as what was recorded.
func TestRecorded_Trace(t *testing.T) {
	for name, c := range map[string]Config{
		"data parallel": {Shape: Shape{DP: 6, RanksPerNode: 2}},
		"pipeline":      {Shape: Shape{TP: 2, DP: 3, PP: 2, MicroBatches: 4, RanksPerNode: 4}},
		"other order":   {Shape: Shape{TP: 2, DP: 3, PP: 2, MicroBatches: 4, RanksPerNode: 4, Order: "tp-cp-pp-dp"}, Record: Recording{Backward: true}},
		"restarted":     {Shape: Shape{DP: 4, RanksPerNode: 1}, Restarts: []Restart{{At: 20, Drop: []int{1}, Shuffle: true}}},
		"no groups":     {Shape: Shape{DP: 4, RanksPerNode: 2}, Record: Recording{NoGroups: true}},
	} {
		t.Run(name, func(t *testing.T) {
			c.Seed, c.Steps, c.Noise = 6, 50, Noise{OpSD: 0.004, DeviceSD: 0.003}
			healthy, _ := mustRows(t, c)
			c.Faults = []Fault{{Kind: Compute, Locals: []int{0}, Factor: 1.5}}
			rows, _ := mustRows(t, c)
			var r Recorded
			r.Add(&rows)
			tr, err := r.Trace(name, nil)
			if err != nil {
				t.Fatal(err)
			}

			want := c.Shape
			want.defaults()
			want.DP -= len(c.Restarts)
			if tr.Shape.TP != want.TP || tr.Shape.DP != want.DP || tr.Shape.PP != want.PP || len(tr.steps) < 20 {
				t.Errorf("shape %+v with %d steps, want %+v", tr.Shape, len(tr.steps), want)
			}

			length := 0.0
			for _, s := range healthy.Steps {
				length += float64(s.StepNs) / 1e9 / float64(len(healthy.Steps))
			}

			_, truth := mustRows(t, Config{Steps: 40, Replay: tr})
			if math.Abs(truth.Seconds/length-1) > 0.15 {
				t.Errorf("replayed steps take %v s, those of the job without its fault %v s", truth.Seconds, length)
			}

			if _, err := Replayed("compute-1.2", 3, tr); err != nil {
				t.Error(err)
			}
		})
	}

	var none Recorded
	if _, err := none.Trace("j", &topology.File{}); err == nil || !strings.Contains(err.Error(), "FP") {
		t.Errorf("a job without forward passes: %v", err)
	}
}

// The archives without the backward pass can be replayed, too.
func TestLoadTrace_ForwardAlone(t *testing.T) {
	dir := dataDir(t)
	if dir == "" {
		return
	}

	for _, name := range []string{"AR-1", "ST"} {
		tr, err := LoadTrace(filepath.Join(dir, name+".tar.gz"))
		if err != nil {
			t.Fatal(err)
		}

		c, err := Replayed("bursts-5", 3, tr)
		if err != nil {
			t.Fatal(err)
		}

		if _, truth := mustRows(t, c); len(truth.Culprits) != 1 {
			t.Errorf("%s: truth %+v", name, truth)
		}
	}
}
