package watch

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/laggard-dev/laggard/analyzer/detect"
	"github.com/laggard-dev/laggard/analyzer/feed"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/schemas/topology"
)

// fleet is 10,000 ranks: 10 stages × 250 replicas × 4 tensor ranks, 8 a node.
func fleet() *topology.File {
	const pp, dp, tp = 10, 250, 4
	f := &topology.File{WorldSize: pp * dp * tp, Nodes: map[string][]int{}}
	rank := func(s, q, t int) int { return (s*dp+q)*tp + t }
	group := func(dim string, n int, member func(int) int) {
		g := topology.Group{Dim: dim}
		for i := range n {
			g.Ranks = append(g.Ranks, member(i))
		}

		f.Groups = append(f.Groups, g)
	}
	for r := range f.WorldSize {
		n := fmt.Sprint("node-", r/8)
		f.Nodes[n] = append(f.Nodes[n], r)
	}

	for s := range pp {
		for t := range tp {
			group("dp", dp, func(q int) int { return rank(s, q, t) })
		}

		for q := range dp {
			group("tp", tp, func(t int) int { return rank(s, q, t) })
		}
	}

	for q := range dp {
		for t := range tp {
			group("pp", pp, func(s int) int { return rank(s, q, t) })
		}
	}

	return f
}

// fleetStep fills rows with one step of all ranks, one of them slow.
func fleetStep(rows *row.Rows, rng *rand.Rand, step int) {
	rows.Steps = rows.Steps[:0]
	for r := range uint32(10000) {
		fp := int64(3e8 * (1 + 0.01*rng.NormFloat64()))
		if r == 4321 && step > 100 {
			fp = fp * 12 / 10
		}

		self := 3 * fp
		rows.Steps = append(rows.Steps, row.Step{Rank: r, Incarnation: uint64(r) + 1, Step: uint64(step) + 1000, StartNs: int64(step+1) * 14e8,
			StepNs: 14e8, FPNs: fp, CommNs: 14e8 - self, ExposedNs: 14e8 - self, CommTPNs: 2e7, CommPPNs: 1e8, CommDPNs: 14e8 - self - 12e7,
			CommCPNs: -1, CommEPNs: -1, CommOtherNs: -1, DataLoaderNs: 1e6, CheckpointNs: -1, SelfNs: self, HostFPNs: -1, Tokens: -1, BackwardNs: -1})
	}
}

// BenchmarkStep is one new step of 10,000 ranks: rows into a column, the column
// through the engine (P16: 5 ms, 1 GiB). verdict and save are what a look adds, load what a restart does.
func BenchmarkStep(b *testing.B) {
	topo, rng := fleet(), rand.New(rand.NewPCG(1, 1))
	j := newJob("fleet", detect.Default())
	j.reader = &pieces{}
	var rows row.Rows
	step := 0
	look := func() {
		j.Feed.Add(&rows)
		j.Feed.Settle(topo, false)
		j.Feed.Release(feed.Current, 0, j.observe)
	}
	for range 300 {
		fleetStep(&rows, rng, step)
		look()
		step++
	}

	b.Run("step", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			b.StopTimer()
			fleetStep(&rows, rng, step)
			step++
			b.StartTimer()
			look()
		}
	})
	b.Run("verdict", func(b *testing.B) {
		for b.Loop() {
			if v := j.decide(0.01); len(v.Nodes) != 1 {
				b.Fatalf("%d nodes, want 1", len(v.Nodes))
			}
		}
	})
	b.Run("save", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			data, err := j.encode()
			if err != nil {
				b.Fatal(err)
			}

			b.ReportMetric(float64(len(data))/1e6, "MB")
		}
	})
	data, err := j.encode()
	if err != nil {
		b.Fatal(err)
	}

	b.Run("load", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := decode(data, detect.Default()); err != nil {
				b.Fatal(err)
			}
		}
	})
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	b.Logf("heap after %d steps: %.0f MiB, %.0f MiB from the system", step, float64(m.HeapAlloc)/(1<<20), float64(m.Sys)/(1<<20))
	runtime.KeepAlive(j)
}
