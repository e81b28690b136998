package detect

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/laggard-dev/laggard/analyzer/feed"
	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/schemas/topology"
	"github.com/laggard-dev/laggard/schemas/verdict"
	"github.com/laggard-dev/laggard/writer/rollup"
	"github.com/laggard-dev/laggard/writer/segment"
)

// trace is one of the recorded jobs, as rows.
type trace struct {
	rows row.Rows
	topo *topology.File
}

// loadTrace unpacks and rolls up the archive of a recorded job (CONTRIBUTING.md). Without
// the archive it says so and the test ends.
func loadTrace(t *testing.T, name string) *trace {
	t.Helper()
	path := filepath.Join("..", "..", "..", "shared", "data", name+".tar.gz")
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		t.Logf("RAN WITHOUT THE REAL TRACES: %s is not there", path)
		return nil
	}

	dir := t.TempDir()
	said, err := exec.Command("tar", "-xzmf", path, "-C", dir, "--no-same-owner").CombinedOutput()
	if err != nil {
		t.Fatalf("unpack %s: %v\n%s", path, err, said)
	}

	tr := &trace{}
	if tr.topo, err = topology.Load(filepath.Join(dir, name, "topology.json")); err != nil {
		t.Fatal(err)
	}

	ranks, err := segment.Walk(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}

	for _, d := range ranks {
		_, err := rollup.Dir(context.Background(), d, rollup.Options{}, func(r *row.Rows) error {
			tr.rows.Ranks = append(tr.rows.Ranks, r.Ranks...)
			tr.rows.Steps = append(tr.rows.Steps, r.Steps...)
			tr.rows.Communications = append(tr.rows.Communications, r.Communications...)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}

	if len(tr.rows.Steps) == 0 {
		t.Fatalf("%s: no steps", name)
	}

	return tr
}

// view is a way to look at a trace: what is left of it.
type view struct {
	topology, groups, communications bool
	edit                             func(*row.Step) bool
	relabel                          []int // rank → new rank
}

func (tr *trace) frame(t *testing.T, v view) *frame.Frame {
	t.Helper()
	b := &feed.History{}
	to := func(r uint32) uint32 {
		if v.relabel == nil {
			return r
		}

		return uint32(v.relabel[r])
	}
	for _, r := range tr.rows.Ranks {
		r.Rank = to(r.Rank)
		if !v.groups {
			r.Groups, r.GroupRanks = nil, nil
		} else if v.relabel != nil {
			r.GroupRanks = slices.Clone(r.GroupRanks)
			for i, g := range r.GroupRanks {
				r.GroupRanks[i] = slices.Clone(g)
				for k, x := range g {
					r.GroupRanks[i][k] = to(x)
				}
			}
		}

		b.AddRank(&r)
	}

	for _, s := range tr.rows.Steps {
		s.Rank = to(s.Rank)
		if !v.groups && s.CommNs >= 0 { // without groups no dimension is known
			s.CommTPNs, s.CommPPNs, s.CommDPNs, s.CommOtherNs = -1, -1, -1, s.CommNs
		}

		if v.edit == nil || v.edit(&s) {
			b.AddStep(&s)
		}
	}

	for _, c := range tr.rows.Communications {
		if c.Rank = to(c.Rank); !v.groups {
			c.Dim = ""
		}

		if v.communications {
			b.AddCommunication(&c)
		}
	}

	var topo *topology.File
	if v.topology {
		topo = tr.relabelled(v.relabel)
	}

	f, err := b.Frame(topo)
	if err != nil {
		t.Fatal(err)
	}

	return f
}

func (tr *trace) relabelled(to []int) *topology.File {
	if to == nil {
		return tr.topo
	}

	f := &topology.File{WorldSize: tr.topo.WorldSize, Nodes: map[string][]int{}}
	for n, ranks := range tr.topo.Nodes {
		for _, r := range ranks {
			f.Nodes[n] = append(f.Nodes[n], to[r])
		}
	}

	for _, g := range tr.topo.Groups {
		g.Ranks = slices.Clone(g.Ranks)
		for i, r := range g.Ranks {
			g.Ranks[i] = to[r]
		}

		f.Groups = append(f.Groups, g)
	}

	return f
}

func fpOnly(s *row.Step) bool {
	s.CommNs, s.ExposedNs, s.SelfNs, s.BackwardNs = -1, -1, -1, -1
	s.CommTPNs, s.CommPPNs, s.CommDPNs, s.CommCPNs, s.CommEPNs, s.CommOtherNs = -1, -1, -1, -1, -1, -1
	return true
}

func commOnly(s *row.Step) bool { s.FPNs, s.BackwardNs = -1, -1; return true }

func stepOnly(s *row.Step) bool { fpOnly(s); s.FPNs = -1; return true }

// halfOf keeps every other step, beginning with the first or the second.
func halfOf(tr *trace, begin int) func(*row.Step) bool {
	var steps []uint64
	for i := range tr.rows.Steps {
		if s := tr.rows.Steps[i].Step; !slices.Contains(steps, s) {
			steps = append(steps, s)
		}
	}

	slices.Sort(steps)
	return func(s *row.Step) bool { return slices.Index(steps, s.Step)%2 == begin }
}

func shuffled(seed uint64, n int) []int { return rand.New(rand.NewPCG(seed, 1)).Perm(n) }

// views are the ways in which both traces must give the same answer.
func (tr *trace) views() map[string]view {
	all := view{topology: true, groups: true, communications: true}
	return map[string]view{
		"all":                       all,
		"no communications table":   {topology: true, groups: true},
		"shuffled ranks":            {topology: true, groups: true, communications: true, relabel: shuffled(11, 64)},
		"half the steps":            {topology: true, groups: true, communications: true, edit: halfOf(tr, 0)},
		"the other half":            {topology: true, groups: true, edit: halfOf(tr, 1)},
		"FP only":                   {topology: true, groups: true, edit: fpOnly},
		"Step and Communication":    {topology: true, groups: true, communications: true, edit: commOnly},
		"groups of the rank":        {groups: true, communications: true},
		"groups of the rank, half":  {groups: true, edit: halfOf(tr, 0)},
		"communicators only":        {communications: true},
		"communicators, no FP":      {communications: true, edit: commOnly},
		"FP and nothing else known": {edit: fpOnly},
	}
}

func TestTrace_OneSlowWorker(t *testing.T) {
	for _, name := range []string{"AR-1", "AR-1-full"} {
		tr := loadTrace(t, name)
		if tr == nil {
			return
		}

		for what, w := range tr.views() {
			t.Run(name+"/"+what, func(t *testing.T) {
				v := Analyze(tr.frame(t, w), Default())
				rank, node := 0, "node-0"
				if w.relabel != nil {
					rank = w.relabel[0]
				}

				if len(v.Nodes) != 1 || v.Nodes[0].Node != node && w.topology || !slices.Equal(v.Nodes[0].Ranks, []int{rank}) {
					t.Fatalf("nodes %+v, want rank %d alone", v.Nodes, rank)
				}

				n := v.Nodes[0]
				noFP := strings.Contains(what, "Communication") || strings.Contains(what, "no FP")
				want := verdict.Compute
				if noFP {
					want = verdict.Unattributed
				}

				if n.State != verdict.Degraded || n.Cause != want {
					t.Errorf("state %s, cause %s, want degraded, %s", n.State, n.Cause, want)
				}

				if n.Slowdown < 2.05 || n.Slowdown > 2.6 {
					t.Errorf("slowdown %.3f, want 2.05 to 2.6", n.Slowdown)
				}

				if n.SinceStep != 16 && n.SinceStep != 21 || n.JobImpact > 0.6 || max(n.JobImpact, n.JobImpactMax) < 0.45 {
					t.Errorf("since %d, impact %.3f to %.3f, want what the replay of its ranges says, 0.49", n.SinceStep, n.JobImpact, n.JobImpactMax)
				}

				known := (w.topology || w.groups) && what != "FP only"
				if known != (n.JobImpactMax == 0) || known && !noFP && (n.JobImpact < 0.46 || n.JobImpact > 0.52) {
					t.Errorf("impact %.3f to %.3f, want 0.49 where groups and waits are known: %v", n.JobImpact, n.JobImpactMax, known)
				}

				if !known && (n.JobImpact > 0.52 || n.JobImpactMax < 0.46) {
					t.Errorf("impact %.3f to %.3f does not hold 0.49", n.JobImpact, n.JobImpactMax)
				}

				if v.Exit(0.01) != verdict.ExitDegraded || v.Healthy || len(v.Links) != 0 || len(v.Events) != 0 {
					t.Errorf("exit %d, healthy %v, links %+v, events %+v", v.Exit(0.01), v.Healthy, v.Links, v.Events)
				}

				if noFP != saysLowCoverage(v, "no FP") && w.topology {
					t.Errorf("findings %+v: what can't be known must be said", v.Findings)
				}
			})
		}
	}
}

func saysLowCoverage(v *verdict.Verdict, words string) bool {
	return slices.ContainsFunc(v.Findings, func(f verdict.Finding) bool {
		return f.Kind == verdict.LowCoverage && strings.Contains(f.Detail, words)
	})
}

func TestTrace_HeavyLastStage(t *testing.T) {
	for _, name := range []string{"ST", "ST-full"} {
		tr := loadTrace(t, name)
		if tr == nil {
			return
		}

		for what, w := range tr.views() {
			t.Run(name+"/"+what, func(t *testing.T) {
				v := Analyze(tr.frame(t, w), Default())
				if len(v.Nodes) != 0 || len(v.Links) != 0 || len(v.Events) != 0 {
					t.Fatalf("nodes %+v links %+v events %+v, want none", v.Nodes, v.Links, v.Events)
				}

				if v.Exit(0.01) != verdict.ExitHealthy || !v.Healthy {
					t.Errorf("exit %d, findings %+v", v.Exit(0.01), v.Findings)
				}

				k := slices.IndexFunc(v.Findings, func(f verdict.Finding) bool { return f.Kind == verdict.StageImbalance })
				if k < 0 {
					t.Fatalf("findings %+v, want stage-imbalance", v.Findings)
				}

				f := v.Findings[k]
				if !slices.Equal(f.Stages, []int{3}) || f.Ratio < 1.4 || f.Ratio > 2.2 || !strings.Contains(f.Detail, "stage 3") {
					t.Errorf("finding %+v, want stage 3 and its ratio", f)
				}
			})
		}
	}
}

// TestTrace_StepsAlone holds that a job of which only step times are known is
// never called healthy.
func TestTrace_StepsAlone(t *testing.T) {
	for _, name := range []string{"AR-1", "ST"} {
		tr := loadTrace(t, name)
		if tr == nil {
			return
		}

		v := Analyze(tr.frame(t, view{topology: true, groups: true, edit: stepOnly}), Default())
		if v.Decided || v.Healthy || v.Exit(0.01) != verdict.ExitUndecided || !saysLowCoverage(v, "only step times") {
			t.Errorf("%s: %+v", name, v)
		}
	}
}

// TestTrace_CulpritWithoutRecords holds that the victims of a rank that was never
// recorded are not named for the waits that no range covers.
func TestTrace_CulpritWithoutRecords(t *testing.T) {
	tr := loadTrace(t, "AR-1")
	if tr == nil {
		return
	}

	for what, edit := range map[string]func(*row.Step) bool{"all kinds": nil, "no FP": commOnly} {
		v := Analyze(tr.frame(t, view{topology: true, groups: true, communications: true, edit: func(s *row.Step) bool {
			return s.Rank != 0 && (edit == nil || edit(s))
		}}), Default())
		if len(v.Nodes) != 0 || len(v.Links) != 0 {
			t.Errorf("%s: nodes %+v links %+v, want none", what, v.Nodes, v.Links)
		}
	}
}

// TestTrace_SameVerdictInAnyOrder holds that the order of rows does not matter.
func TestTrace_SameVerdictInAnyOrder(t *testing.T) {
	tr := loadTrace(t, "AR-1")
	if tr == nil {
		return
	}

	want, err := json.Marshal(Analyze(tr.frame(t, view{topology: true, groups: true, communications: true}), Default()))
	if err != nil {
		t.Fatal(err)
	}

	rng := rand.New(rand.NewPCG(5, 5))
	rng.Shuffle(len(tr.rows.Steps), func(a, b int) { tr.rows.Steps[a], tr.rows.Steps[b] = tr.rows.Steps[b], tr.rows.Steps[a] })
	slices.Reverse(tr.rows.Communications)
	tr.rows.Steps = append(tr.rows.Steps, tr.rows.Steps[:40]...) // some come twice
	got, err := json.Marshal(Analyze(tr.frame(t, view{topology: true, groups: true, communications: true}), Default()))
	if err != nil {
		t.Fatal(err)
	}

	if string(got) != string(want) {
		t.Fatalf("verdicts differ\n%s\n%s", want, got)
	}
}
