package simulate

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/row"
)

func mustRows(t *testing.T, c Config) (row.Rows, Truth) {
	t.Helper()
	rows, truth, err := Rows(c)
	if err != nil {
		t.Fatalf("Rows: %v", err)
	}

	return rows, truth
}

func noisy(s Shape) Config {
	return Config{
		Seed: 7, Steps: 40, Shape: s,
		Model:      Model{Overlap: true, Sharded: true},
		Noise:      Noise{OpSD: 0.01, StepSD: 0.01, WaveSD: 0.01, WaveRho: 0.5, DriftSD: 0.01, DeviceSD: 0.01, HeavyShare: 0.02, HeavyScale: 0.2, GCShare: 0.05, GCPause: 0.1, WarmSteps: 5, WarmFactor: 2},
		Work:       Work{SequenceSD: 0.1, MicroBatchSD: 0.05, Quadratic: 0.1, ExpertSD: 0.05, Tokens: 4096},
		Network:    Network{JitterSD: 0.1, Congestion: 0.1, CongestionNodes: 0.5, CongestionSteps: 3, CongestionFactor: 2},
		Checkpoint: Checkpoint{Every: 10},
		Record:     Recording{Backward: true},
	}
}

var testShapes = []Shape{
	{DP: 8, RanksPerNode: 4}, {DP: 4, PP: 4, RanksPerNode: 4}, {TP: 2, DP: 2, PP: 2, CP: 2, RanksPerNode: 8}, {DP: 8, EP: 4, PP: 2, RanksPerNode: 2},
	{TP: 4, DP: 3, PP: 2, RanksPerNode: 8, Order: "tp-cp-pp-dp"}, {DP: 1, PP: 4, RanksPerNode: 2}, {DP: 1},
}

// Everybody who meets in a collective leaves it at the same moment, and the one
// who came last did not wait.
func TestRun_CollectivesEndTogether(t *testing.T) {
	for _, s := range testShapes {
		c := noisy(s)
		metas, ranges := written(t, c)

		type key struct {
			group, op string
			nth       int
		}
		type meeting struct {
			ends []int64
		}
		met := map[key]*meeting{}
		sizes := map[string]int{}
		for rank, rs := range ranges {
			for _, g := range metas[rank].Groups {
				sizes[g.Name] = g.Size
			}

			seen := map[key]int{}
			for _, r := range rs {
				if r.Kind != record.Communication || r.Op == "send" || r.Op == "recv" {
					continue
				}

				id := key{r.Group, r.Op, 0}
				at := key{r.Group, r.Op, seen[id]}
				seen[id]++
				if met[at] == nil {
					met[at] = &meeting{}
				}

				met[at].ends = append(met[at].ends, r.End())
			}
		}

		if c.Shape.World() > 1 && len(met) == 0 {
			t.Fatalf("%+v: no collective", s)
		}

		for at, m := range met {
			if len(m.ends) != sizes[at.group] {
				t.Fatalf("%+v: %v has %d members, want %d", s, at, len(m.ends), sizes[at.group])
			}

			if d := slices.Max(m.ends) - slices.Min(m.ends); d > 1 {
				t.Fatalf("%+v: members of %v end %d ns apart", s, at, d)
			}
		}
	}
}

// A row's self time and what it waited for are its whole step.
func TestRun_TimesAddUp(t *testing.T) {
	for _, s := range testShapes {
		c := noisy(s)
		rows, _ := mustRows(t, c)
		if len(rows.Steps) != 40*max(1, s.TP)*max(1, s.CP)*max(1, s.DP)*max(1, s.PP) {
			t.Fatalf("%+v: %d rows", s, len(rows.Steps))
		}

		for _, r := range rows.Steps {
			if r.CommNs < 0 {
				continue // a job of one rank
			}

			if got := r.SelfNs + r.ExposedNs + max(0, r.DataLoaderNs) + max(0, r.CheckpointNs); got != r.StepNs {
				t.Fatalf("%+v: parts are %d ns, step %d", r, got, r.StepNs)
			}

			if r.ExposedNs > r.CommNs || r.SelfNs <= 0 {
				t.Fatalf("%+v: exposed %d of %d, self %d", s, r.ExposedNs, r.CommNs, r.SelfNs)
			}

			if r.FPNs+r.BackwardNs > r.StepNs || r.FPNs <= 0 || r.FPCount == 0 {
				t.Fatalf("%+v: forward %d backward %d of %d", s, r.FPNs, r.BackwardNs, r.StepNs)
			}

			for _, d := range []int64{r.CommTPNs, r.CommPPNs, r.CommDPNs, r.CommCPNs, r.CommEPNs, r.CommOtherNs} {
				if d > r.CommNs {
					t.Fatalf("%+v: a dimension has %d ns, all %d", s, d, r.CommNs)
				}
			}
		}
	}
}

