package detect

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/laggard-dev/laggard/analyzer/feed"
	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// wired is a data-parallel job of four groups of four ranks whose dimension nobody
// told, so that only the windows show them; slow returns the factor on a group.
func wired(steps int, slow func(group int, step int) float64, nodes func(rank int) string) *frame.Frame {
	const groups, size = 4, 4
	rng := rand.New(rand.NewPCG(9, 9))
	b := feed.NewHistory()
	for r := range uint32(groups * size) {
		own := int(r) / size
		b.AddRank(&row.Rank{Rank: r, Incarnation: uint64(r) + 1, WorldSize: groups * size, Node: nodes(int(r)), StartedNs: 1e18})
		sum := int64(0)
		for s := 1; s <= steps; s++ {
			fp := int64(3e8 * (1 + 0.01*rng.NormFloat64()))
			wire := int64(1e8 * slow(own, s) * (1 + 0.05*rng.Float64()))
			total := 3*fp + wire + int64(1e8)
			b.AddStep(&row.Step{Rank: r, Incarnation: uint64(r) + 1, Step: uint64(s), StartNs: 1e18 + int64(s)*2e9, StepNs: total, FPNs: fp,
				CommNs: wire + 1e8, ExposedNs: wire + 1e8, CommTPNs: -1, CommPPNs: -1, CommDPNs: -1, CommCPNs: -1, CommEPNs: -1, CommOtherNs: wire + 1e8,
				DataLoaderNs: -1, CheckpointNs: -1, SelfNs: 3 * fp, HostFPNs: -1, Tokens: -1, BackwardNs: -1})
			sum += wire
			if s%16 == 15 || s == steps {
				n := int64(min(s%16+1, 16))
				b.AddCommunication(&row.Communication{Rank: r, Incarnation: uint64(r) + 1, StepFrom: uint64(s / 16 * 16), StepTo: uint64(s), Group: fmt.Sprint("g", own), Op: "allreduce",
					Steps: uint32(n), Calls: uint32(n), TotalNs: sum, Bytes: n << 20})
				b.AddCommunication(&row.Communication{Rank: r, Incarnation: uint64(r) + 1, StepFrom: uint64(s / 16 * 16), StepTo: uint64(s), Group: fmt.Sprint("h", r%size), Op: "allreduce",
					Steps: uint32(n), Calls: uint32(n), TotalNs: n * 1e8, Bytes: n << 10})
				sum = 0
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
	}{
		"none":            {slow: func(int, int) float64 { return 1 }, nodes: spread},
		"since step 64":   {slow: func(g, s int) float64 { return map[bool]float64{true: 6, false: 1}[g == 2 && s >= 64] }, nodes: spread, want: []string{"g2"}},
		"from the start":  {slow: func(g, _ int) float64 { return map[bool]float64{true: 6, false: 1}[g == 1] }, nodes: spread, want: []string{"g1"}},
		"a short trace":   {steps: 30, slow: func(g, _ int) float64 { return map[bool]float64{true: 6, false: 1}[g == 0] }, nodes: spread, want: []string{"g0"}},
		"its end is well": {steps: 35, slow: func(g, s int) float64 { return map[bool]float64{true: 6, false: 1}[g == 0 && s < 32] }, nodes: spread, want: []string{"g0"}},
		"short, no link":  {steps: 30, slow: func(int, int) float64 { return 1 }, nodes: spread},
		"all of them":     {slow: func(_, s int) float64 { return map[bool]float64{true: 6, false: 1}[s >= 64] }, nodes: spread},
		"passing":         {slow: func(g, s int) float64 { return map[bool]float64{true: 6, false: 1}[g == 2 && s >= 64 && s < 96] }, nodes: spread},
		"on one node": {slow: func(g, s int) float64 { return map[bool]float64{true: 6, false: 1}[g == 3 && s >= 64] },
			nodes: func(r int) string { return nodeName(r / 4) }, want: []string{"g3"}, node: nodeName(3)},
	} {
		v := Analyze(wired(cmp.Or(c.steps, 160), c.slow, c.nodes), Default())
		var got []string
		for _, l := range v.Links {
			got = append(got, l.Group)
		}

		if !slices.Equal(got, c.want) {
			t.Errorf("%s: links %+v, want %v", name, v.Links, c.want)
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
}
