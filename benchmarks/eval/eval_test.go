package main

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/laggard-dev/laggard/analyzer/feed"
	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/analyzer/simulate"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// seed is drawn at run time and printed; LAGGARD_EVAL_SEED sets it.
func seed(t *testing.T) uint64 {
	t.Helper()
	s := uint64(time.Now().UnixNano()) & (1<<40 - 1)
	if text := os.Getenv("LAGGARD_EVAL_SEED"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("LAGGARD_EVAL_SEED: %v", err)
		}

		s = n
	}

	t.Logf("LAGGARD_EVAL_SEED=%d", s)
	return s
}

// shortCases is the scale of the short forms; LAGGARD_SEEDS=all sets the longer one.
func shortCases() int {
	if os.Getenv("LAGGARD_SEEDS") == "all" {
		return 3
	}

	return 1
}

// recorded loads the recorded jobs once.
var recorded = sync.OnceValues(func() ([]*simulate.Trace, error) { return traces("") })

// The short form of the suite. Its few cases can't show 99 %; they show that
// nothing broke. `make eval` is the long form.
func TestSuite_ShortForm(t *testing.T) {
	t.Parallel()
	tr, err := recorded()
	if err != nil {
		t.Fatal(err)
	}

	if len(tr) == 0 {
		t.Log("NOTE: THE RECORDED JOBS ARE NOT HERE: no case replays one")
	}

	x := &suite{n: shortCases(), seed: seed(t), parallel: 2, world: 16, traces: tr}
	tallies, err := x.run(context.Background(), simulate.Names(), nil)
	if err != nil {
		t.Fatal(err)
	}

	var b bytes.Buffer
	printTable(&b, tallies)
	var strong, all tally
	for _, name := range simulate.Names() {
		x := tallies[name]
		x.failures(&b, name, "cases")
		all = append(all, x...)
		if row, _ := simulate.Row(name); row == 4 || row == 3 {
			strong = append(strong, x...)
		}
	}

	t.Logf("scale: %d cases a scenario\n%s", x.n, b.String())
	if r := strong.recall(); r < 0.85 {
		t.Errorf("%.2f of the nodes slowed by x1.10 and more are named", r)
	}

	if victims := all.cases((*outcome).wrongNode); float64(victims) > 0.05*float64(len(all))+1 {
		t.Errorf("somebody innocent is accused in %d of %d cases", victims, len(all))
	}
}

func TestHealthyHours_ShortForm(t *testing.T) {
	t.Parallel()
	tr, err := recorded()
	if err != nil {
		t.Fatal(err)
	}

	steps := healthySteps
	if slow {
		steps /= 4
	}

	want := 2 * float64(healthyRanks*steps) * healthyStep / 3600 * float64(shortCases()) // of 64 ranks: eight nodes
	hs, err := runHealthy(context.Background(), want, steps, seed(t), 1, tr, nil)
	if err != nil {
		t.Fatal(err)
	}

	var b bytes.Buffer
	printHours(&b, hs)
	t.Logf("scale: %.0f node-hours\n%s", want, b.String())
	alarms := 0
	for _, t := range hs {
		alarms += t.sum((*outcome).alarms)
	}

	if alarms > 1 {
		t.Errorf("%d alarms in a few healthy node-hours", alarms)
	}
}

// TestParity_GroupsOfTheTopologyAlone takes a job the way of files whose identities name no groups:
// those of its last attempt stand in the topology file.
func TestParity_GroupsOfTheTopologyAlone(t *testing.T) {
	cfg, err := task{scenario: "elastic", seed: 25504034}.fitting()
	if err != nil {
		t.Fatal(err)
	}

	if _, diff, err := compare(t.Context(), cfg, 0, nil); err != nil || diff != "" {
		t.Error(diff, err)
	}
}

func TestParity_ShortForm(t *testing.T) {
	t.Parallel()
	p, err := runParity(context.Background(), 3*shortCases(), seed(t), 2, nil, nil)
	if err != nil {
		t.Fatal(err)
	}

	t.Log(p)
	if len(p.differ) > 0 || p.rows == 0 {
		t.Errorf("%d of %d verdicts differ: %s", len(p.differ), p.cases, p)
	}
}

// A node counts when its state accuses it; the rest of a verdict is compared with
// what the truth asks for.
func TestScore(t *testing.T) {
	o := &outcome{truth: simulate.Truth{
		SlowNodes: []string{"a", "b"}, Cause: []string{verdict.Compute}, Links: []string{"dp-1"}, Findings: []string{verdict.JobSlow},
		Events: []simulate.Event{{Node: "e"}}, Culprits: []simulate.Culprit{{Node: "a", OnsetStep: 100, Cause: []string{verdict.Compute}}, {Node: "b", OnsetStep: 100, Cause: []string{verdict.Compute}}},
	}}
	v := verdict.New("j")
	v.Decided = true
	v.Nodes = []verdict.Node{
		{Node: "a", State: verdict.Degraded, Cause: verdict.Compute, DetectedStep: 104},
		{Node: "b", State: verdict.Recovered, Cause: verdict.HostDelay, DetectedStep: 90},
		{Node: "c", State: verdict.Degraded}, {Node: "d", State: verdict.Suspect},
	}
	v.Links = []verdict.Link{{Group: "dp-1", State: verdict.Degraded}, {Group: "dp-2", State: verdict.Degraded}}
	v.Findings = []verdict.Finding{{Kind: verdict.JobSlow}, {Kind: verdict.LowCoverage}}
	v.Events = []verdict.Event{{Node: "e", Kind: "transient"}}
	o.verdict = v
	o.score()
	got := fmt.Sprint(o.positive(), o.hit, o.culprits()-o.hit, len(o.victims), o.cause, o.delays, o.links, o.wrong, o.findings, o.others, o.events, o.undecided())
	if want := "true 2 0 1 1 [5 0] 1 [dp-2] 1 [low-coverage] 1 false"; got != want {
		t.Errorf("score: %s, want %s", got, want)
	}

	if r := strings.Join(o.reasons(), "; "); !strings.Contains(r, "falsely accused: c") || !strings.Contains(r, "cause compute,host") {
		t.Errorf("reasons: %s", r)
	}
}

