package feed

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/schemas/topology"
)

const second = int64(1e9)

// stepRow is a row with little in it: step time, forward, and everything else absent.
func stepRow(rank uint32, inc, n uint64, start int64, fp int64) *row.Step {
	return &row.Step{Job: "j", Rank: rank, Incarnation: inc, Node: fmt.Sprintf("n%d", rank/2), Step: n, StartNs: start, StepNs: 10 * second, FPNs: fp,
		CommNs: -1, ExposedNs: -1, CommTPNs: -1, CommPPNs: -1, CommDPNs: -1, CommCPNs: -1, CommEPNs: -1, CommOtherNs: -1,
		DataLoaderNs: -1, CheckpointNs: -1, SelfNs: -1, HostFPNs: -1, Tokens: -1, BackwardNs: -1}
}

func build(t *testing.T, b *History, topo *topology.File) *frame.Frame {
	t.Helper()
	f, err := b.Frame(topo)
	if err != nil {
		t.Fatal(err)
	}

	return f
}

func TestBuild_CellsInAnyOrderAndNaNWhereNothingCame(t *testing.T) {
	type key struct{ r, s int }
	var keys []key
	for r := range 6 {
		for s := range 20 {
			if r == 3 && s == 7 {
				continue
			}

			keys = append(keys, key{r, s})
		}
	}

	rand.New(rand.NewPCG(1, 2)).Shuffle(len(keys), func(a, b int) { keys[a], keys[b] = keys[b], keys[a] })
	b := &History{}
	for _, k := range append(keys, keys[:9]...) { // some twice
		b.AddStep(stepRow(uint32(k.r), uint64(k.r)+1, uint64(k.s)+100, int64(k.s+1)*10*second, int64(k.r*1000+k.s)*second))
	}

	f := build(t, b, nil)
	if len(f.Ranks) != 6 || len(f.Columns) != 20 || f.Attempts != 1 {
		t.Fatalf("%d ranks, %d columns, %d attempts", len(f.Ranks), len(f.Columns), f.Attempts)
	}

	for r := range 6 {
		for c := range 20 {
			v := f.At(frame.FP, r, c)
			if r == 3 && c == 7 {
				if v == v {
					t.Errorf("a missing cell holds %v, want NaN", v)
				}

				continue
			}

			if v != float32(r*1000+c) {
				t.Errorf("At(frame.FP, %d, %d)=%v", r, c, v)
			}
		}
	}

	if f.Has(frame.Self) || f.Has(frame.Comm) || !f.Has(frame.Step) {
		t.Errorf("Has: self %v comm %v step %v", f.Has(frame.Self), f.Has(frame.Comm), f.Has(frame.Step))
	}

	n := 0
	for _, c := range f.Columns {
		if c.Step != int64(100+n) || c.V[frame.Self] != nil || len(c.V[frame.FP]) != 6 || c.V[frame.FP][1] != float32(1000+n) {
			t.Errorf("column %d: %+v", n, c)
		}

		n++
	}

	if n != 20 {
		t.Errorf("Each yielded %d columns", n)
	}
}

func TestBuild_NothingIsAnError(t *testing.T) {
	if _, err := (&History{}).Frame(nil); !errors.Is(err, ErrEmpty) {
		t.Fatalf("Build()=%v, want ErrEmpty", err)
	}

	b := &History{}
	s := stepRow(0, 1, 1, second, second)
	s.Flags = row.FlagOpen
	b.AddStep(s)
	if _, err := b.Frame(nil); !errors.Is(err, ErrEmpty) {
		t.Fatalf("only open steps: Build()=%v, want ErrEmpty", err)
	}
}

// fill gives ranks [0, n) of one launch steps [from, to).
func fill(b *History, n, from, to int, inc uint64, began int64) {
	for r := range n {
		b.AddRank(&row.Rank{Rank: uint32(r), Incarnation: inc + uint64(r), WorldSize: uint32(n), Node: fmt.Sprintf("n%d", r/2), StartedNs: began + int64(r)*second})
		for s := from; s < to; s++ {
			b.AddStep(stepRow(uint32(r), inc+uint64(r), uint64(s), began+int64(60+(s-from)*10)*second, second))
		}
	}
}

func TestAttempts_AJobRestartIsANewOneElasticOrNot(t *testing.T) {
	b := &History{}
	fill(b, 8, 1, 31, 100, 1000*second)
	fill(b, 6, 21, 51, 200, 5000*second) // from a checkpoint, with two ranks less
	f := build(t, b, nil)
	if f.Attempts != 2 || len(f.Columns) != 60 {
		t.Fatalf("%d attempts, %d columns", f.Attempts, len(f.Columns))
	}

	if c := f.Columns[30]; c.Attempt != 1 || c.Step != 21 {
		t.Errorf("column 30 is %+v", c)
	}

	first, last := f.Columns[0].Layout, f.Columns[59].Layout
	if first.World != 8 || last.World != 6 || !first.Present[7] || last.Present[7] || last.Incarnation[0] != 200 {
		t.Errorf("worlds %d and %d, present %v, incarnation %d", first.World, last.World, last.Present, last.Incarnation[0])
	}
}

