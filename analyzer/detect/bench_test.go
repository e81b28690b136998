package detect

import (
	"math/rand/v2"
	"testing"

	"github.com/laggard-dev/laggard/analyzer/feed"
	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/schemas/topology"
)

// bigTopology is 10,000 ranks: 10 stages × 250 replicas × 4 tensor ranks.
func bigTopology() *topology.File {
	const pp, dp, tp = 10, 250, 4
	f := &topology.File{WorldSize: pp * dp * tp, Nodes: map[string][]int{}}
	rank := func(s, q, t int) int { return (s*dp+q)*tp + t }
	for r := range f.WorldSize {
		n := nodeName(r / 8)
		f.Nodes[n] = append(f.Nodes[n], r)
	}

	for s := range pp {
		for t := range tp {
			g := topology.Group{Dim: "dp"}
			for q := range dp {
				g.Ranks = append(g.Ranks, rank(s, q, t))
			}

			f.Groups = append(f.Groups, g)
		}

		for q := range dp {
			g := topology.Group{Dim: "tp"}
			for t := range tp {
				g.Ranks = append(g.Ranks, rank(s, q, t))
			}

			f.Groups = append(f.Groups, g)
		}
	}

	for q := range dp {
		for t := range tp {
			g := topology.Group{Dim: "pp"}
			for s := range pp {
				g.Ranks = append(g.Ranks, rank(s, q, t))
			}

			f.Groups = append(f.Groups, g)
		}
	}

	return f
}

// bigRows fills b with a job of 10,000 ranks, one of them slow.
func bigRows(b *feed.History, steps int) {
	rng := rand.New(rand.NewPCG(1, 1))
	for r := range uint32(10000) {
		for s := range uint64(steps) {
			fp := int64(3e8 * (1 + 0.01*rng.NormFloat64()))
			if r == 4321 && s > 100 {
				fp = fp * 12 / 10
			}

			self := 3 * fp
			b.AddStep(&row.Step{Rank: r, Incarnation: uint64(r), Step: s + 1000, StepNs: 14e8, FPNs: fp, CommNs: 14e8 - self, ExposedNs: 14e8 - self,
				CommTPNs: 2e7, CommPPNs: 1e8, CommDPNs: 14e8 - self - 12e7, CommCPNs: -1, CommEPNs: -1, CommOtherNs: -1,
				DataLoaderNs: 1e6, CheckpointNs: -1, SelfNs: self, HostFPNs: -1, Tokens: -1, BackwardNs: -1})
		}
	}
}

// BenchmarkAnalyze is 10,000 ranks × 1,000 steps: build is rows into a frame,
// decide is the statistics.
func BenchmarkAnalyze(b *testing.B) {
	for b.Loop() {
		bl := &feed.History{}
		bigRows(bl, 1000)
		f, err := bl.Frame(bigTopology())
		if err != nil {
			b.Fatal(err)
		}

		start := b.Elapsed()
		v := Analyze(f, Default())
		b.ReportMetric((b.Elapsed() - start).Seconds(), "decide-s")
		b.ReportMetric(start.Seconds(), "rows+build-s")
		if len(v.Nodes) != 1 || v.Nodes[0].Node != nodeName(4321/8) {
			b.Fatalf("nodes %+v", v.Nodes)
		}
	}
}

// BenchmarkObserve is one new step of 10,000 ranks in watch.
func BenchmarkObserve(b *testing.B) {
	bl := &feed.History{}
	bigRows(bl, 64)
	f, err := bl.Frame(bigTopology())
	if err != nil {
		b.Fatal(err)
	}

	e := New(Default(), f.Layouts[0])
	var cols []*frame.Column
	for _, c := range f.Columns {
		k := *c
		for m, v := range c.V {
			if v != nil {
				k.V[m] = append([]float32(nil), v...)
			}
		}

		cols = append(cols, &k)
	}

	b.ReportAllocs()
	n := 0
	for b.Loop() {
		c := cols[n%len(cols)]
		c.Step = int64(n)
		e.Observe(c)
		n++
	}
}