// A slow rank waits less by what it works more, its peers wait more, and the step
// grows by it: culprit and victims come out of the play.
func TestRun_CulpritWaitsLessVictimsMore(t *testing.T) {
	c := Config{Seed: 3, Steps: 40, Shape: Shape{DP: 8}, Faults: []Fault{{Kind: Compute, Locals: []int{5}, Factor: 1.5, From: 20}}}
	rows, truth := mustRows(t, c)
	at := func(step, rank int) row.Step { return rows.Steps[step*8+rank] }
	before, after := at(10, 5), at(30, 5)
	if f := float64(after.FPNs) / float64(before.FPNs); math.Abs(f-1.5) > 0.01 {
		t.Errorf("culprit's forward grew x%.3f, want 1.5", f)
	}

	if after.ExposedNs > before.ExposedNs+1000 {
		t.Errorf("culprit's wait grew from %d to %d", before.ExposedNs, after.ExposedNs)
	}

	grown := after.StepNs - before.StepNs
	for _, r := range []int{0, 4, 7} {
		b, a := at(10, r), at(30, r)
		if d := a.FPNs - b.FPNs; d < -1 || d > 1 {
			t.Errorf("rank %d: forward changed from %d to %d", r, b.FPNs, a.FPNs)
		}

		if d := a.ExposedNs - b.ExposedNs; math.Abs(float64(d-grown)) > 0.05*float64(grown) {
			t.Errorf("rank %d waits %d ns more, the step is %d longer", r, d, grown)
		}
	}

	if !slices.Equal(truth.SlowNodes, []string{"node-0"}) || !slices.Equal(truth.SlowRanks, []int{5}) || *truth.OnsetStep != 20 {
		t.Errorf("truth %+v", truth)
	}
}

// In a pipeline the culprit's own replica comes late to the gradients as well: the
// trap that short communication sets.
func TestRun_PipelineHidesTheCulprit(t *testing.T) {
	c := Config{Seed: 3, Steps: 30, Shape: Shape{DP: 4, PP: 4, RanksPerNode: 4}, Faults: []Fault{{Kind: Compute, Node: 0, Locals: []int{1}, Factor: 2, From: 1}}}
	rows, _ := mustRows(t, c)
	last := rows.Steps[29*16:]
	for stage := range 4 {
		if own, other := last[4*stage+1].CommDPNs, last[4*stage].CommDPNs; own > other/2 {
			t.Errorf("stage %d: replica 1 waits %d ns for the gradients, replica 0 %d", stage, own, other)
		}
	}

	if c := last[1].SelfNs; float64(c) < 1.8*float64(last[0].SelfNs) {
		t.Errorf("culprit's self time %d, its peer's %d", c, last[0].SelfNs)
	}

	if a, b := float64(last[5].SelfNs), float64(last[4].SelfNs); math.Abs(a/b-1) > 0.02 {
		t.Errorf("self time behind the culprit %v, its peer's %v", a, b)
	}
}

func TestRun_QuietStepTakesModelSeconds(t *testing.T) {
	for _, s := range testShapes {
		for _, m := range []Model{{Seconds: 3}, {Seconds: 0.5, Overlap: true, Sharded: true, Buckets: 1}} {
			_, truth := mustRows(t, Config{Steps: 5, Shape: s, Model: m, Loader: Loader{SD: 1e-9}})
			if math.Abs(truth.Seconds/m.Seconds-1) > 0.001 {
				t.Errorf("%+v: a quiet step takes %v s, want %v", s, truth.Seconds, m.Seconds)
			}
		}
	}
}