func TestAttempts_OneRankRestartedInPlaceStaysInItsAttempt(t *testing.T) {
	b := &History{}
	fill(b, 8, 1, 31, 100, 1000*second)
	b.AddRank(&row.Rank{Rank: 3, Incarnation: 999, WorldSize: 8, Node: "spare", StartedNs: 1500 * second})
	for s := 31; s < 41; s++ {
		for r := range uint32(8) {
			inc := uint64(100 + r)
			if r == 3 {
				inc = 999
			}

			b.AddStep(stepRow(r, inc, uint64(s), int64(2000+s*10)*second, 2*second))
		}
	}

	f := build(t, b, nil)
	if f.Attempts != 1 || len(f.Columns) != 40 || len(f.Layouts) != 2 {
		t.Fatalf("%d attempts, %d columns, %d layouts", f.Attempts, len(f.Columns), len(f.Layouts))
	}

	a, z := f.Columns[29].Layout, f.Columns[30].Layout
	if a.Nodes[a.Node[3]] != "n1" || z.Nodes[z.Node[3]] != "spare" || z.Incarnation[3] != 999 {
		t.Errorf("rank 3 on %s, then %s", a.Nodes[a.Node[3]], z.Nodes[z.Node[3]])
	}

	if f.At(frame.FP, 3, 39) != 2 || f.At(frame.FP, 3, 5) != 1 {
		t.Errorf("cells %v %v", f.At(frame.FP, 3, 39), f.At(frame.FP, 3, 5))
	}
}

func TestAttempts_TwoPodsOfOneRankTheLaterCounts(t *testing.T) {
	b := &History{}
	fill(b, 8, 1, 31, 100, 1000*second)
	b.AddRank(&row.Rank{Rank: 2, Incarnation: 777, WorldSize: 8, Node: "backup", StartedNs: 1300 * second})
	for s := 25; s < 31; s++ { // both wrote steps 25 to 30
		st := stepRow(2, 777, uint64(s), int64(1060+s*10)*second, -1)
		st.DataLoaderNs = 5 * second
		b.AddStep(st)
	}

	f := build(t, b, nil)
	for _, m := range []frame.Metric{frame.FP, frame.DataLoader} { // the later one measured no forward pass: there is none
		for c, want := range map[int]bool{23: m == frame.FP, 24: m == frame.DataLoader, 29: m == frame.DataLoader} {
			if v := f.At(m, 2, c); !math.IsNaN(float64(v)) != want {
				t.Errorf("metric %v, column %d: %v", m, c, v)
			}
		}
	}

	if len(f.Columns) != 30 || f.At(frame.FP, 2, 10) != 1 || f.At(frame.FP, 2, 23) != 1 || f.At(frame.DataLoader, 2, 24) != 5 || f.At(frame.DataLoader, 2, 29) != 5 {
		t.Fatalf("%d columns, cells %v %v %v", len(f.Columns), f.At(frame.FP, 2, 23), f.At(frame.DataLoader, 2, 24), f.At(frame.DataLoader, 2, 29))
	}
}

func TestColumns_AStepThatReturnsStandsWhereItRan(t *testing.T) {
	b := &History{}
	order := []struct{ s, rep int }{{1, 0}, {2, 0}, {3, 0}, {2, 1}, {3, 1}, {4, 0}}
	for r := range uint32(4) {
		for k, o := range order {
			s := stepRow(r, uint64(r)+1, uint64(o.s), int64(k+1)*10*second, int64(k)*second)
			s.Repeat = uint16(o.rep)
			b.AddStep(s)
		}
	}

	f := build(t, b, nil)
	for k, o := range order {
		if c := f.Columns[k]; c.Step != int64(o.s) || c.Repeat != o.rep {
			t.Errorf("column %d is step %d repeat %d, want %v", k, c.Step, c.Repeat, o)
		}
	}
}

func TestColumns_AProcessThatJoinsLateTakesPartInTheNewestReturn(t *testing.T) {
	b := &History{}
	for r := range uint32(4) {
		for k, o := range []struct{ s, rep int }{{1, 0}, {2, 0}, {2, 1}, {3, 0}} {
			if r == 3 && k > 0 {
				continue // it died in step 2
			}

			s := stepRow(r, uint64(r)+1, uint64(o.s), int64(k+1)*10*second, second)
			s.Repeat = uint16(o.rep)
			b.AddStep(s)
		}
	}

	for k, n := range []uint64{2, 3} {
		b.AddStep(stepRow(3, 99, n, int64(1000+k)*second, 7*second))
	}

	f := build(t, b, nil)
	if len(f.Columns) != 4 || f.At(frame.FP, 3, 2) != 7 || f.At(frame.FP, 3, 3) != 7 || f.At(frame.FP, 3, 1) == f.At(frame.FP, 3, 1) {
		t.Fatalf("columns %+v, cells %v %v %v", f.Columns, f.At(frame.FP, 3, 1), f.At(frame.FP, 3, 2), f.At(frame.FP, 3, 3))
	}
}

