package detect

import (
	"slices"
	"testing"

	"github.com/laggard-dev/laggard/analyzer/simulate"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// slowRanks makes some ranks slow from the start, each by its own factor.
func (j *job) slowRanks(by map[int]float64) {
	j.fault = func(r, _, _ int) effect { return effect{forward: by[r], backward: by[r]} }
}

// blamed lists the nodes that are blamed, in order.
func blamed(v *verdict.Verdict) (nodes []string) {
	for _, n := range v.Nodes {
		if verdict.Blamed(n.State) {
			nodes = append(nodes, n.Node)
		}
	}

	slices.Sort(nodes)
	return nodes
}

// TestStanding_FewThatAreFarSlower: two of eight nodes that were always slower by a third and more
// slow the job, whatever they are. It is no mix of hardware, and costs too much to be called healthy.
func TestStanding_FewThatAreFarSlower(t *testing.T) {
	for name, c := range map[string]struct {
		pp, dp, tp, perNode int
		slow                map[int]float64
		want                []string
	}{
		"replicas":              {1, 8, 1, 1, map[int]float64{2: 1.61, 3: 1.59}, []string{"host-02", "host-03"}},
		"half of a small stage": {2, 4, 4, 4, map[int]float64{17: 1.35, 26: 1.32}, []string{"host-04", "host-06"}},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(8) {
				j := newJob(seed)
				j.shape(c.pp, c.dp, c.tp, c.perNode)
				j.seq, j.unrecorded = 0, 0
				j.slowRanks(c.slow)
				v := Analyze(j.frame(), Default())
				if got := blamed(v); !slices.Equal(got, c.want) || v.Exit(0.03) != verdict.ExitDegraded {
					t.Errorf("seed %d: %v, exit %d, want %v; findings %+v", seed, got, v.Exit(0.03), c.want, v.Findings)
				}
			}
		})
	}
}

// TestStanding_TwoModels: where half of the hosts are of a model that is slower by 5 %, ranks lie as far apart as a slow one
// from them; the others of its own host tell.
func TestStanding_TwoModels(t *testing.T) {
	for seed := range uint64(8) {
		j := newJob(seed)
		j.shape(1, 16, 1, 4)
		j.seq, j.sigma, j.rho = 0, 0.01, 0
		older := map[int]float64{0: 1.05, 1: 1.05, 2: 1.05, 3: 1.05, 8: 1.05, 9: 1.05, 10: 1.05, 11: 1.05}
		j.slowRanks(older)
		if got := blamed(Analyze(j.frame(), Default())); len(got) > 0 {
			t.Errorf("seed %d: %v of two models are accused", seed, got)
		}

		older[6] = 1.15
		j.slowRanks(older)
		if got := blamed(Analyze(j.frame(), Default())); !slices.Equal(got, []string{"host-01"}) {
			t.Errorf("seed %d: %v, want host-01", seed, got)
		}
	}
}

// TestStanding_WholeHost: a host whose eight ranks are slow is no like of one that has a single rank
// which noise makes as slow.
func TestStanding_WholeHost(t *testing.T) {
	for seed := range uint64(8) {
		j := newJob(seed)
		j.shape(1, 64, 1, 8)
		j.seq, j.sigma, j.rho, j.spread = 0, 0.05, 0, 0.01
		j.onNode(1, 0, effect{host: 0.08})
		v := Analyze(j.frame(), Default())
		if got := blamed(v); !slices.Equal(got, []string{"host-01"}) {
			t.Errorf("seed %d: %v; findings %+v", seed, got, v.Findings)
		}
	}
}

// TestMoreWork_AllStagesOnSeveralNodes: a replica whose stages, each on a node of its own, take as much
// longer has more to do.
func TestMoreWork_AllStagesOnSeveralNodes(t *testing.T) {
	for seed := range uint64(8) {
		j := newJob(seed)
		j.shape(4, 4, 1, 4)
		j.seq, j.unrecorded, j.drift = 0, 0, 0
		j.slowRanks(map[int]float64{2: 1.21, 6: 1.21, 10: 1.21, 14: 1.21})
		v := Analyze(j.frame(), Default())
		said := slices.ContainsFunc(v.Findings, func(f verdict.Finding) bool {
			return f.Kind == verdict.WorkloadImbalance && slices.Equal(f.Ranks, []int{2, 6, 10, 14}) && f.JobImpact > 0.02
		})
		if len(blamed(v)) > 0 || !said || v.Exit(0.03) != verdict.ExitHealthy {
			t.Errorf("seed %d: %v, exit %d, findings %+v", seed, blamed(v), v.Exit(0.03), v.Findings)
		}
	}
}

// TestCosts_MayBeAnother: where no groups are known one of two ranks that are as slow may wait for the other.
// At most they cost what both do.
func TestCosts_MayBeAnother(t *testing.T) {
	for seed := range uint64(8) {
		j := newJob(seed)
		j.shape(1, 8, 1, 1)
		j.seq, j.noTopology = 0, true
		j.slowRanks(map[int]float64{2: 1.6, 3: 1.6})
		v := Analyze(j.frame(), Default())
		if got := blamed(v); len(got) == 0 || v.Most() < 0.25 {
			t.Errorf("seed %d: %v, costs %.3f to %.3f; findings %+v", seed, got, v.JobImpact, v.JobImpactMax, v.Findings)
		}
	}
}