func TestBound_Poisson(t *testing.T) {
	for _, c := range []struct {
		alarms int
		want   float64
	}{{0, 0.0999}, {1, 0.1581}, {3, 0.2585}} { // textbook: 2.996, 4.744, 7.754 events
		if got := bound(c.alarms, 30000); math.Abs(got-c.want) > 0.0002 {
			t.Errorf("bound of %d alarms in 30,000 hours = %.4f, want %.4f", c.alarms, got, c.want)
		}
	}
}

// The rules do what they are documented to do, no less: FaultDiag-online finds a
// doubled rank of a TP group, NVRx sees x1.5 and not x1.2.
func TestRules_FindWhatTheyCan(t *testing.T) {
	play := func(s simulate.Shape, factor float64) *frame.Frame {
		c := simulate.Config{Seed: 4, Steps: 200, Shape: s, Model: simulate.Model{Seconds: 10}, Noise: simulate.Noise{OpSD: 0.002},
			Faults: []simulate.Fault{{Kind: simulate.Compute, Node: 1, Locals: []int{2}, Factor: factor, From: 60}}}
		var rows feed.History
		if _, err := simulate.Run(c, rows.Add); err != nil {
			t.Fatal(err)
		}

		f, err := rows.Frame(nil)
		if err != nil {
			t.Fatal(err)
		}

		return f
	}
	tp, dp := simulate.Shape{TP: 8, DP: 4}, simulate.Shape{DP: 16}
	for _, c := range []struct {
		rule   string
		shape  simulate.Shape
		factor float64
		want   bool
	}{
		{"FD-OL", tp, 2, true}, {"FD-OL", tp, 1.2, false}, {"FD-OL", dp, 2, true}, {"FD-OL", dp, 1.2, false},
		{"NVRx", dp, 1.5, true}, {"NVRx", dp, 1.2, false}, {">10 %", dp, 1.2, true}, {"3-sigma", dp, 2, false},
	} {
		for _, r := range rules {
			if r.name != c.rule {
				continue
			}

			found := r.find(play(c.shape, c.factor))
			if found["node-1"] != c.want || len(found) > count(c.want) {
				t.Errorf("%s on %+v x%v: %v", r.name, c.shape, c.factor, found)
			}
		}
	}

	for _, r := range rules {
		if found := r.find(&frame.Frame{}); len(found) != 0 {
			t.Errorf("%s on nothing: %v", r.name, found)
		}
	}
}

// The oracle proves a large fault of the culprit, and nothing against anybody else but by chance: its
// bound is that of a Gaussian, and healthy ranks of one job in seventy drift past it. The job is another
// one in each run, so one rank in ten may.
func TestOracle(t *testing.T) {
	cfg, err := simulate.Sized("compute-1.5", seed(t), 32)
	if err != nil {
		t.Fatal(err)
	}

	var rows feed.History
	truth, err := simulate.Run(cfg, rows.Add)
	if err != nil {
		t.Fatal(err)
	}

	f, _, err := judge(&rows, nil)
	if err != nil {
		t.Fatal(err)
	}

	onset := truth.Culprits[0].OnsetStep
	if found, known := oracle(f, truth.SlowRanks[0], onset, 8); !found || !known {
		t.Errorf("culprit: found %v, known %v", found, known)
	}

	chance := 0
	for r := range f.Ranks {
		found, known := oracle(f, r, onset-10, 8) // before anything is wrong
		if !known {
			t.Errorf("rank %d, before the onset: nothing is known", r)
		}

		if found {
			chance++
		}
	}

	if chance > len(f.Ranks)/10 {
		t.Errorf("before the onset %d of %d ranks are found", chance, len(f.Ranks))
	}

	if _, known := oracle(f, len(f.Ranks), onset, 8); known {
		t.Error("a rank that is not there: known")
	}
}

// A run is printed and saved.
func TestCommand_SavesResults(t *testing.T) {
	path := filepath.Join(t.TempDir(), "RESULTS.md")
	var out, words bytes.Buffer
	args := []string{"-n", "1", "-seed", "5", "-scenario", "compute-2,16", "-world", "8", "-hours", "0", "-parity", "0", "-results", path}
	if err := command(context.Background(), args, &out, &words); err != nil {
		t.Fatal(err)
	}

	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	for _, want := range []string{"compute x2", "GC pauses", "-seed 5", "NVRx"} {
		if !strings.Contains(string(b), want) {
			t.Errorf("results say nothing of %q", want)
		}
	}

	if !bytes.Equal(b, out.Bytes()) {
		t.Error("what is saved is not what was printed")
	}

	out.Reset()
	if err := command(context.Background(), []string{"-scenario", "compute-2", "-seed", "5", "-v"}, &out, &words); err != nil {
		t.Fatal(err)
	}

	for _, want := range []string{"# the job", "# truth", "# verdict", "# judgement"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("-v prints no %q", want)
		}
	}

	for _, bad := range [][]string{{"-scenario", "nonsense"}, {"-v"}, {"-nonsense"}, {"-v", "-healthy", "x", "-seed", "1"}} {
		if err := command(context.Background(), bad, &out, &words); err == nil {
			t.Errorf("%v was taken", bad)
		}
	}
}
