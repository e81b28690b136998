package feed

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/schemas/topology"
)

// mesh is the groups of pp stages × dp replicas × tp ranks, pipeline outermost.
func mesh(pp, dp, tp int) *topology.File {
	f := &topology.File{WorldSize: pp * dp * tp}
	rank := func(s, q, t int) int { return (s*dp+q)*tp + t }
	list := func(n int, at func(int) int) []int {
		var out []int
		for i := range n {
			out = append(out, at(i))
		}

		return out
	}
	for s := range pp {
		for q := range dp {
			for t := range tp {
				if q == 0 {
					f.Groups = append(f.Groups, topology.Group{Name: fmt.Sprintf("dp-%d-%d", s, t), Dim: "dp", Ranks: list(dp, func(i int) int { return rank(s, i, t) })})
				}

				if s == 0 {
					f.Groups = append(f.Groups, topology.Group{Name: fmt.Sprintf("pp-%d-%d", q, t), Dim: "pp", Ranks: list(pp, func(i int) int { return rank(i, q, t) })})
				}

				if t == 0 {
					f.Groups = append(f.Groups, topology.Group{Name: fmt.Sprintf("tp-%d-%d", s, q), Dim: "tp", Ranks: list(tp, func(i int) int { return rank(s, q, i) })})
				}
			}
		}
	}

	return f
}

func ranksAlone(b *History, n int) {
	for r := range uint32(n) {
		b.AddStep(stepRow(r, uint64(r)+1, 1, second, second))
	}
}

func TestRoles_FromATopologyFile(t *testing.T) {
	b := &History{}
	ranksAlone(b, 24)
	l := build(t, b, mesh(2, 4, 3)).Layouts[0]
	if l.From != "topology" || l.Stages != 2 || len(l.Roles) != 6 || len(l.Replicas) != 4 || !l.Certain {
		t.Fatalf("from %s, %d stages, %d roles, %d replicas", l.From, l.Stages, len(l.Roles), len(l.Replicas))
	}

	if r := l.Roles[l.Role[13]]; r.Stage != 1 || r.Size != 4 || !slices.Equal(r.Rows, []int32{13, 16, 19, 22}) {
		t.Errorf("role of rank 13 is %+v", r)
	}

	if q := l.Replicas[l.Replica[13]]; !slices.Equal(q, []int32{0, 1, 2, 12, 13, 14}) {
		t.Errorf("replica of rank 13 is %v", q)
	}
}

func TestRoles_FromIdentitiesOfTheProcesses(t *testing.T) {
	b := &History{}
	ranksAlone(b, 8)
	for r := range uint32(8) {
		dp, pp := []uint32{r / 4 * 4, r/4*4 + 1, r/4*4 + 2, r/4*4 + 3}, []uint32{r % 4, r%4 + 4}
		b.AddRank(&row.Rank{Rank: r, Incarnation: uint64(r) + 1, WorldSize: 8,
			Groups: []string{fmt.Sprintf("dp:mesh:dp:%d:4", r%4), fmt.Sprintf("pp:p:%d:2", r/4)}, GroupRanks: [][]uint32{dp, pp}})
	}

	f := build(t, b, nil)
	l := f.Layouts[0]
	if l.From != "topology" || l.Stages != 2 || len(l.Roles) != 2 || len(l.Replicas) != 4 {
		t.Fatalf("from %s, %d stages, %d roles, %d replicas", l.From, l.Stages, len(l.Roles), len(l.Replicas))
	}

	if g := l.Groups[0]; g.Dim != "dp" || g.Name != "mesh:dp" || !g.Complete() {
		t.Errorf("group %+v: a name may hold colons", g)
	}
}

