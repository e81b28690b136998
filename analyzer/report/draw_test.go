package report

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/laggard-dev/laggard/analyzer/feed"
	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/schemas/topology"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// pipeline is the frame of 2 replicas × 2 stages on 2 nodes, rank 3 (stage 1 of
// replica 1) twice as slow from step 5 on; rank 2 has no step 7.
func pipeline(t *testing.T) *frame.Frame {
	t.Helper()
	b := &feed.History{}
	for rank := range 4 {
		b.AddRank(&row.Rank{Job: "j", Rank: uint32(rank), Incarnation: uint64(rank) + 1, WorldSize: 4, Node: []string{"a", "a", "b", "b"}[rank], StartedNs: 1, Version: 1})
		for step := range 10 {
			if rank == 2 && step == 7 {
				continue
			}

			fp := int64(1e9 * (1 + rank/2))
			if rank == 3 && step >= 5 {
				fp *= 2
			}

			b.AddStep(&row.Step{
				Job: "j", Rank: uint32(rank), Incarnation: uint64(rank) + 1, Step: uint64(step), StartNs: int64(step) * 1e10, StepNs: 5e9, FPNs: fp,
				CommNs: 5e9 - fp, ExposedNs: 5e9 - fp, SelfNs: fp, CommTPNs: -1, CommPPNs: -1, CommDPNs: -1, CommCPNs: -1, CommEPNs: -1, CommOtherNs: -1,
				DataLoaderNs: -1, CheckpointNs: -1, HostFPNs: -1, Tokens: -1, BackwardNs: -1, Flags: row.FlagHostOnly,
			})
		}
	}

	f, err := b.Frame(&topology.File{WorldSize: 4, Groups: []topology.Group{
		{Name: "dp0", Dim: "dp", Ranks: []int{0, 1}}, {Name: "dp1", Dim: "dp", Ranks: []int{2, 3}},
		{Name: "pp0", Dim: "pp", Ranks: []int{0, 2}}, {Name: "pp1", Dim: "pp", Ranks: []int{1, 3}},
	}})
	if err != nil {
		t.Fatal(err)
	}

	return f
}

func TestDraw_ComparesRanksOfOneRole(t *testing.T) {
	p := pictureOf(pipeline(t))
	if len(p.drawn) != 4 || len(p.Columns) != 10 || p.nodes() != 2 || p.empty() {
		t.Fatalf("picture of %d ranks, %d steps, %d nodes", len(p.drawn), len(p.Columns), p.nodes())
	}

	if !slices.IsSortedFunc(p.drawn, order) || p.drawn[3].stage != 1 || p.drawn[0].stage != 0 {
		t.Errorf("ranks %+v: want them by stage", p.drawn)
	}

	v := verdict.New("j")
	v.Nodes = []verdict.Node{{Node: "b", Ranks: []int{3}, Evidence: []verdict.Evidence{{Metric: "self", Rank: 3}}}}
	layers := p.layers(v)
	if layers[0].Name != "Own time" || layers[len(layers)-1].Name != "Waiting" {
		t.Errorf("first layer %s, last %s: want what the verdict rests on first, waiting last", layers[0].Name, layers[len(layers)-1].Name)
	}

	at := func(rank, step int) float64 { return float64(layers[0].values[p.drawn[p.rowOf(rank)].row][step]) }
	for _, c := range []struct {
		rank, step int
		want       float64
	}{{0, 3, 1}, {2, 3, 1}, {3, 4, 1}, {3, 5, 2}, {3, 7, 1}, {2, 8, 1}} { // in step 7 rank 3 has no peer
		if got := at(c.rank, c.step); math.Abs(got-c.want) > 1e-6 {
			t.Errorf("rank %d in step %d: %g of its peers, want %g", c.rank, c.step, got, c.want)
		}
	}

	if !math.IsNaN(at(2, 7)) {
		t.Errorf("a step that was not recorded is %g, want NaN", at(2, 7))
	}

	if times := p.times(); times[0] != 5 {
		t.Errorf("step time %g, want 5 s", times[0])
	}
}

func TestDraw_SaysWhatWasNotMeasured(t *testing.T) {
	text := strings.Join(pictureOf(pipeline(t)).unmeasured(), "\n")
	for _, want := range []string{"No data loading was recorded", "No checkpoint was recorded", "100% of the rank-steps there is host time only"} {
		if !strings.Contains(text, want) {
			t.Errorf("lacks %q:\n%s", want, text)
		}
	}

	if strings.Contains(text, "forward pass") || strings.Contains(text, "No Communication") {
		t.Errorf("says of what was recorded that it was not:\n%s", text)
	}
}

func TestDraw_OfNothing(t *testing.T) {
	for _, f := range []*frame.Frame{nil, {}} {
		if p := pictureOf(f); !p.empty() || len(p.unmeasured()) != 0 || len(p.layers(verdict.New("j"))) != 0 {
			t.Errorf("picture of nothing is %+v", p)
		}
	}
}