func TestBuild_WildStepNumbersCantAskForMemory(t *testing.T) {
	b := &History{}
	for r := range uint32(2000) { // every rank alone in its own steps
		for k := range uint64(20) {
			b.AddStep(stepRow(r, uint64(r)+1, uint64(r)*1000+k, second, second))
		}
	}

	f := build(t, b, nil)
	if cells := len(f.Ranks) * len(f.Columns); cells > sparseCells*40000+1<<20 {
		t.Fatalf("%d cells for 40,000 rows", cells)
	}

	if len(f.Notes) == 0 {
		t.Error("what was left out must be said")
	}
}

func TestBuild_SwitchedAndDerivedSelf(t *testing.T) {
	b := &History{}
	s := stepRow(0, 1, 1, second, second)
	s.CommNs, s.ExposedNs, s.DataLoaderNs = 3*second, 2*second, second
	b.AddStep(s)
	s.Step, s.Flags = 2, row.FlagSwitched
	b.AddStep(s)
	s.Step, s.Flags, s.SelfNs = 3, row.FlagEstimated, 4*second
	b.AddStep(s)
	f := build(t, b, nil)
	if f.At(frame.Self, 0, 0) != 7 { // 10 - 2 - 1
		t.Errorf("self %v, want 7", f.At(frame.Self, 0, 0))
	}

	if x := f.At(frame.Self, 0, 1); x == x || f.At(frame.Comm, 0, 1) == f.At(frame.Comm, 0, 1) {
		t.Errorf("a step in which the switch changed has self %v", x)
	}

	if f.At(frame.Self, 0, 2) != 4 || f.Estimated < 0.3 || f.Estimated > 0.4 {
		t.Errorf("self %v, estimated %v", f.At(frame.Self, 0, 2), f.Estimated)
	}
}

func TestNodes_OwnNameAgainstTheFiles(t *testing.T) {
	file := &topology.File{WorldSize: 4, Nodes: map[string][]int{"a": {0, 1}, "b": {2, 3}}}
	for name, c := range map[string]struct {
		own, want string
		topo      *topology.File
	}{
		"nothing known":           {"", "node-3", nil},
		"own":                     {"x", "x", nil},
		"file":                    {"", "b", file},
		"other names than file's": {"x", "b", file},
		"file's names":            {"a", "a", file},
	} {
		b := &History{}
		for r := range uint32(4) {
			s := stepRow(r, uint64(r)+1, 1, second, second)
			if s.Node = ""; r == 3 {
				s.Node = c.own
			}

			b.AddStep(s)
		}

		l := build(t, b, c.topo).Layouts[0]
		if got := l.Nodes[l.Node[3]]; got != c.want {
			t.Errorf("%s: rank 3 on %s, want %s", name, got, c.want)
		}
	}
}

func TestLayout_SeededColumnsOfAnAttemptAreSorted(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 3))
		b := &History{}
		for r := range uint32(5) {
			for s := range uint64(40) {
				if rng.IntN(4) > 0 {
					b.AddStep(stepRow(r, uint64(r)+1, s, int64(s+1)*10*second, second))
				}
			}
		}

		f := build(t, b, nil)
		if !slices.IsSortedFunc(f.Columns, func(a, c *frame.Column) int { return int(a.Step - c.Step) }) {
			t.Fatalf("seed %d: columns out of order", seed)
		}
	}
}

// TestStepsOff: steps that nobody recorded because recording was off are counted; other
// gaps are none of ours.
func TestStepsOff(t *testing.T) {
	build := func(off ...string) *frame.Frame {
		t.Helper()
		b := &History{}
		for rank := range uint32(2) {
			b.AddRank(&row.Rank{Job: "j", Rank: rank, Incarnation: 7 + uint64(rank), WorldSize: 2, StartedNs: 1, Version: 1, Off: off})
			for _, step := range []uint64{1, 2, 3, 4, 5, 21, 22, 23, 24, 25} {
				b.AddStep(&row.Step{Job: "j", Rank: rank, Incarnation: 7 + uint64(rank), Step: step, StartNs: int64(step) * 1000, StepNs: 900, FPNs: 1})
			}
		}

		f, err := b.Frame(nil)
		if err != nil {
			t.Fatal(err)
		}

		return f
	}
	for _, tt := range []struct {
		off  []string
		want int
	}{
		{nil, 0}, {[]string{"6500:20500"}, 15}, {[]string{"2500:2600"}, 0}, {[]string{"26000:"}, 0},
	} {
		got := 0
		for _, c := range build(tt.off...).Columns {
			got += c.Off
		}

		if got != tt.want {
			t.Errorf("off %q: %d steps, want %d", tt.off, got, tt.want)
		}
	}

	b := &History{}
	if _, err := b.Frame(nil); !errors.Is(err, ErrEmpty) {
		t.Errorf("nothing at all: %v", err)
	}

	b.AddRank(&row.Rank{Job: "j", Incarnation: 7, WorldSize: 1, StartedNs: 1, Version: 1, Off: []string{"5:"}})
	if f, err := b.Frame(nil); err != nil || len(f.Off) != 1 || f.Job != "j" {
		t.Errorf("off from the start: %+v, %v", f, err)
	}
}