func TestRoles_ExpertPositionsSplitOnlyLargeRoles(t *testing.T) {
	for _, dp := range []int{4, 16} {
		b := &History{}
		ranksAlone(b, dp)
		f := &topology.File{WorldSize: dp, Groups: []topology.Group{{Name: "dp", Dim: "dp"}}}
		for r := range dp {
			f.Groups[0].Ranks = append(f.Groups[0].Ranks, r)
			if r%4 == 0 {
				f.Groups = append(f.Groups, topology.Group{Name: fmt.Sprint("ep", r), Dim: "exp", Ranks: []int{r, r + 1, r + 2, r + 3}})
			}
		}

		l := build(t, b, f).Layouts[0]
		if want := map[int]int{4: 1, 16: 4}[dp]; len(l.Roles) != want || len(l.Replicas) != dp {
			t.Errorf("dp %d: %d roles, %d replicas, want %d roles", dp, len(l.Roles), len(l.Replicas), want)
		}
	}
}

func TestRoles_DataParallelGroupsAlone(t *testing.T) {
	b := &History{}
	ranksAlone(b, 8)
	f := &topology.File{Groups: []topology.Group{{Name: "b", Dim: "dp", Ranks: []int{4, 5, 6, 7}}, {Name: "a", Dim: "dp", Ranks: []int{0, 1, 2, 3}}}}
	l := build(t, b, f).Layouts[0]
	if l.Stages != 2 || l.Roles[l.Role[5]].Stage != 1 || !slices.Equal(l.Replicas[l.Replica[5]], []int32{1, 5}) {
		t.Fatalf("%d stages, role %+v", l.Stages, l.Roles[l.Role[5]])
	}
}

func TestRoles_MembersThatWereNeverRecorded(t *testing.T) {
	b := &History{}
	for r := range uint32(16) {
		if r != 5 && r != 12 {
			b.AddStep(stepRow(r, uint64(r)+1, 1, second, second))
		}
	}

	f := build(t, b, mesh(4, 4, 1))
	l := f.Layouts[0]
	row := func(rank int) int { return slices.Index(f.Ranks, rank) }
	if r := l.Roles[l.Role[row(4)]]; len(r.Rows) != 3 || r.Size != 4 {
		t.Errorf("role %+v: its size is four, whoever was recorded", r)
	}

	if !l.Partial[l.Replica[row(1)]] || !l.Partial[l.Replica[row(0)]] || l.Partial[l.Replica[row(2)]] {
		t.Errorf("partial %v", l.Partial)
	}
}

func TestRoles_FromCommunicators(t *testing.T) {
	b := &History{}
	const pp, dp = 4, 4
	for r := range uint32(pp * dp) {
		s := stepRow(r, uint64(r)+1, 1, second, second)
		s.CommNs, s.CommOtherNs = second, second
		b.AddStep(s)
		add := func(name, op string, bytes int64) {
			b.AddCommunication(&row.Communication{Rank: r, Incarnation: uint64(r) + 1, StepTo: 15, Group: name, Op: op, Steps: 1, Calls: 4, TotalNs: second, Bytes: bytes})
		}
		add(fmt.Sprint("x", r/dp), "reducescatter", 1<<30) // data parallel
		add(fmt.Sprint("y", r%dp), "send", 1<<20)          // pipeline
		add(fmt.Sprint("z", r%dp), "allreduce", 8)         // gradient norm over the pipeline
		if s := r / dp; s == 0 || s == pp-1 {
			add(fmt.Sprint("e", r%dp), "allreduce", 1<<28) // embedding
		}
	}

	l := build(t, b, nil).Layouts[0]
	if l.From != "inferred" || l.Stages != pp || len(l.Roles) != pp || len(l.Replicas) != dp || !l.Certain {
		t.Fatalf("from %s, %d stages, %d roles, %d replicas, certain %v", l.From, l.Stages, len(l.Roles), len(l.Replicas), l.Certain)
	}

	if !slices.Equal(l.Roles[l.Role[6]].Rows, []int32{4, 5, 6, 7}) {
		t.Errorf("role of rank 6: %v", l.Roles[l.Role[6]].Rows)
	}
}

