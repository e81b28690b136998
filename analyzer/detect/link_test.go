package detect

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/laggard-dev/laggard/analyzer/feed"
	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// wired is a data-parallel job of four groups of four ranks whose dimension nobody
// told, so that only the windows show them; slow returns the factor on a group (0: it is silent), and
// edits change the row of a step.
func wired(steps int, slow func(group int, step int) float64, nodes func(rank int) string, edits ...func(*row.Step)) *frame.Frame {
	const groups, size = 4, 4
	rng := rand.New(rand.NewPCG(9, 9))
	b := &feed.History{}
	for r := range uint32(groups * size) {
		own := int(r) / size
		b.AddRank(&row.Rank{Rank: r, Incarnation: uint64(r) + 1, WorldSize: groups * size, Node: nodes(int(r)), StartedNs: 1e18})
		sum, quickest := int64(0), int64(math.MaxInt64)
		for s := 1; s <= steps; s++ {
			fp := int64(3e8 * (1 + 0.01*rng.NormFloat64()))
			wire := int64(1e8 * slow(own, s) * (1 + 0.05*rng.Float64()))
			total := 3*fp + wire + int64(1e8)
			step := row.Step{Rank: r, Incarnation: uint64(r) + 1, Step: uint64(s), StartNs: 1e18 + int64(s)*2e9, StepNs: total, FPNs: fp,
				CommNs: wire + 1e8, ExposedNs: wire + 1e8, CommTPNs: -1, CommPPNs: -1, CommDPNs: -1, CommCPNs: -1, CommEPNs: -1, CommOtherNs: wire + 1e8,
				DataLoaderNs: -1, CheckpointNs: -1, SelfNs: 3 * fp, HostFPNs: -1, Tokens: -1, BackwardNs: -1}
			for _, edit := range edits {
				edit(&step)
			}

			b.AddStep(&step)
			sum, quickest = sum+wire, min(quickest, wire)
			if s%16 == 15 || s == steps {
				n := int64(min(s%16+1, 16))
				if wire > 0 {
					b.AddCommunication(&row.Communication{Rank: r, Incarnation: uint64(r) + 1, StepFrom: uint64(s / 16 * 16), StepTo: uint64(s), Group: fmt.Sprint("g", own), Op: "allreduce",
						Steps: uint32(n), Calls: uint32(n), TotalNs: sum, MinNs: quickest, Bytes: n << 20})
				}

				b.AddCommunication(&row.Communication{Rank: r, Incarnation: uint64(r) + 1, StepFrom: uint64(s / 16 * 16), StepTo: uint64(s), Group: fmt.Sprint("h", r%size), Op: "allreduce",
					Steps: uint32(n), Calls: uint32(n), TotalNs: n * 1e8, Bytes: n << 10})
				sum, quickest = 0, math.MaxInt64
			}
		}
	}

	f, err := b.Frame(nil)
	if err != nil {
		panic(err)
	}

	return f
}

func TestLinks_GroupsThatOnlyWindowsShow(t *testing.T) {
	spread := func(r int) string { return nodeName(r % 4) }
	for name, c := range map[string]struct {
		steps int
		slow  func(group, step int) float64
		nodes func(int) string
		want  []string // groups
		node  string
		open  bool // undecided
	}{
		"none":                  {slow: func(int, int) float64 { return 1 }, nodes: spread},
		"since step 64":         {slow: func(g, s int) float64 { return map[bool]float64{true: 6, false: 1}[g == 2 && s >= 64] }, nodes: spread, want: []string{"g2"}},
		"from the start":        {slow: func(g, _ int) float64 { return map[bool]float64{true: 6, false: 1}[g == 1] }, nodes: spread, want: []string{"g1"}},
		"a short trace":         {steps: 30, slow: func(g, _ int) float64 { return map[bool]float64{true: 6, false: 1}[g == 0] }, nodes: spread, want: []string{"g0"}},
		"its end is well":       {steps: 35, slow: func(g, s int) float64 { return map[bool]float64{true: 6, false: 1}[g == 0 && s < 32] }, nodes: spread, want: []string{"g0"}},
		"short, no link":        {steps: 30, slow: func(int, int) float64 { return 1 }, nodes: spread},
		"all of them":           {slow: func(_, s int) float64 { return map[bool]float64{true: 6, false: 1}[s >= 64] }, nodes: spread},
		"passing":               {slow: func(g, s int) float64 { return map[bool]float64{true: 6, false: 1}[g == 2 && s >= 64 && s < 96] }, nodes: spread},
		"no longer than a gust": {slow: func(g, s int) float64 { return map[bool]float64{true: 6, false: 1}[g == 2 && s >= 112] }, nodes: spread, open: true},
		"congested now and then": {slow: func(g, s int) float64 { // the mean of a window differs by a third
			if g == 2 && s >= 128 {
				return 2.2
			}

			return math.Exp(0.35 * rand.New(rand.NewPCG(uint64(g), uint64(s/16))).NormFloat64())
		}, nodes: spread},
		"on one node": {slow: func(g, s int) float64 { return map[bool]float64{true: 6, false: 1}[g == 3 && s >= 64] },
			nodes: func(r int) string { return nodeName(r / 4) }, want: []string{"g3"}, node: nodeName(3)},
	} {
		v := Analyze(wired(cmp.Or(c.steps, 160), c.slow, c.nodes), Default())
		var got []string
		for _, l := range v.Links {
			got = append(got, l.Group)
		}

		if !slices.Equal(got, c.want) || v.Decided == c.open {
			t.Errorf("%s: links %+v, want %v; decided %v", name, v.Links, c.want, v.Decided)
		}

		if c.node == "" && len(v.Nodes) > 0 || c.node != "" && (len(v.Nodes) != 1 || v.Nodes[0].Node != c.node || v.Nodes[0].Cause != verdict.Communication) {
			t.Errorf("%s: nodes %+v, want %q", name, v.Nodes, c.node)
		}
	}
}

