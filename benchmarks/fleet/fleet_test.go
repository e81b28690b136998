// Package fleet measures the analysis of 10,000 ranks × 1,000 steps and of 100,000 ×
// 200, with four communication groups a rank, a slow node and a slow link in them: from
// a Parquet store to the verdict, and the statistics alone beside numpy's medians; from
// ClickHouse, beside its own client. And what a fleet asks of one server: 1,000 agents that
// ship into it, 1,000 jobs that a watcher follows in it, watchers that share them.
package fleet

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/laggard-dev/laggard/analyzer/detect"
	"github.com/laggard-dev/laggard/analyzer/feed"
	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/analyzer/source"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/schemas/verdict"
	"github.com/laggard-dev/laggard/writer/parquet"
	"github.com/laggard-dev/laggard/writer/ship"
)

// fleet is a job: stages × replicas × tensor ranks, experts over some replicas.
type fleet struct {
	name                              string
	stages, replicas, tensor, experts int
	steps                             int
}

// The fleets of P15.
var fleets = []fleet{
	{"10000x1000", 10, 250, 4, 10, 1000},
	{"100000x200", 10, 1250, 8, 10, 200},
}

const (
	slowRank = 4321
	slowLink = "dp-3-1"
)

func (f *fleet) ranks() int    { return f.stages * f.replicas * f.tensor }
func (f *fleet) slowFrom() int { return f.steps * 2 / 5 }
func (f *fleet) linkFrom() int { return f.steps / 2 }

type group struct {
	dim, name string
	ranks     []uint32
}

// groups returns the four groups of rank r.
func (f *fleet) groups(r int) [4]group {
	s, q, t := r/f.tensor/f.replicas, r/f.tensor%f.replicas, r%f.tensor
	rank := func(s, q, t int) uint32 { return uint32((s*f.replicas+q)*f.tensor + t) }
	out := [4]group{
		{dim: "tp", name: fmt.Sprintf("tp-%d-%d", s, q)}, {dim: "pp", name: fmt.Sprintf("pp-%d-%d", q, t)},
		{dim: "dp", name: fmt.Sprintf("dp-%d-%d", s, t)}, {dim: "ep", name: fmt.Sprintf("ep-%d-%d-%d", s, t, q/f.experts)},
	}
	for i := range f.tensor {
		out[0].ranks = append(out[0].ranks, rank(s, q, i))
	}

	for i := range f.stages {
		out[1].ranks = append(out[1].ranks, rank(i, q, t))
	}

	for i := range f.replicas {
		out[2].ranks = append(out[2].ranks, rank(s, i, t))
	}

	for i := range f.experts {
		out[3].ranks = append(out[3].ranks, rank(s, q/f.experts*f.experts+i, t))
	}

	return out
}

// store writes the job into a Parquet store in dir.
func (f *fleet) store(b *testing.B, dir string) {
	b.Helper()
	sink, err := parquet.Open(dir)
	if err != nil {
		b.Fatal(err)
	}

	f.fill(b, sink)
}

// fill writes the job into a store, and closes it.
func (f *fleet) fill(b *testing.B, sink ship.Sink) {
	b.Helper()
	if err := sink.Create(b.Context()); err != nil {
		b.Fatal(err)
	}

	random := rand.New(rand.NewPCG(1, 2))
	var rows row.Rows
	for r := range f.ranks() {
		ours := f.groups(r)
		id := row.Rank{Job: "fleet", Rank: uint32(r), Incarnation: uint64(r) + 1, WorldSize: uint32(f.ranks()), LocalRank: uint16(r % 8),
			Node: "node-" + strconv.Itoa(r/8), StartedNs: 1, Version: 1, BootID: "b", Writer: "bench"}
		for _, g := range ours {
			id.Groups = append(id.Groups, fmt.Sprintf("%s:%s:%d:%d", g.dim, g.name, slices.Index(g.ranks, uint32(r)), len(g.ranks)))
			id.GroupRanks = append(id.GroupRanks, g.ranks)
		}

		rows.Ranks = append(rows.Ranks, id)
		f.history(&rows, r, &ours, random)
		if len(rows.Steps) >= 64<<10 || r == f.ranks()-1 {
			for _, batch := range ship.Cut(&rows) {
				if err := sink.Insert(context.Background(), batch); err != nil {
					b.Fatal(err)
				}
			}

			rows = row.Rows{}
		}
	}

	if err := sink.Close(); err != nil {
		b.Fatal(err)
	}
}

