package replay

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/laggard-dev/laggard/analyzer/feed"
	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/schemas/topology"
)

// layout makes pp × dp × tp ranks, tensor ranks fastest, then replicas.
func layout(t *testing.T, pp, dp, tp int) *frame.Layout {
	t.Helper()
	topo := &topology.File{WorldSize: pp * dp * tp, Nodes: map[string][]int{}}
	rank := func(s, q, k int) int { return (s*dp+q)*tp + k }
	group := func(dim string, n int, member func(int) int) {
		g := topology.Group{Dim: dim}
		for i := range n {
			g.Ranks = append(g.Ranks, member(i))
		}

		topo.Groups = append(topo.Groups, g)
	}
	b := &feed.History{}
	for s := range pp {
		for k := range tp {
			group("dp", dp, func(q int) int { return rank(s, q, k) })
		}

		for q := range dp {
			group("tp", tp, func(k int) int { return rank(s, q, k) })
		}
	}

	for q := range dp {
		for k := range tp {
			group("pp", pp, func(s int) int { return rank(s, q, k) })
		}
	}

	for r := range topo.WorldSize {
		b.AddStep(&row.Step{Rank: uint32(r), Step: 1, StepNs: 1e9})
	}

	f, err := b.Frame(topo)
	if err != nil {
		t.Fatal(err)
	}

	return f.Layouts[0]
}

func work(n int, x float64, micro int) *Work {
	w := &Work{Passes: make([]float64, n), Before: make([]float64, n), Forward: 1.0 / 3, Micro: micro}
	for i := range w.Passes {
		w.Passes[i] = x
	}

	return w
}

func TestEnd_EqualStagesFillAndDrainOnce(t *testing.T) {
	for _, tt := range []struct{ pp, micro int }{{1, 1}, {1, 8}, {2, 2}, {4, 4}, {4, 8}, {4, 64}, {8, 3}} {
		g := New(layout(t, tt.pp, 2, 1))
		w := work(2*tt.pp, 6, tt.micro)
		want := 6 / float64(tt.micro) * float64(tt.micro+tt.pp-1)
		if got := g.End(0, w); math.Abs(got-want) > 1e-9 {
			t.Errorf("%d stages, %d micro-batches: %.4f s, want %.4f", tt.pp, tt.micro, got, want)
		}
	}
}

func TestEnd_ASlowStageCostsItsWholeExcess(t *testing.T) {
	g := New(layout(t, 4, 2, 1))
	for stage := range 4 {
		w := work(8, 6, 32)
		was := g.End(0, w)
		w.Passes[2*stage] *= 1.5
		if got := g.End(0, w) - was; math.Abs(got-3) > 0.3 {
			t.Errorf("stage %d slower by 3 s: the lane is longer by %.3f s", stage, got)
		}

		if got := g.End(1, w); math.Abs(got-was) > 1e-9 {
			t.Errorf("stage %d: the other replica ends at %.3f s, want %.3f", stage, got, was)
		}
	}
}

func TestEnd_TensorRanksWorkInLockstep(t *testing.T) {
	g := New(layout(t, 1, 2, 4))
	w := work(8, 5, 1)
	w.Passes[1], w.Passes[2] = 7, math.NaN()
	w.Before[6] = 2
	if a, b := g.End(0, w), g.End(1, w); a != 7 || b != 7 {
		t.Errorf("lanes end at %.2f and %.2f s, want 7 and 5 + 2", a, b)
	}

	if n := len(g.Mates(1)); n != 4 || g.Lane(1) != 0 || g.Lane(6) != 1 || g.Lanes() != 2 {
		t.Errorf("%d mates, lanes %d and %d of %d", n, g.Lane(1), g.Lane(6), g.Lanes())
	}
}

func TestEnd_WhoWasNotMeasuredIsAsItsStage(t *testing.T) {
	g := New(layout(t, 2, 3, 1))
	w := work(6, 4, 4)
	w.Passes[3] = math.NaN() // stage 1 of replica 0
	g.Learn(w)
	if a, b := g.End(0, w), g.End(1, w); a != b {
		t.Errorf("the lane of which a stage is not known ends at %.3f s, the others at %.3f", a, b)
	}
}

// TestPipeline_LongOnesAreAsIfPlayed holds the shortcut for many micro-batches to
// playing them all.
func TestPipeline_LongOnesAreAsIfPlayed(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		c := newClock(1 + rng.IntN(8))
		for p := range c.passes {
			c.passes[p] = 1 + rng.Float64()
			c.before[p] = rng.Float64() / 10
		}

		forward, micro := 0.2+0.3*rng.Float64(), 1+rng.IntN(100)
		a, b := c.pipeline(forward, micro), c.play(forward, micro, micro)
		if math.Abs(a-b) > 0.01*b {
			t.Fatalf("%d stages, %d micro-batches: %.4f, played %.4f", c.stages, micro, a, b)
		}
	}
}

func TestKnown(t *testing.T) {
	l := layout(t, 2, 2, 1)
	if !known(l) {
		t.Error("a layout from a topology file is not known")
	}

	l.From = "inferred"
	if g := New(l); g.Known() || g.Lanes() != 4 {
		t.Errorf("an inferred pipeline is known, %d lanes", g.Lanes())
	}
}
