package detect

import (
	"slices"
	"testing"

	"github.com/laggard-dev/laggard/analyzer/simulate"
)

// Jobs in which every rank is as noisy as the others, and nobody is slow.
func TestAlarms_NoisyJobs(t *testing.T) {
	t.Parallel()
	seeds := seedsOf(4, 12)
	for name, change := range map[string]func(*simulate.Config){
		// A quarter of all steps take a multiple. The location of a window and of a lane lies above zero
		// for everybody then: of one step's residuals the middle is zero.
		"long tails": func(c *simulate.Config) {
			c.Noise.HeavyShare, c.Noise.HeavyScale, c.Noise.HeavyIndex = 0.25, 0.7, 2.5
		},
		"pauses": func(c *simulate.Config) { c.Noise.GCShare, c.Noise.GCPause = 0.3, 1 },
		// Each stage has a host, and the last one alone has own time that varies.
		"pauses of whole stages": func(c *simulate.Config) {
			c.Shape.DP, c.Shape.PP, c.Shape.TP, c.Shape.CP, c.Shape.EP, c.Shape.RanksPerNode = 2, 4, 4, 1, 1, 8
			c.Work.Elasticity, c.Model.Stages = nil, nil
			c.Noise.GCShare, c.Noise.GCPause = 0.35, 0.9
		},
		// Now and then each rank is above the others for a dozen steps.
		"wandering": func(c *simulate.Config) { c.Noise.WaveSD, c.Noise.WaveRho = 0.1, 0.87 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wrong := uint64(0)
			for seed := uint64(31000); seed < 31000+seeds; seed++ {
				v, _ := judged(t, "healthy", seed, 32, change)
				if nodes := accused(v); len(nodes) > 0 {
					wrong++
					t.Logf("seed %d: %d nodes, %+v", seed, len(nodes), v.Nodes[0])
				}
			}

			if wrong > seeds/10 { // of twelve one may wander thrice by chance
				t.Errorf("in %d of %d healthy jobs somebody is accused", wrong, seeds)
			}
		})
	}
}

// A host takes 15 % of each step, and all ranks are noisy: what nothing proves is not healthy.
func TestUndecided_SlowInNoise(t *testing.T) {
	t.Parallel()
	seeds := seedsOf(6, 16)
	healthy, named := 0, 0
	for seed := uint64(32000); seed < 32000+seeds; seed++ {
		v, truth := judged(t, "host-delay", seed, 64, func(c *simulate.Config) {
			if n := &c.Noise; seed%2 == 0 {
				n.WaveSD, n.WaveRho = 0.07, 0.7
			} else {
				n.GCShare, n.GCPause = 0.15, 0.6
			}
		})
		switch {
		case slices.Equal(accused(v), truth.SlowNodes):
			named++
		case len(accused(v)) > 0:
			t.Errorf("seed %d: %v are named, %v are slow", seed, accused(v), truth.SlowNodes)
		case v.Decided:
			healthy++
			t.Logf("seed %d: called healthy", seed)
		}
	}

	t.Logf("%d named, %d called healthy", named, healthy)
	if healthy > 1 {
		t.Errorf("%d of %d slow jobs are called healthy", healthy, seeds)
	}
}