// history adds the steps of rank r, and its communication a window of steps.
func (f *fleet) history(rows *row.Rows, r int, ours *[4]group, random *rand.Rand) {
	node := "node-" + strconv.Itoa(r/8)
	var total [4]int64
	for s := range f.steps {
		fp := 3e8 * (1 + 0.01*random.NormFloat64())
		rest := 9.5e8 // until the last rank is there
		if s >= f.slowFrom() {
			rest += 1.8e8
			if r == slowRank {
				fp *= 1.2
			}
		}

		wire, others := 3e7*(1+0.1*random.Float64()), 0.0
		if s >= f.linkFrom() {
			if ours[2].name == slowLink {
				wire += 3.5e8
			} else {
				others = 3.5e8 // they wait for the group at the end of the step
			}
		}

		self := 3 * fp
		comm := [4]int64{2e7, 1e8, int64(wire + max(0, rest-self)), 2e7}
		all := comm[0] + comm[1] + comm[2] + comm[3] + int64(others)
		rows.Steps = append(rows.Steps, row.Step{
			Job: "fleet", Rank: uint32(r), Incarnation: uint64(r) + 1, Node: node, Step: uint64(s) + 1000, StartNs: int64(s) * 2e9, StepNs: int64(self) + all + 1e6,
			FPNs: int64(fp), FPCount: 8, CommNs: all, ExposedNs: all, CommTPNs: comm[0], CommPPNs: comm[1], CommDPNs: comm[2], CommEPNs: comm[3],
			CommCPNs: -1, CommOtherNs: int64(others), DataLoaderNs: 1e6, CheckpointNs: -1, SelfNs: int64(self), HostFPNs: -1, Tokens: -1, BackwardNs: -1,
		})
		for k := range total {
			total[k] += comm[k]
		}

		if s%row.Window != row.Window-1 && s != f.steps-1 {
			continue
		}

		for k, g := range ours {
			from := uint64(s)/row.Window*row.Window + 1000
			n := uint32(s%row.Window + 1)
			rows.Communications = append(rows.Communications, row.Communication{Job: "fleet", Rank: uint32(r), Incarnation: uint64(r) + 1, Node: node,
				StepFrom: from, StepTo: from + row.Window - 1, StartNs: int64(s/row.Window*row.Window) * 2e9, Group: g.name, Dim: g.dim, Op: "allreduce", Steps: n, Calls: n, TotalNs: total[k],
				MinNs: total[k] / int64(n), MaxNs: total[k] / int64(n), Bytes: int64(n) << 23})
			total[k] = 0
		}
	}
}

// BenchmarkFleet is P15. LAGGARD_FLEET keeps the stores in that directory from run to
// run; LAGGARD_NUMPY is a Python with numpy ("" = python3).
func BenchmarkFleet(b *testing.B) {
	for k := range fleets {
		f := &fleets[k]
		b.Run(f.name, func(b *testing.B) {
			dir := os.Getenv("LAGGARD_FLEET")
			if dir == "" {
				dir = b.TempDir()
			}

			dir = filepath.Join(dir, f.name)
			if _, err := os.Stat(dir); err != nil {
				f.store(b, dir)
			}

			b.ResetTimer()
			for b.Loop() {
				analyze(b, "parquet:"+dir)
			}

			if f.name == fleets[0].name {
				numpy(b, load(b, dir))
			}
		})
	}
}

// analyze reads a store to the verdict in a process of its own, whose memory is that of
// the analysis alone.
func analyze(b *testing.B, store string) {
	b.Helper()
	c := exec.Command(os.Args[0], "-test.run", "^TestAnalyze$", "-test.v")
	c.Env = append(os.Environ(), "LAGGARD_FLEET_STORE="+store)
	out, err := c.CombinedOutput()
	if err != nil {
		b.Fatalf("analyze: %v: %s", err, out)
	}

	for _, line := range strings.Split(string(out), "\n") {
		if unit, value, ok := strings.Cut(line, "="); ok && strings.HasPrefix(unit, "fleet-") {
			v, err := strconv.ParseFloat(value, 64)
			if err != nil {
				b.Fatalf("%s: %v", line, err)
			}

			b.ReportMetric(v, strings.TrimPrefix(unit, "fleet-"))
		}
	}
}