// TestRoles_CollectivesInsideAStage: nothing tells tensor from data parallelism, and the former moves more
// bytes. Both stay inside a stage, so all that they join is one.
func TestRoles_CollectivesInsideAStage(t *testing.T) {
	b := &History{}
	const tp, dp, pp = 2, 4, 2
	for r := range uint32(tp * dp * pp) {
		s := stepRow(r, uint64(r)+1, 1, second, second)
		s.CommNs, s.CommOtherNs = second, second
		b.AddStep(s)
		add := func(name string, of uint32, op string, bytes int64) {
			b.AddCommunication(&row.Communication{Rank: r, Incarnation: uint64(r) + 1, StepTo: 15, Group: fmt.Sprint(name, of), Op: op, Steps: 1, Calls: 4, TotalNs: second, Bytes: bytes})
		}
		add("x", r/tp, "allreduce", 1<<32)                  // tensor parallel
		add("y", r%tp+r/(tp*dp)*tp, "reducescatter", 1<<30) // data parallel
		add("z", r%(tp*dp), "send", 1<<20)                  // pipeline
		add("m", r/tp%dp, "allreduce", 8)                   // gradient norm over a replica
		add("w", 0, "allreduce", 8)                         // loss over the job
	}

	l := build(t, b, nil).Layouts[0]
	if l.Stages != pp || len(l.Roles) != pp || len(l.Replicas) != tp*dp {
		t.Fatalf("%d stages, %d roles, %d replicas", l.Stages, len(l.Roles), len(l.Replicas))
	}

	if want := []int32{8, 9, 10, 11, 12, 13, 14, 15}; !slices.Equal(l.Roles[l.Role[11]].Rows, want) {
		t.Errorf("role of rank 11: %v, want %v", l.Roles[l.Role[11]].Rows, want)
	}
}

// TestRoles_CollectivesAcrossDataParallelGroups: a topology that names the data-parallel groups alone says what a pipeline's
// stages are, but not where ranks of several of them meet in collectives and nobody sends.
func TestRoles_CollectivesAcrossDataParallelGroups(t *testing.T) {
	const tp, dp = 4, 4
	topo := &topology.File{WorldSize: tp * dp}
	for k := range tp {
		topo.Groups = append(topo.Groups, topology.Group{Name: fmt.Sprint("dp-", k), Dim: "dp", Ranks: []int{k, k + tp, k + 2*tp, k + 3*tp}})
	}

	for op, stages := range map[string]int{"allreduce": 1, "send": tp} {
		b := &History{}
		for r := range uint32(tp * dp) {
			s := stepRow(r, uint64(r)+1, 1, second, second)
			s.CommNs, s.CommOtherNs = second, second
			b.AddStep(s)
			b.AddCommunication(&row.Communication{Rank: r, Incarnation: uint64(r) + 1, StepTo: 15, Group: fmt.Sprint("x", r/tp), Op: op, Steps: 1, Calls: 4, TotalNs: second})
		}

		l := build(t, b, topo).Layouts[0]
		seen := slices.ContainsFunc(l.Groups, func(g frame.Group) bool { return g.Name == "x1" && slices.Equal(g.Rows, []int32{4, 5, 6, 7}) })
		if l.From != "topology" || l.Stages != stages || seen != (stages == 1) {
			t.Errorf("%s: from %s, %d stages, want %d; groups %+v", op, l.From, l.Stages, stages, l.Groups)
		}
	}
}

func TestRoles_FromTimesAlone(t *testing.T) {
	for name, c := range map[string]struct {
		fp     func(r int) int64
		stages int
	}{
		"last quarter heavy":         {func(r int) int64 { return map[bool]int64{true: 15, false: 10}[r >= 12] }, 4},
		"one rank apart is no stage": {func(r int) int64 { return map[bool]int64{true: 15, false: 10}[r == 3] }, 1},
		"a spread without gaps":      {func(r int) int64 { return 100 + int64(r) }, 1},
	} {
		b := &History{}
		for r := range 16 {
			b.AddStep(stepRow(uint32(r), uint64(r)+1, 1, second, c.fp(r)*second))
		}

		f := build(t, b, nil)
		l := f.Layouts[0]
		if l.Stages != c.stages || l.Certain {
			t.Errorf("%s: %d stages, certain %v, want %d, not certain", name, l.Stages, l.Certain, c.stages)
		}

		if c.stages > 1 && (l.Roles[l.Role[15]].Stage != 3 || len(f.Notes) == 0 || !strings.Contains(f.Notes[0], "guessed")) {
			t.Errorf("%s: stage %d, notes %v", name, l.Roles[l.Role[15]].Stage, f.Notes)
		}
	}
}