// The same configuration gives the same job; what concerns the record alone
// leaves the job as it was.
func TestRun_SameSeedSameJob(t *testing.T) {
	c := noisy(Shape{TP: 2, DP: 4, PP: 2, RanksPerNode: 4})
	a, ta := mustRows(t, c)
	b, tb := mustRows(t, c)
	if !reflect.DeepEqual(a, b) || !reflect.DeepEqual(ta, tb) {
		t.Fatal("the same seed gave another job")
	}

	skewed := c
	skewed.Clock = Clock{Skew: 5}
	s, _ := mustRows(t, skewed)
	moved := false
	for i := range a.Steps {
		x, y := a.Steps[i], s.Steps[i]
		moved = moved || x.StartNs != y.StartNs
		y.StartNs, x.StartNs = 0, 0
		if x != y {
			t.Fatalf("skew changed more than starts:\n%+v\n%+v", x, y)
		}
	}

	if !moved {
		t.Fatal("skew moved nothing")
	}

	lossy := c
	lossy.Loss = Loss{RankSteps: 0.3, Run: 3}
	l, _ := mustRows(t, lossy)
	if share := float64(len(l.Steps)) / float64(len(a.Steps)); math.Abs(share-0.7) > 0.1 {
		t.Errorf("%.2f of the rank-steps are left, want about 0.7", share)
	}

	k := 0
	for _, x := range l.Steps {
		for a.Steps[k] != x {
			if k++; k == len(a.Steps) {
				t.Fatal("a loss changed what is left")
			}
		}
	}
}

func TestRun_AbsentRanksNeverAppear(t *testing.T) {
	c := noisy(Shape{DP: 16})
	c.Loss = Loss{Ranks: 0.3, Keep: true}
	c.Faults = []Fault{{Kind: Compute, Node: 1, Locals: []int{2}, Factor: 1.2}}
	rows, _ := mustRows(t, c)
	seen := map[uint32]bool{}
	for _, r := range rows.Steps {
		seen[r.Rank] = true
	}

	if len(seen) == 16 || len(seen) < 5 || !seen[10] {
		t.Errorf("%d ranks appear (the culprit: %v)", len(seen), seen[10])
	}
}

// A fault sits in hardware: after a restart other ranks have it.
func TestRun_RestartMovesRanksNotTheFault(t *testing.T) {
	c := Config{
		Seed: 11, Steps: 60, Shape: Shape{DP: 8, PP: 8, RanksPerNode: 8},
		Faults:   []Fault{{Kind: Compute, Node: 3, Locals: []int{1}, Factor: 1.5, From: 10}},
		Restarts: []Restart{{At: 30, Redo: 5, Drop: []int{6}, Shuffle: true}},
	}
	rows, truth := mustRows(t, c)
	worlds, incarnations := map[uint32]bool{}, map[uint64]bool{}
	for _, r := range rows.Ranks {
		worlds[r.WorldSize] = true
		incarnations[r.Incarnation] = true
	}

	if !worlds[64] || !worlds[56] || len(incarnations) != 120 {
		t.Fatalf("worlds %v, %d incarnations", worlds, len(incarnations))
	}

	if len(truth.SlowRanks) != 1 || truth.SlowNodes[0] != "node-3" || slices.Contains(truth.MustNotFlag, "node-3") {
		t.Fatalf("truth %+v", truth)
	}

	var slowest row.Step
	stages := map[uint32]int64{}
	for _, r := range rows.Steps[len(rows.Steps)-56:] {
		if r.Node == "node-6" {
			t.Fatal("the host that left is still there")
		}

		stages[r.Rank] = r.FPNs
		if r.FPNs > slowest.FPNs {
			slowest = r
		}
	}

	if slowest.Node != "node-3" || int(slowest.Rank) != truth.SlowRanks[0] {
		t.Errorf("rank %d on %s is slowest, truth %v", slowest.Rank, slowest.Node, truth.SlowRanks)
	}

	redone := map[uint64]int{}
	for _, r := range rows.Steps {
		if r.Rank == 0 {
			redone[r.Step]++
		}
	}

	if redone[27] != 2 || redone[24] != 1 {
		t.Errorf("step 27 was done %d times, step 24 %d times", redone[27], redone[24])
	}
}

func TestEffect_BurstsFillTheirShare(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, total := rapid.IntRange(1, 20).Draw(t, "n"), rapid.IntRange(200, 2000).Draw(t, "steps")
		share := rapid.Float64Range(0.01, 0.3).Draw(t, "share")
		c := Config{Seed: rapid.Uint64().Draw(t, "seed"), Steps: total + 50, Faults: []Fault{{Kind: Compute, From: 50, Factor: 2, BurstShare: share, BurstSteps: n}}}
		if err := c.Validate(); err != nil {
			t.Fatal(err)
		}

		e := newJob(&c, nil, nil).effects[0]
		slow := 0
		for i := range c.Steps {
			if e.size(i) > 0 {
				slow++
			}
		}

		if got := float64(slow) / float64(total); got < share-1e-9 || float64(slow) > share*float64(total)+float64(n)+1 {
			t.Fatalf("%d of %d steps are slow, want %.3f in bursts of %d", slow, total, share, n)
		}
	})
}