// TestLinks_TwoGroupsShareOneNode holds that the node that all slow groups have in
// common is named, and that a fabric that slows all groups is no link.
func TestLinks_TwoGroupsShareOneNode(t *testing.T) {
	j := newJob(77)
	j.shape(2, 8, 2, 4) // 4 dp groups of 8; a node holds two replicas of one stage
	j.link = func(stage, tp, step int) float64 {
		if stage == 1 && step >= 80 {
			return 0.25
		}

		return 0
	}
	v := Analyze(j.frame(), Default())
	if len(v.Links) != 2 || len(v.Nodes) != 0 { // both groups of the stage share all its nodes
		t.Errorf("links %+v nodes %+v", v.Links, v.Nodes)
	}

	j = newJob(78)
	j.shape(2, 8, 2, 4)
	j.link = func(_, _, step int) float64 {
		if step >= 80 {
			return 0.25
		}

		return 0
	}
	v = Analyze(j.frame(), Default())
	if len(v.Links) != 0 || len(v.Nodes) != 0 {
		t.Errorf("fabric: links %+v nodes %+v", v.Links, v.Nodes)
	}

	if !slices.ContainsFunc(v.Findings, func(f verdict.Finding) bool { return f.Kind == verdict.JobSlow }) {
		t.Errorf("fabric: findings %+v, want job-slow", v.Findings)
	}

	j = newJob(79)
	j.shape(1, 8, 2, 2) // two groups are all there are
	j.link = func(_, tp, step int) float64 {
		if tp == 0 || step >= 80 {
			return 0.25
		}

		return 0
	}
	v = Analyze(j.frame(), Default())
	if len(v.Links) != 0 || len(v.Nodes) != 0 {
		t.Errorf("as long as the other one always: links %+v nodes %+v", v.Links, v.Nodes)
	}
}

// TestLinks_GroupOfAllRanks holds that a group of every rank, of which nobody can tell one wire from another
// or from what else the hosts do, is a finding about the job with its cost, and no link.
func TestLinks_GroupOfAllRanks(t *testing.T) {
	for _, last := range []int{160, 30} { // since step 80, or in the last steps
		j := newJob(80)
		j.shape(1, 8, 1, 2)
		j.link = func(_, _, step int) float64 {
			if step >= max(80, j.steps-last) {
				return 0.25
			}

			return 0
		}
		v := Analyze(j.frame(), Default())
		if len(v.Links) != 0 || len(v.Nodes) != 0 || !v.Decided || v.Exit(0.01) != 0 {
			t.Errorf("links %+v, nodes %+v, decided %v", v.Links, v.Nodes, v.Decided)
		}

		if k := slices.IndexFunc(v.Findings, func(f verdict.Finding) bool { return f.Kind == verdict.JobSlow }); k < 0 || v.Findings[k].JobImpact < 0.1 {
			t.Errorf("findings %+v, want job-slow and its cost", v.Findings)
		}
	}
}