// TestDecide_BesideOneThatCostsLittle: that a rank has one peer, and always was slower, stays open when somebody
// else is found who costs little.
func TestDecide_BesideOneThatCostsLittle(t *testing.T) {
	cfg := Default()
	cfg.MinImpact = 0.05
	for seed := range uint64(8) {
		j := newJob(seed)
		j.shape(8, 2, 1, 4)
		j.seq, j.unrecorded, j.drift = 0, 0, 0
		j.fault = func(r, _, step int) effect {
			switch {
			case r == 15:
				return effect{forward: 1.35, backward: 1.35}
			case r == 1 && step >= 80:
				return effect{backward: 1.7}
			}

			return effect{}
		}
		if v := Analyze(j.frame(), cfg); v.Healthy {
			t.Errorf("seed %d: healthy, %v; findings %+v", seed, blamed(v), v.Findings)
		}
	}
}

// TestLinks_AllOfAStage: the groups of one stage slow down together, for a node of all of them has a slow network.
// Those of the other stage tell that it is not the fabric.
func TestLinks_AllOfAStage(t *testing.T) {
	for seed := range uint64(4) {
		j := newJob(seed)
		j.shape(2, 4, 4, 4)
		j.steps, j.congestion = 240, false
		j.link = func(stage, _, step int) float64 {
			if stage == 0 && step >= 80 {
				return 4
			}

			return 1
		}
		v := Analyze(j.frame(), Default())
		var got []string
		for _, l := range v.Links {
			got = append(got, l.Group)
		}

		slices.Sort(got)
		if len(blamed(v)) > 0 || !slices.Equal(got, []string{"dp-0", "dp-1", "dp-2", "dp-3"}) {
			t.Errorf("seed %d: links %v, nodes %v, findings %+v", seed, got, blamed(v), v.Findings)
		}
	}
}

// TestRecovered_NoisyForLong: a rank takes a fifth longer for a hundred steps, in replicas whose work differs by 8 %. No
// window of them is as clear as what is told when it is over and nobody can check it; all of them together are.
func TestRecovered_NoisyForLong(t *testing.T) {
	for seed := range uint64(8) {
		j := newJob(seed)
		j.shape(1, 8, 1, 1)
		j.seq, j.unrecorded, j.heavy, j.steps = 0.08, 0, false, 260
		j.fault = func(r, _, step int) effect {
			if r == 3 && step >= 60 && step < 165 {
				return effect{forward: 1.2, backward: 1.2}
			}

			return effect{}
		}
		v := Analyze(j.frame(), Default())
		if len(v.Nodes) != 1 || v.Nodes[0].Node != "host-03" || v.Nodes[0].State != verdict.Recovered || v.Nodes[0].UntilStep < 155 || v.Nodes[0].UntilStep > 175 {
			t.Errorf("seed %d: nodes %+v, want host-03 recovered about step 165", seed, v.Nodes)
		}
	}
}

// TestStanding_UntoldGroups: where no groups are told, all ranks of a tensor group take as long for their passes, and nobody told
// that they wait there, the one that is in communication for least is the culprit. Its cost is known as a bound.
func TestStanding_UntoldGroups(t *testing.T) {
	for seed := range uint64(6) {
		j := newJob(seed)
		j.shape(1, 4, 4, 1)
		j.noTopology, j.tpShared, j.covered = true, true, true
		j.seq, j.unrecorded = 0, 0
		j.slowRanks(map[int]float64{1: 1.46})
		v := Analyze(j.frame(), Default())
		if got := blamed(v); !slices.Equal(got, []string{"host-01"}) {
			t.Errorf("seed %d: %v, want host-01; findings %+v", seed, got, v.Findings)
			continue
		}

		if most := v.Nodes[0].Most(); most < 0.1 {
			t.Errorf("seed %d: it costs %.4f at most, and the job waits for all that it takes longer", seed, most)
		}
	}
}

// TestTokens_GivenMore: one of eight replicas is given 8 % more tokens in each step, and takes as much longer, under noise that hides how times go with
// them: they never change. That it was given more explains it. One that is slow beyond that is named.
func TestTokens_GivenMore(t *testing.T) {
	for seed := range uint64(6) {
		job := simulate.Config{Shape: simulate.Shape{DP: 8, RanksPerNode: 2}, Work: simulate.Work{Replicas: []float64{1, 1, 1.08, 1, 1, 1, 1, 1}, Tokens: 32768}}
		noisy := func(c *simulate.Config) {
			plain(job)(c)
			c.Noise.StepSD = 0.05
		}
		exactly(t, "healthy", seed, noisy)
		job.Faults = []simulate.Fault{{Kind: simulate.Compute, Node: 1, Locals: []int{0}, Factor: 1.4, From: 100}}
		exactly(t, "healthy", seed, noisy)
	}
}
