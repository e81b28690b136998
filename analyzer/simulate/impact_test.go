package simulate

import (
	"math"
	"path/filepath"
	"slices"
	"testing"
)

func weighed(t *testing.T, c Config) Truth {
	t.Helper()
	_, truth := mustRows(t, c)
	if err := truth.Weigh(c); err != nil {
		t.Fatal(err)
	}

	return truth
}

func TestWeigh_IsWhatTheFaultCosts(t *testing.T) {
	c := Config{Seed: 5, Steps: 40, Shape: Shape{DP: 8}, Model: Model{DPShare: 1e-6, HostGap: -1, Optimizer: -1}, Loader: Loader{Ranks: "none"},
		Faults: []Fault{{Kind: Compute, Locals: []int{1}, Factor: 1.25, From: 20}}}
	if got := weighed(t, c).Impact; math.Abs(got-0.2) > 0.002 {
		t.Errorf("impact %v, want 0.2", got)
	}

	c.Faults[0].To = 30 // half of the steps since the onset
	truth := weighed(t, c)
	if x := truth.Culprits[0]; math.Abs(x.Impact-0.2) > 0.002 || x.UntilStep != 30 || math.Abs(truth.Impact-1./9) > 0.002 {
		t.Errorf("impact %v of %+v, want 0.2 to its end and 1/9 to the job's", truth.Impact, x)
	}

	c.Faults = nil
	if got := weighed(t, c).Impact; got != 0 {
		t.Errorf("impact without a fault = %v", got)
	}
}

// Of two culprits the slower one hides the other: each alone saves little or
// nothing, both together all of it.
func TestWeigh_EachAloneAndAllTogether(t *testing.T) {
	c := Config{Seed: 5, Steps: 30, Shape: Shape{DP: 8, RanksPerNode: 1}, Model: Model{DPShare: 1e-6, HostGap: -1, Optimizer: -1}, Loader: Loader{Ranks: "none"},
		Faults: []Fault{{Kind: Compute, Node: 1, Factor: 1.25}, {Kind: Compute, Node: 3, Factor: 1.2}}}
	truth := weighed(t, c)
	alone := []float64{truth.Culprits[0].Impact, truth.Culprits[1].Impact}
	if math.Abs(truth.Impact-0.2) > 0.002 || math.Abs(alone[0]-0.04) > 0.002 || alone[1] > 0.001 {
		t.Errorf("each alone %v, together %v, want 0.04, 0 and 0.2", alone, truth.Impact)
	}
}

// A fault that never begins is not in the truth.
func TestTruth_NamesOnlyWhatBegan(t *testing.T) {
	c := Config{Seed: 5, Steps: 20, Shape: Shape{DP: 8}, Faults: []Fault{{Kind: Compute, Factor: 1.5, From: 20}, {Kind: SaveSlow, Factor: 3}, {Kind: Link, Group: "dp-stage0", Share: 0.2, From: 30}}}
	truth := weighed(t, c)
	if len(truth.SlowNodes)+len(truth.SlowRanks)+len(truth.Links)+len(truth.Culprits)+len(truth.Cause) > 0 || truth.OnsetStep != nil || !slices.Equal(truth.ExpectExit, []int{0}) {
		t.Errorf("truth %+v", truth)
	}
}

// The truth follows from what is written: the job's files hold the culprit's longer
// ranges from the onset on, and its steps against those of the same job without the
// culprit are the impact.
func TestWeigh_HoldsInTheFiles(t *testing.T) {
	for name, c := range map[string]Config{
		"one of a pipeline": {Seed: 3, Shape: Shape{DP: 4, PP: 2, RanksPerNode: 2}, Faults: []Fault{{Kind: Compute, Node: 1, Locals: []int{0}, Factor: 1.4, From: 12}}},
		"two":               {Seed: 4, Shape: Shape{DP: 8, RanksPerNode: 1}, Faults: []Fault{{Kind: Compute, Node: 1, Factor: 1.4, From: 12}, {Kind: Compute, Node: 5, Factor: 1.3, From: 20}}},
		"one in bursts":     {Seed: 5, Shape: Shape{DP: 6, RanksPerNode: 2}, Faults: []Fault{{Kind: Compute, Node: 2, Locals: []int{1}, Factor: 1.5, From: 12, BurstShare: 0.2, BurstSteps: 1, BurstMost: 3}}},
		"a saver":           {Seed: 6, Shape: Shape{DP: 6, RanksPerNode: 2}, Checkpoint: Checkpoint{Every: 8, Ranks: "all", HeavyShare: 0.1}, Faults: []Fault{{Kind: SaveSlow, Node: 2, Factor: 3, From: 12}}},
	} {
		t.Run(name, func(t *testing.T) {
			c.Steps = 48
			c.Noise = Noise{OpSD: 0.005, StepSD: 0.003, DeviceSD: 0.003}
			write := func(c Config) (Truth, map[uint64]float64) {
				dir := filepath.Join(t.TempDir(), "job")
				truth, err := Write(dir, c)
				if err != nil {
					t.Fatal(err)
				}

				steps := map[uint64]float64{}
				for _, s := range rolled(t, dir).Steps {
					steps[s.Step] += float64(s.StepNs)
				}

				return truth, steps
			}
			truth, with := write(c)
			since := func(v map[uint64]float64, from int) (sum float64) {
				for k, x := range v {
					if int(k) >= from {
						sum += x
					}
				}

				return sum
			}
			check := func(what string, got float64, faults []Fault, from int) {
				healthy := c
				healthy.Faults = faults
				_, without := write(healthy)
				if want := 1 - since(without, from)/since(with, from); math.Abs(got-want) > 1e-6 || want <= 0 {
					t.Errorf("impact of %s is %v in the truth, %v in the files", what, got, want)
				}
			}
			check("all", truth.Impact, nil, *truth.OnsetStep)
			for i, x := range truth.Culprits {
				check(x.Node, x.Impact, slices.Delete(slices.Clone(c.Faults), i, i+1), x.OnsetStep)
			}
		})
	}
}