// TestAnalyze is the process that BenchmarkFleet starts; by itself it has nothing to read.
func TestAnalyze(t *testing.T) {
	store := os.Getenv("LAGGARD_FLEET_STORE")
	if store == "" {
		return
	}

	began := time.Now()
	rows, info := read(t, store)
	f, err := rows.Settle(info.Topology)
	if err != nil {
		t.Fatal(err)
	}

	loaded, used, held := time.Now(), processor(), peak(t)
	judge := detect.Begin(f, detect.Default())
	if err := rows.Play(judge.Observe, judge.ObserveTransfer); err != nil {
		t.Fatal(err)
	}

	check(t, judge.Verdict())
	fmt.Printf("fleet-load-s=%.2f\nfleet-load-cpu-s=%.2f\nfleet-load-MiB=%.0f\nfleet-decide-s=%.2f\nfleet-decide-cpu-s=%.2f\nfleet-MiB=%.0f\n",
		loaded.Sub(began).Seconds(), used.Seconds(), held, time.Since(loaded).Seconds(), (processor() - used).Seconds(), peak(t))
}

// peak is the most memory that this process had, in MiB.
func peak(t *testing.T) float64 {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}

	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	kib, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
	if err != nil {
		t.Fatal(err)
	}

	return kib / 1024
}

func read(tb testing.TB, store string) (*feed.History, source.Info) {
	tb.Helper()
	s, err := source.Open(tb.Context(), store, source.Options{})
	if err != nil {
		tb.Fatal(err)
	}

	rows := &feed.History{}
	info, err := s.Load(tb.Context(), "fleet", rows.Add, source.Options{})
	if err := errors.Join(err, s.Close()); err != nil {
		tb.Fatal(err)
	}

	return rows, info
}

// load returns the frame of a store.
func load(b *testing.B, dir string) *frame.Frame {
	b.Helper()
	rows, info := read(b, "parquet:"+dir)
	f, err := rows.Frame(info.Topology)
	if err != nil {
		b.Fatal(err)
	}

	return f
}

// check holds the verdict: the slow node, and where there are steps enough to tell, the
// slow link; nobody else.
func check(b testing.TB, v *verdict.Verdict) {
	b.Helper()
	if len(v.Nodes) != 1 || v.Nodes[0].Node != "node-"+strconv.Itoa(slowRank/8) ||
		len(v.Links) > 1 || len(v.Links) == 1 && v.Links[0].Group != slowLink || len(v.Links) == 0 && v.Steps.Analyzed >= 500 {
		b.Fatalf("nodes %+v\nlinks %+v", v.Nodes, v.Links)
	}
}

// numpy does the medians of the same matrices in Python, and the statistics again
// between its repetitions, and reports the ratio.
func numpy(b *testing.B, f *frame.Frame) {
	python := os.Getenv("LAGGARD_NUMPY")
	if python == "" {
		python = "python3"
	}

	if err := exec.Command(python, "-c", "import numpy").Run(); err != nil {
		b.Logf("NOTE: %s has no numpy: nothing to compare with", python)
		return
	}

	args := []string{"medians.py", strconv.Itoa(len(f.Columns)), strconv.Itoa(len(f.Layouts[0].Roles)), "1"}
	for _, m := range []frame.Metric{frame.FP, frame.Self, frame.DataLoader} {
		path := filepath.Join(b.TempDir(), m.String())
		dump(b, f, m, path)
		args = append(args, path)
	}

	var theirs, ours, ratios []float64
	for range 3 {
		out, err := exec.Command(python, args...).Output()
		if err != nil {
			b.Fatalf("numpy: %v", err)
		}

		t, err := strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
		if err != nil {
			b.Fatal(err)
		}

		began := time.Now()
		detect.Analyze(f, detect.Default())
		o := time.Since(began).Seconds()
		theirs, ours, ratios = append(theirs, t), append(ours, o), append(ratios, t/o)
	}

	slices.Sort(ratios)
	b.ReportMetric(middle(theirs), "numpy-s")
	b.ReportMetric(ratios[len(ratios)/2], "times-numpy")
	b.Logf("statistics %.2f s, numpy's medians alone %.2f s: %.2f times faster (%.2f to %.2f)", middle(ours), middle(theirs),
		ratios[len(ratios)/2], ratios[0], ratios[len(ratios)-1])
}

// dump writes a metric as steps × ranks, the ranks of a role side by side.
func dump(b *testing.B, f *frame.Frame, m frame.Metric, path string) {
	b.Helper()
	var order []int32
	for i := range f.Layouts[0].Roles {
		order = append(order, f.Layouts[0].Roles[i].Rows...)
	}

	out := make([]byte, 0, 4*len(f.Columns)*len(order))
	for c := range f.Columns {
		for _, r := range order {
			out = binary.LittleEndian.AppendUint32(out, math.Float32bits(f.At(m, int(r), c)))
		}
	}

	if err := os.WriteFile(path, out, 0o600); err != nil {
		b.Fatal(err)
	}
}

func middle(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	return s[len(s)/2]
}