// Whatever a task waits for stands before it, and no stage holds more
// micro-batches than its distance from the end.
func TestSchedule_OrderHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		stages, micro, chunks := rapid.IntRange(1, 12).Draw(t, "stages"), rapid.IntRange(1, 40).Draw(t, "micro"), 1
		if stages > 1 && rapid.Bool().Draw(t, "interleaved") {
			chunks, micro = rapid.IntRange(2, 4).Draw(t, "chunks"), stages*(1+micro/8)
		}

		done := map[task]bool{}
		held := make([]int, stages)
		for _, x := range schedule(stages, micro, chunks) {
			switch {
			case done[x]:
				t.Fatalf("%+v twice", x)
			case x.way == forth && x.stage > 0 && !done[task{x.stage - 1, forth, x.micro, x.chunk}],
				x.way == forth && x.stage == 0 && x.chunk > 0 && !done[task{stages - 1, forth, x.micro, x.chunk - 1}],
				x.way == back && x.stage < stages-1 && !done[task{x.stage + 1, back, x.micro, x.chunk}],
				x.way == back && x.stage == stages-1 && x.chunk < chunks-1 && !done[task{0, back, x.micro, x.chunk + 1}],
				x.way == back && !done[task{x.stage, forth, x.micro, x.chunk}]:
				t.Fatalf("%+v before what it needs", x)
			}

			done[x] = true
			if x.way == back {
				held[x.stage]--
			} else {
				held[x.stage]++
			}

			if held[x.stage] > stages-x.stage && chunks == 1 {
				t.Fatalf("stage %d holds %d micro-batches", x.stage, held[x.stage])
			}
		}

		if len(done) != 2*stages*micro*chunks {
			t.Fatalf("%d tasks, want %d", len(done), 2*stages*micro*chunks)
		}
	})
}

// A slow link makes only its own group's transfers longer: the shortest wait in it
// grows by about the share, nobody computes longer.
func TestRun_SlowLinkIsATransfer(t *testing.T) {
	for _, m := range []Model{{Seconds: 2}, {Seconds: 2, Overlap: true}, {Seconds: 2, Overlap: true, Sharded: true}} {
		c := Config{Seed: 5, Steps: 20, Shape: Shape{TP: 2, DP: 8, RanksPerNode: 4}, Model: m}
		quiet, _ := mustRows(t, c)
		c.Faults = []Fault{{Kind: Link, Group: "dp-tp1", Share: 0.25}}
		slow, truth := mustRows(t, c)
		if !slices.Equal(truth.Links, []string{"dp-tp1"}) || len(truth.SlowNodes) != 0 {
			t.Fatalf("truth %+v", truth)
		}

		n := len(quiet.Steps) - 16
		for i := n; i < n+16; i++ {
			a, b := quiet.Steps[i], slow.Steps[i]
			if d := a.FPNs - b.FPNs; d < -4 || d > 4 {
				t.Errorf("%+v: rank %d's forward changed", m, a.Rank)
			}

			more := float64(b.StepNs-a.StepNs) / 2e9
			if math.Abs(more-0.25) > 0.02 {
				t.Errorf("%+v: the step grew by %.3f of 2 s, want 0.25", m, more)
			}
		}
	}
}

func BenchmarkRun(b *testing.B) {
	for _, s := range []Shape{{DP: 64}, {TP: 2, DP: 8, PP: 4, MicroBatches: 8}, {TP: 8, DP: 128, PP: 8, MicroBatches: 8}} {
		c := noisy(s)
		c.Steps = 10
		if err := c.Validate(); err != nil {
			b.Fatal(err)
		}

		b.Run(fmt.Sprintf("ranks=%d/micro=%d", c.Shape.World(), c.Shape.MicroBatches), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Run(c, nothing); err != nil {
					b.Fatal(err)
				}
			}

			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*10*c.Shape.World()), "ns/rank-step")
		})
	}
}

// nothing keeps no row.
func nothing(*row.Rows) {}
