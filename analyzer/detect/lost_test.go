package detect

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/laggard-dev/laggard/analyzer/feed"
	"github.com/laggard-dev/laggard/analyzer/simulate"
	"github.com/laggard-dev/laggard/schemas/row"
)

// loses takes records of Communication out of a job's rows, here and there: of each step of each rank some of the waits, and of
// each window as many of the calls.
func loses(rng *rand.Rand, rows *row.Rows, most float64) {
	for i := range rows.Steps {
		s := &rows.Steps[i]
		part := func(x int64) int64 { return int64(float64(x) * most * rng.Float64()) }
		gone := part(s.ExposedNs)
		s.ExposedNs, s.CommNs, s.SelfNs = s.ExposedNs-gone, s.CommNs-gone, s.SelfNs+gone
		s.CommDPNs, s.CommOtherNs, s.CommPPNs = s.CommDPNs-part(s.CommDPNs), s.CommOtherNs-part(s.CommOtherNs), s.CommPPNs-part(s.CommPPNs)
	}

	for i := range rows.Communications {
		c := &rows.Communications[i]
		c.Calls -= uint32(float64(c.Calls) * most * rng.Float64())
	}
}

// TestCosts_LostCalls: where ranks lack calls that the others of their groups recorded, nobody's waits are what they were. A culprit costs what
// steps are longer by, or up to what it takes longer where it was slow from the start; the code before charged a fifth of it, and said so for sure.
func TestCosts_LostCalls(t *testing.T) {
	for _, shape := range []simulate.Shape{{DP: 8, RanksPerNode: 2}, {DP: 4, PP: 2, MicroBatches: 4, RanksPerNode: 2}} {
		for _, from := range []int{90, 0} {
			for seed := range uint64(3) {
				cfg, err := simulate.Sized("healthy", seed, 0)
				if err != nil {
					t.Fatal(err)
				}

				plain(simulate.Config{Shape: shape, Faults: []simulate.Fault{{Kind: simulate.Compute, Node: 2, Factor: 1.5, From: from}}})(&cfg)
				b, rng := &feed.History{}, rand.New(rand.NewPCG(seed, 5))
				truth, err := simulate.Run(cfg, func(rows *row.Rows) { loses(rng, rows, 0.9); b.Add(rows) })
				if err != nil {
					t.Fatal(err)
				}

				if err := truth.Weigh(cfg); err != nil {
					t.Fatal(err)
				}

				f, err := b.Frame(nil)
				if err != nil {
					t.Fatal(err)
				}

				v := Analyze(f, Default())
				sure := v.JobImpact >= 0.7*truth.Impact || from == 0
				if got := accused(v); !slices.Equal(got, []string{"node-2"}) || !sure || v.JobImpact > 1.15*truth.Impact || v.Most() < 0.95*truth.Impact {
					t.Errorf("%+v from %d, seed %d: %v costs %.3f to %.3f, want node-2 for %.3f", shape, from, seed, got, v.JobImpact, v.Most(), truth.Impact)
				}
			}
		}
	}
}