// A short trace in which two of four groups are slow: each of them has another slow one among its three
// equals. Unless every one of their calls is slow, nobody can tell whether that is a link, and it is not
// healthy either; nor is a group that gets slow with one or two equals.
func TestLinks_TooShortToTell(t *testing.T) {
	for name, c := range map[string]struct {
		steps, from int
		factors     [4]float64
		decided     bool
		links       int
	}{
		"alike":                   {30, 0, [4]float64{1, 1.1, 1.05, 1}, true, 0},
		"two of four":             {30, 0, [4]float64{2.5, 2.5, 1, 1.9}, false, 0},
		"always been so":          {160, 0, [4]float64{2.5, 2.5, 1, 1.9}, true, 0},
		"in every call":           {30, 0, [4]float64{6, 6, 1, 1.9}, true, 2},
		"in every call, since 22": {30, 22, [4]float64{6, 6, 1, 1.9}, false, 0},
		"two of three":            {30, 0, [4]float64{6, 6, 1.5, 0}, false, 0},
		"two of three, since 16":  {30, 16, [4]float64{6, 6, 1.5, 0}, false, 0},
		"two of three, a bit":     {30, 0, [4]float64{1.5, 1.5, 1, 0}, true, 0},
		"two of three, since 100": {160, 100, [4]float64{6, 6, 1.5, 0}, true, 2},
		"one of two, always so":   {160, 0, [4]float64{6, 1, 0, 0}, true, 0},
		"one of two, in 30 steps": {30, 0, [4]float64{6, 1, 0, 0}, false, 0},
		"one group has no equal":  {30, 0, [4]float64{6, 0, 0, 0}, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := wired(c.steps, func(g, s int) float64 {
				if s < c.from {
					return min(c.factors[g], 1)
				}

				return c.factors[g]
			}, func(r int) string { return nodeName(r % 4) })
			v := Analyze(f, Default())
			if len(v.Nodes) > 0 || len(v.Links) != c.links || v.Decided != c.decided || saysLowCoverage(v, "too few to tell a slow link") == c.decided {
				t.Errorf("nodes %v, links %v, decided %v: %v", v.Nodes, v.Links, v.Decided, v.Findings)
			}
		})
	}
}

// A rank of a slow group whose backward pass alone is long waits in it; one whose forward pass is as
// long computes.
func TestLinks_WaitsInBackward(t *testing.T) {
	link := func(g, s int) float64 {
		if g == 2 && s >= 64 {
			return 6
		}

		return 1
	}
	for name, c := range map[string]struct {
		forward float64
		want    int // nodes with a cause that is not the link
	}{"backward alone": {1, 0}, "both": {1.4, 1}} {
		t.Run(name, func(t *testing.T) {
			f := wired(160, link, func(r int) string { return nodeName(r) }, func(s *row.Step) {
				s.BackwardNs = 2 * s.FPNs
				if s.Rank == 9 && s.Step >= 64 {
					more := int64(float64(s.FPNs)*(c.forward-1)) + int64(0.6*float64(s.BackwardNs))
					s.FPNs, s.BackwardNs = int64(float64(s.FPNs)*c.forward), s.BackwardNs*16/10
					s.SelfNs, s.CommNs, s.ExposedNs, s.CommOtherNs = s.SelfNs+more, s.CommNs-more/4, s.ExposedNs-more/4, s.CommOtherNs-more/4
				}
			})
			v := Analyze(f, Default())
			n := 0
			for _, x := range v.Nodes {
				if x.Cause != verdict.Communication {
					n++
				}
			}

			if len(v.Links) != 1 || n != c.want {
				t.Errorf("links %v, nodes %v", v.Links, v.Nodes)
			}
		})
	}
}

// Of a node whose links became slow, and a rank elsewhere that has computed longer since, the
// links are the cause where they cost more; of one that did so long before, they are not.
func TestLinks_ComputingLongerSince(t *testing.T) {
	for name, c := range map[string]struct {
		since uint64
		node  int // of the rank
		more  float64
		want  []string
	}{
		"since then":              {64, 0, 1.2, []string{nodeName(2)}},
		"long before":             {20, 0, 1.2, []string{nodeName(0), nodeName(2)}},
		"since then, costs more":  {64, 0, 3, []string{nodeName(0), nodeName(2)}},
		"since then, on the node": {64, 2, 1.2, []string{nodeName(2)}},
	} {
		t.Run(name, func(t *testing.T) {
			f := wired(160, func(g, s int) float64 {
				if g == 2 && s >= 64 {
					return 6
				}

				return 1
			}, func(r int) string { return nodeName(r / 4) }, func(s *row.Step) {
				if s.Rank == uint32(4*c.node+1) && s.Step >= c.since {
					more := int64((c.more - 1) * float64(s.FPNs))
					s.FPNs, s.SelfNs, s.StepNs = s.FPNs+more, s.SelfNs+3*more, s.StepNs+3*more
				}
			})
			v := Analyze(f, Default())
			if got := slices.Sorted(slices.Values(accused(v))); !slices.Equal(got, c.want) || len(v.Links) != 1 {
				t.Errorf("links %v, nodes %v, want %v", v.Links, v.Nodes, c.want)
			}
		})
	}
}
