package detect

import (
	"math"
	"slices"
	"testing"

	"github.com/laggard-dev/laggard/analyzer/simulate"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// hard are jobs unlike those of the evaluation table: small, changing, mixed.
var hard = []scenario{
	{row: "h1 TP2 x DP2 x1.3", make: func(j *job) truth {
		j.shape(1, 2, 2, 1+j.rng.IntN(2))
		j.tpShared = true
		t := j.on(j.victim(), 60, effect{forward: 1.3, backward: 1.3})
		t.causes = []string{verdict.Compute}
		return t
	}, recall: 0.97, cause: 0.95, intime: 0.9, within: 20},
	{row: "h2 two ranks x1.3 after 20 healthy steps", make: func(j *job) truth {
		j.shape(1, 2, 1, 1)
		t := j.on(j.victim(), 31, effect{forward: 1.3, backward: 1.3}) // ten steps warm up
		t.causes = []string{verdict.Compute}
		return t
	}, recall: 0.97, cause: 0.95, intime: 0.9, within: 20},
	{row: "h2 two ranks x1.3 from the start", make: func(j *job) truth {
		j.shape(1, 2, 1, 1)
		j.on(j.victim(), 1, effect{forward: 1.3, backward: 1.3})
		return truth{undecided: true}
	}, recall: 0.97},
	{row: "h3 two of four x1.15 x1.20", make: func(j *job) truth {
		j.shape(1, 4, 1, 1)
		return j.pair(1.15, 1.20)
	}, recall: 0.97, cause: 0.95, intime: 0.9, within: 20},
	{row: "h3 two of a role of four x1.15 x1.20", make: func(j *job) truth {
		j.shape(4, 4, 1, 1)
		return j.pair(1.15, 1.20)
	}, recall: 0.97, cause: 0.95, intime: 0.9, within: 20},
	{row: "h4 steps six times as long, then x1.2", make: func(j *job) truth {
		j.whole = func(step int) float64 {
			switch {
			case step == 50 || step == 51:
				return 0.15
			case step >= 60:
				return 6
			}

			return 1
		}
		t := j.on(j.victim(), 100, effect{forward: 1.2, backward: 1.2})
		t.causes = []string{verdict.Compute}
		t.finding, t.maybe = verdict.JobSlow, true
		return t
	}, recall: 1, cause: 0.95, intime: 0.95, within: 8},
	{row: "h4 warm-up ten times as long, then x1.2", make: func(j *job) truth {
		j.begin = 10
		t := j.on(j.victim(), 30, effect{forward: 1.2, backward: 1.2})
		t.causes = []string{verdict.Compute}
		return t
	}, recall: 1, cause: 0.95, intime: 0.95, within: 8},
	{row: "h6 stages follow the work 1.5 and 0.8 times, x1.05", make: func(j *job) truth {
		j.shape(4, 8, 1, 4)
		j.seq, j.elastic, j.steps = 0.1, []float64{1, 0.8, 1.2, 1.55}, 300
		t := compute1(1.05)(j)
		t.finding, t.maybe = verdict.WorkloadImbalance, true
		return t
	}, recall: 0.97, cause: 0.95},
	{row: "h6 mates absent, sequence noise", make: func(j *job) truth {
		j.shape(4, 8, 1, 1)
		j.seq, j.elastic, j.steps = 0.1, []float64{1, 0.8, 1.2, 1.5}, 300
		j.absent = map[int]bool{}
		for q := range 2 {
			for s := 1; s < 4; s++ {
				j.absent[j.rank(s, q, 0)] = true
			}
		}

		return truth{finding: verdict.WorkloadImbalance, maybe: true}
	}},
	{row: "h7 bursts of 8 every 25", make: bursts(8, 25), recall: 0.97, cause: 0.95},
	{row: "h7 5 % in bursts of 1-3", make: rare(0.05), recall: 0.9, cause: 0.95},
	{row: "h7 2 % in bursts of 1-3", make: rare(0.02), recall: 0.7, cause: 0.95},
	{row: "h8 half the nodes 3 % slower", make: func(j *job) truth {
		j.shape(1, 8, 4, 4)
		j.fault = func(_, n, _ int) effect {
			if n%2 == 0 {
				return effect{forward: 1.03, backward: 1.03}
			}

			return effect{}
		}
		return truth{finding: verdict.JobSlow, maybe: true}
	}},
	{row: "h8 slow saver, heavy tails", make: func(j *job) truth {
		j.shape(1, 32, 1, 8)
		j.saveEvery, j.heavySave, j.steps = 10, 0.2, 400
		t := j.onNode(1, 70, effect{save: 2.0})
		t.causes = []string{verdict.Checkpoint}
		return t
	}, recall: 0.97, cause: 0.95},
	{row: "h8 x1.03 over 1,000 steps", make: func(j *job) truth {
		j.steps = 1000
		t := j.on(j.victim(), 80, effect{forward: 1.035, backward: 1.035})
		t.causes = []string{verdict.Compute}
		return t
	}, recall: 0.9, cause: 0.9},
	{row: "h8 transient of 12", make: func(j *job) truth {
		v, x := j.victim(), 1.15+0.3*j.rng.Float64()
		j.fault = func(r, _, step int) effect {
			if r == v && step >= 90 && step < 102 {
				return effect{forward: x, backward: x}
			}

			return effect{}
		}
		return truth{events: 1}
	}, recall: 0.95},
}

// pair makes two ranks of one role slow from step 60 on, by x and y.
func (j *job) pair(x, y float64) truth {
	s := j.rng.IntN(j.pp)
	a := j.rng.IntN(j.dp)
	b := (a + 1 + j.rng.IntN(j.dp-1)) % j.dp
	ra, rb := j.rank(s, a, 0), j.rank(s, b, 0)
	j.fault = func(r, _, step int) effect {
		switch {
		case step < 60:
		case r == ra:
			return effect{forward: x, backward: x}
		case r == rb:
			return effect{forward: y, backward: y}
		}

		return effect{}
	}
	return truth{nodes: []string{nodeName(j.node(ra)), nodeName(j.node(rb))}, onset: 60, causes: []string{verdict.Compute}}
}

// bursts slows a rank by half in n of every k steps.
func bursts(n, k int) func(*job) truth {
	return func(j *job) truth {
		v := j.victim()
		j.steps = 400
		j.fault = func(r, _, step int) effect {
			if r == v && step >= 50 && step%k < n {
				return effect{forward: 1.5, backward: 1.5}
			}

			return effect{}
		}
		return truth{nodes: []string{nodeName(j.node(v))}, states: []string{verdict.Intermittent, verdict.Degraded}, causes: []string{verdict.Compute}}
	}
}

// rare slows a rank by 15 to 50 % in a share of the steps, one to three in a row.
func rare(share float64) func(*job) truth {
	return func(j *job) truth {
		v, x := j.victim(), 1.15+0.35*j.rng.Float64()
		j.steps = 600
		hit := map[int]bool{}
		for range int(share * float64(j.steps) / 2) {
			s := j.rng.IntN(j.steps)
			for k := range 1 + j.rng.IntN(3) {
				hit[s+k] = true
			}
		}

		j.fault = func(r, _, step int) effect {
			if r == v && hit[step] {
				return effect{forward: x, backward: x}
			}

			return effect{}
		}
		return truth{nodes: []string{nodeName(j.node(v))}, states: []string{verdict.Intermittent, verdict.Degraded}, causes: []string{verdict.Compute}}
	}
}

func TestHard_FixedSeeds(t *testing.T) {
	t.Parallel()
	runScenarios(t, hard, 20261122, evalCases(), true)
}

// TestCoverage_CountsTheWholeJob holds that ranks that the world has and nobody
// recorded are missing, with a topology file and without.
func TestCoverage_CountsTheWholeJob(t *testing.T) {
	for _, noTopology := range []bool{false, true} {
		j := newJob(5)
		j.shape(1, 16, 1, 4)
		j.noTopology = noTopology
		j.absent = map[int]bool{}
		for r := 8; r < 16; r++ {
			j.absent[r] = true
		}

		v := Analyze(j.frame(), Default())
		if v.Coverage != 0.5 || v.Decided || v.Healthy || v.Exit(0.01) != verdict.ExitUndecided {
			t.Errorf("without topology %v: coverage %v, decided %v, healthy %v: want half of the job, undecided", noTopology, v.Coverage, v.Decided, v.Healthy)
		}
	}
}

// TestLight_WhatWasMeasuredStays switches Communication off while a node is slow: own time, which tells of its
// host and how much of a step its forward passes are, is not measured any more.
func TestLight_WhatWasMeasuredStays(t *testing.T) {
	for seed := range uint64(8) {
		for _, fault := range []effect{{host: 0.15}, {forward: 1.3, backward: 1.3}, {forward: 4}} {
			heavy, want := switched(seed, fault, 0, 300)
			v, _ := switched(seed, fault, 140, 300)
			if len(v.Nodes) != 1 || v.Nodes[0].Node != want || v.Nodes[0].State != verdict.Degraded || v.Exit(0.01) != verdict.ExitDegraded {
				t.Fatalf("seed %d: light since step 140: %+v, want %s degraded", seed, v.Nodes, want)
			}

			if a, b := v.Nodes[0], heavy.Nodes[0]; costError(a.JobImpact, b.JobImpact) > 0.15 || a.JobImpactMax > 0 {
				t.Errorf("seed %d: it costs %.3f, %.3f at most, after the switch, %.3f without it", seed, a.JobImpact, a.JobImpactMax, b.JobImpact)
			}

			if !saysLowCoverage(v, "no longer recorded") {
				t.Errorf("seed %d: findings %+v: that the rest is not measured must be said", seed, v.Findings)
			}
		}
	}
}

// TestLight_UntilItIsMeasuredOtherwise: forward passes that were slow are well again after the switch. Of a host
// nothing tells.
func TestLight_UntilItIsMeasuredOtherwise(t *testing.T) {
	for seed := range uint64(8) {
		for fault, want := range map[effect]string{{host: 0.15}: verdict.Degraded, {forward: 1.3, backward: 1.3}: verdict.Recovered, {forward: 4}: verdict.Recovered} {
			v, node := switched(seed, fault, 140, 200)
			if len(v.Nodes) != 1 || v.Nodes[0].Node != node || v.Nodes[0].State != want {
				t.Errorf("seed %d, %+v: %+v, want %s %s", seed, fault, v.Nodes, node, want)
			}
		}
	}
}

// switched is the verdict on 300 steps of 16 replicas of which four on one node have a fault from step 60 to that
// one, and the node; Communication is recorded until the step light, 0 for all the time.
func switched(seed uint64, fault effect, light, until int) (*verdict.Verdict, string) {
	j := newJob(900 + seed)
	j.shape(1, 16, 1, 4)
	j.steps, j.lightFrom = 300, light
	want := j.onNode(1, 60, fault).nodes[0]
	slow := j.fault
	j.fault = func(rank, node, step int) effect {
		if step >= until {
			return effect{}
		}

		return slow(rank, node, step)
	}

	return Analyze(j.frame(), Default()), want
}

// TestLight_VictimsOfALateLoader: a rank comes late, for it waits for data; its mates in
// expert groups wait for it inside their forward passes, which no Communication tells.
func TestLight_VictimsOfALateLoader(t *testing.T) {
	for _, seed := range []uint64{4013, 4028} {
		v, slow := simulated(t, "light", seed, 0)
		if got := accused(v); !slices.Equal(got, slow) || len(got) == 0 || v.Nodes[0].Cause != verdict.DataLoader {
			t.Errorf("seed %d: %+v accused, want %v for its data", seed, v.Nodes, slow)
		}
	}
}

// TestHard_LateLoaderAndOthers: expert groups meet several times a step, so a rank that comes
// late for its data makes the shortest wait of its group longer, which is no slow link; and
// one that computes longer waits for it inside its forward pass, which makes it no victim.
func TestHard_LateLoaderAndOthers(t *testing.T) {
	for _, seed := range []uint64{4000, 4099} {
		v, slow := simulated(t, "culprits", seed, 0)
		got := accused(v)
		slices.Sort(got)
		if slices.Sort(slow); !slices.Equal(got, slow) || len(v.Links) > 0 {
			t.Errorf("seed %d: %v accused, links %+v; want %v alone", seed, got, v.Links, slow)
		}
	}
}

// TestHard_NobodyCanTell: a recording without Communication shows the wait for another node's rank as
// it shows who is slow, and congestion that lasts ten times as long as it mostly does may be a slow
// link; and half of a role's ranks may be slow, or the others quick, though steps became longer, and also where
// they were so from the start. Nobody is accused, and nobody is called healthy.
func TestHard_NobodyCanTell(t *testing.T) {
	for _, tt := range []struct {
		name string
		seed uint64
	}{
		{"light", 577215740}, {"congestion", 577215758}, {"whole-host", 770000087}, {"mixed-hardware", 1795871075},
		{"mixed-hardware", 1795934903}, // two of eight ranks of an old node were quicker in their first steps
	} {
		v, _ := simulated(t, tt.name, tt.seed, 0)
		if v.Decided || len(v.Nodes)+len(v.Links) > 0 {
			t.Errorf("%s, seed %d: decided %v, nodes %v, links %v", tt.name, tt.seed, v.Decided, v.Nodes, v.Links)
		}
	}
}

// TestHard_ForwardPassesTellTheCause: a rank computes longer in 3 % of the steps; too few of
// its forward passes stand out to tell by themselves, and its own time does.
func TestHard_ForwardPassesTellTheCause(t *testing.T) {
	v, slow := simulated(t, "bursts-2", 77000100, 0)
	if got := accused(v); !slices.Equal(got, slow) || v.Nodes[0].Cause != verdict.Compute {
		t.Errorf("%+v, want %v for computing", v.Nodes, slow)
	}
}

// TestHard_WaitsVary: a rank is slow from its first step on. That its group waits for it shows in some
// windows and drowns in the noise of its waits in others: what was said of it stays.
func TestHard_WaitsVary(t *testing.T) {
	v, slow := simulated(t, "slow-from-start", 1732050811, 0)
	if got := accused(v); !slices.Equal(got, slow) || v.Nodes[0].State != verdict.Degraded || v.Nodes[0].DetectedStep > 50 {
		t.Errorf("%+v, want %v degraded from the start", v.Nodes, slow)
	}
}

// TestHard_BurstsAreNoLastingSlowness: a slow lane sees the mean of bursts before they are many
// enough to be called so; once they are, what was said changes, and the cost is that of the bursts.
func TestHard_BurstsAreNoLastingSlowness(t *testing.T) {
	for _, seed := range []uint64{57721580, 57721592} {
		v, truth := weighed(t, "bursts-regular", seed, 0, withGroups)
		if got := accused(v); !slices.Equal(got, truth.SlowNodes) || v.Nodes[0].State != verdict.Intermittent || costError(v.Nodes[0].JobImpact, truth.Impact) > 0.5 {
			t.Errorf("seed %d: %+v, want %v intermittent at %.3f", seed, v.Nodes, truth.SlowNodes, truth.Impact)
		}
	}
}

// TestHard_LockstepUnrecorded: two pairs of ranks on two nodes wait for each other inside their
// forward passes, which nobody recorded, and both take longer: neither is named, nor is it healthy.
func TestHard_LockstepUnrecorded(t *testing.T) {
	for _, seed := range []uint64{11235847, 4242502, 31415900, 1618099} {
		if v, slow := simulated(t, "light", seed, 0); v.Decided || v.Healthy || len(accused(v)) > 0 {
			t.Errorf("seed %d: %+v, decided %v; want it undecided, slow is %v", seed, v.Nodes, v.Decided, slow)
		}
	}
}

// TestHard_SlowdownByOwnTime: peers that wait inside their forward passes for the slow rank, in
// collectives of their experts, take nearly as long as it; own time tells how much slower it is.
func TestHard_SlowdownByOwnTime(t *testing.T) {
	for _, seed := range []uint64{504, 517, 526} {
		var factor float64
		v, truth := judged(t, "routing", seed, 0, func(cfg *simulate.Config) { factor = cfg.Faults[0].Factor })
		if got := accused(v); !slices.Equal(got, truth.SlowNodes) || math.Abs(math.Log(v.Nodes[0].Slowdown)/math.Log(factor)-1) > 0.3 {
			t.Errorf("seed %d: %+v, want %v %.2f times as slow", seed, v.Nodes, truth.SlowNodes, factor)
		}
	}
}