func TestRoles_DeviceModelsSplitWhereThereAreEnough(t *testing.T) {
	b := &History{}
	ranksAlone(b, 8)
	for r := range uint32(8) {
		model := "cuda:0 H200"
		if r >= 4 {
			model = "cuda:0 H100"
		}

		b.AddRank(&row.Rank{Rank: r, Incarnation: uint64(r) + 1, Device: model})
	}

	l := build(t, b, nil).Layouts[0]
	if len(l.Roles) != 2 || l.Roles[0].Name(1) != "the job on H200" {
		t.Fatalf("roles %+v", l.Roles)
	}
}

func TestTransfers_MembersDecideWhereNamesAreShared(t *testing.T) {
	b := &History{}
	for r := range uint32(8) {
		dp := []uint32{r % 2, r%2 + 2, r%2 + 4, r%2 + 6}
		b.AddRank(&row.Rank{Rank: r, Incarnation: uint64(r) + 1, WorldSize: 8, Groups: []string{"dp:mesh_dp:0:4"}, GroupRanks: [][]uint32{dp}})
		b.AddStep(stepRow(r, uint64(r)+1, 1, second, second))
		for w := range uint64(2) {
			b.AddCommunication(&row.Communication{Rank: r, Incarnation: uint64(r) + 1, StepFrom: w * 16, StepTo: w*16 + 15, Group: "mesh_dp", Op: "allreduce",
				Steps: 16, Calls: 32, TotalNs: int64(16+r) * second, MinNs: int64(2+r) * second / 8, Bytes: 1600})
		}
	}

	topo := &topology.File{WorldSize: 8, Groups: []topology.Group{{Name: "even", Dim: "dp", Ranks: []int{0, 2, 4, 6}}, {Name: "odd", Dim: "dp", Ranks: []int{1, 3, 5, 7}}}}
	f := build(t, b, topo)
	if len(f.Transfers) != 4 {
		t.Fatalf("%d windows: %+v", len(f.Transfers), f.Transfers)
	}

	w := f.Transfers[0]
	if w.Name != "even" || w.Dim != "dp" || w.From != 0 || w.To != 15 || !slices.Equal(w.Rows, []int32{0, 2, 4, 6}) || w.Size != 4 || w.Calls != 2 || w.Bytes != 100 {
		t.Errorf("window %+v", w)
	}

	if w.Shortest() != 1 || w.Seconds[3] != float32(22)/16 || w.QuickestCall() != 0.25 || frame.P2P(w.Op) {
		t.Errorf("shortest %v, seconds %v, quickest %v", w.Shortest(), w.Seconds, w.QuickestCall())
	}
}

func TestFresh_OnlyWhereTheStartWasRecorded(t *testing.T) {
	for name, c := range map[string]struct {
		started, first int64
		step           uint64
		want           bool
	}{
		"from the first step":      {0, 100, 1, true},
		"resumed, start known":     {1000, 1100, 5000, true},
		"window in mid-job":        {0, 100, 5000, false},
		"switched on hours later":  {1000, 20000, 5000, false},
		"clock of start is absent": {0, 1100, 400, false},
	} {
		b := &History{}
		for r := range uint32(2) {
			b.AddRank(&row.Rank{Rank: r, Incarnation: uint64(r) + 1, StartedNs: c.started * second})
			b.AddStep(stepRow(r, uint64(r)+1, c.step, c.first*second, second))
		}

		if l := build(t, b, nil).Layouts[0]; l.Fresh[0] != c.want {
			t.Errorf("%s: fresh %v, want %v", name, l.Fresh[0], c.want)
		}
	}
}
