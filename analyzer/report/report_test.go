package report

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

func TestJSON_ListsAreNeverNull(t *testing.T) {
	v := &verdict.Verdict{SchemaVersion: 1, Job: "j", Nodes: []verdict.Node{{Node: "n"}}, Links: []verdict.Link{{Group: "g"}}}
	var b bytes.Buffer
	if err := JSON(&b, v); err != nil {
		t.Fatal(err)
	}

	if strings.Contains(b.String(), "null") {
		t.Fatalf("JSON has a null:\n%s", b.String())
	}

	for _, key := range []string{"schema_version", "job", "attempts", "world_size", "steps", "coverage", "decided", "healthy", "nodes", "links", "findings", "events"} {
		if !strings.Contains(b.String(), `"`+key+`":`) {
			t.Errorf("JSON lacks %q", key)
		}
	}

	if !strings.HasSuffix(b.String(), "}\n") || strings.HasSuffix(b.String(), "\n\n") {
		t.Error("JSON does not end with one newline")
	}
}

func TestJSON_RoundTripsAndIsStable(t *testing.T) {
	v := samples["8"].verdict()
	var a, b bytes.Buffer
	if err := JSON(&a, v); err != nil {
		t.Fatal(err)
	}

	if err := JSON(&b, v); err != nil {
		t.Fatal(err)
	}

	if a.String() != b.String() {
		t.Fatal("two calls gave different bytes")
	}

	var back verdict.Verdict
	if err := json.Unmarshal(a.Bytes(), &back); err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff(complete(v), &back); diff != "" {
		t.Fatal(diff)
	}
}

func TestJSON_HoldsNoNaN(t *testing.T) {
	v := verdict.New("j")
	v.Coverage = math.NaN()
	v.Nodes = []verdict.Node{{Slowdown: math.Inf(1), Evidence: []verdict.Evidence{{Z: math.NaN(), Peers: math.Inf(-1)}}}}
	if err := JSON(&bytes.Buffer{}, v); err != nil {
		t.Fatalf("JSON of NaN: %v", err)
	}
}

func TestNumbers(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{seconds(17.4), "17.4 s"}, {seconds(0.412), "412 ms"}, {seconds(0.0000354), "35.4 µs"}, {seconds(0), "0 s"}, {seconds(7200), "2.00 h"}, {seconds(0.9999), "1.00 s"},
		{percent(0.491), "49%"}, {percent(0.0312), "3.1%"}, {percent(0.03), "3%"}, {percent(0.0002), "<0.1%"}, {percent(0), "0%"}, {percent(1), "100%"},
		{times(2.355), "2.35×"}, {times(1234.5), "1234×"},
		{rankList([]int{0, 4, 5, 6, 12}, 9), "0, 4–6, 12"}, {rankList([]int{1, 2}, 9), "1, 2"}, {rankList([]int{1, 3, 5}, 2), "1, 3 and 1 more"}, {rankList(nil, 3), ""},
		{grouped(8192), "8,192"}, {grouped(999), "999"}, {grouped(-1234567), "-1,234,567"},
		{count(1, "rank"), "1 rank"}, {count(2000, "step"), "2,000 steps"},
		{names([]string{"a", "b", "c"}, 5), "a, b and c"}, {plain("a\x1b[31mb\u202e"), `a\u001b[31mb\u202e`},
		{capital("its time is up"), "Its time is up"}, {capital("node-3 is slow"), "node-3 is slow"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}

// cases are verdicts of every kind, for words.
func cases() map[string]*verdict.Verdict {
	base := func() *verdict.Verdict {
		v := verdict.New("ar-job")
		v.Attempts, v.WorldSize, v.Coverage, v.Decided, v.Healthy, v.Roles = 1, 64, 0.99, true, true, "topology"
		v.Steps = verdict.Steps{First: 16, Last: 439, Analyzed: 21}
		return v
	}
	slow := verdict.Node{
		Node: "node-0", State: verdict.Degraded, Cause: verdict.Compute, Ranks: []int{0}, Devices: 2, Slowdown: 2.36, JobImpact: 0.49,
		SinceStep: 16, DetectedStep: 20, Confidence: 0.99, Evidence: []verdict.Evidence{{Metric: "fp", Rank: 0, Value: 17.4, Peers: 6.9, Z: 41.2}},
	}
	m := map[string]*verdict.Verdict{"healthy": base()}
	v := base()
	v.Nodes, v.Healthy = []verdict.Node{slow}, false
	m["degraded"] = v
	v = base()
	harmless := slow
	harmless.JobImpact = 0.004
	v.Nodes = []verdict.Node{harmless}
	m["harmless"] = v
	v = base()
	suspect := slow
	suspect.State = verdict.Suspect
	v.Nodes = []verdict.Node{suspect}
	m["suspect"] = v
	v = base()
	recovered := slow
	recovered.State, recovered.UntilStep = verdict.Recovered, 99
	v.Nodes = []verdict.Node{recovered}
	m["recovered"] = v
	v = base()
	v.Healthy = false
	v.Links = []verdict.Link{{Group: "dp-stage0", Ranks: []int{0, 4}, Nodes: []string{"node-0", "node-1"}, State: verdict.Degraded, Slowdown: 1.4, JobImpact: 0.08, SinceStep: 400}}
	m["link"] = v
	v = base()
	v.Findings = []verdict.Finding{{Kind: verdict.StageImbalance, JobImpact: 0.18, Detail: "stage 3 takes 1.62x the median stage on both replicas", Stages: []int{3}, Ratio: 1.62}}
	v.Events = []verdict.Event{{Node: "node-3", Kind: "transient", FirstStep: 210, LastStep: 222, Cause: verdict.Compute, Ranks: []int{24, 25}}}
	m["finding"] = v
	v = base()
	v.Decided, v.Healthy, v.Coverage = false, false, 0.12
	v.Findings = []verdict.Finding{{Kind: verdict.LowCoverage, Detail: "5 steps of 12 needed"}}
	m["undecided"] = v
	v = base()
	v.Healthy = false
	host := slow
	host.Node, host.Cause, host.Ranks = "node-5", verdict.HostDelay, []int{40, 44}
	v.Nodes = []verdict.Node{slow, host}
	m["two"] = v
	both := *v
	both.Healthy = true
	m["both cheap"] = &both
	v = base()
	v.Healthy = false
	wires := slow
	wires.Cause, wires.JobImpact = verdict.Communication, 0.27
	group := verdict.Link{Group: "ep0", Ranks: []int{0, 4}, Nodes: []string{"node-0", "node-1"}, State: verdict.Degraded, Slowdown: 40, JobImpact: 0.14, SinceStep: 64}
	other := group
	other.Group, other.Nodes = "ep7", []string{"node-0", "node-7"}
	v.Nodes, v.Links = []verdict.Node{wires}, []verdict.Link{group, other}
	m["wires"] = v
	v = base()
	v.Healthy = false
	unknown := slow
	unknown.JobImpact, unknown.JobImpactMax = 0, 0.3
	v.Nodes = []verdict.Node{unknown}
	m["at most"] = v
	hidden := group
	hidden.JobImpact, hidden.JobImpactMax = 0, 0.25
	m["link at most"] = &verdict.Verdict{Job: "ar-job", Decided: true, Links: []verdict.Link{hidden}, JobImpactMax: 0.25}
	inTurns := verdict.Node{Node: "node-0", State: verdict.Degraded, Cause: verdict.Unattributed, Ranks: []int{0}, Slowdown: 1, JobImpact: 0.1, SinceStep: 16}
	m["in turns"] = &verdict.Verdict{Job: "ar-job", Decided: true, Nodes: []verdict.Node{inTurns}}
	for name, all := range map[string]float64{"degraded": 0.49, "harmless": 0.004, "link": 0.08, "two": 0.62, "both cheap": 0.006, "wires": 0.27} {
		m[name].JobImpact = all
	}

	v.JobImpactMax = 0.3
	return m
}

func TestTable_SaysWhatWasDecided(t *testing.T) {
	want := map[string][]string{
		"healthy":      {"✓ HEALTHY  No node slows this job down.", "Job ar-job: 64 ranks, steps 16–439 (21 analyzed), coverage 99%."},
		"degraded":     {"● DEGRADED  node-0 slows this job down.", "Its rank 0 needs 2.36× as long as peers for computing, since step 16. It costs the job 49% of its time.", "node-0  degraded  compute", "0 (1 of 2)", "17.4 s", "6.90 s", "2.52×"},
		"harmless":     {"▲ HARMLESS  node-0 is slow, costs 0.4%.", "0.4%"},
		"both cheap":   {"▲ HARMLESS  node-0 and node-5 are slow, cost 0.6%."},
		"suspect":      {"▲ SUSPECT  No node is degraded. node-0 is under suspicion."},
		"recovered":    {"✓ HEALTHY", "node-0 is healthy again after a fault that has ended."},
		"link":         {"The network of group dp-stage0 slows this job down.", "between node-0 and node-1 take 1.40× as long", "LINK (GROUP)"},
		"finding":      {"✓ HEALTHY  No node is to blame.", "Pipeline stages are unevenly loaded. It costs the job 18% of its time.", "Stage 3 takes 1.62x", "PASSED BY ITSELF", "node-3, ranks 24, 25: slower in steps 210–222, compute"},
		"undecided":    {"? UNDECIDED  There is not enough data to decide.", "5 steps of 12 needed. Nothing is called healthy that was not measured."},
		"two":          {"● DEGRADED  2 nodes slow this job down.", "They are node-0 and node-5.", "Together they cost 62% of step time."},
		"at most":      {"It costs the job at most 30% of its time.", "≤30%"},
		"link at most": {"It costs the job at most 25% of its time.", "≤25%"},
		"in turns":     {"Its rank 0 needs longer than peers in many steps, if not in the middle of the last ones, since step 16."},
		"wires":        {"node-0 slows this job down.", "It costs the job 27% of its time. It shows in 2 slow groups.\n"},
	}
	for name, v := range cases() {
		var b bytes.Buffer
		if err := (&Printer{W: &b, Width: 160}).Table(v); err != nil {
			t.Fatal(err)
		}

		for _, text := range want[name] {
			if !strings.Contains(b.String(), text) {
				t.Errorf("table of %s lacks %q:\n%s", name, text, b.String())
			}
		}

		if strings.Contains(b.String(), "\x1b") {
			t.Errorf("table of %s has colours that were not asked for", name)
		}
	}
}

func TestTable_WithSparklinesAndColours(t *testing.T) {
	s := samples["8"]
	var b bytes.Buffer
	if err := (&Printer{W: &b, Color: true, Frame: s.frame()}).Table(s.verdict()); err != nil {
		t.Fatal(err)
	}

	if !strings.ContainsAny(b.String(), "▅▆▇█") || !strings.Contains(b.String(), "▁") || !strings.Contains(b.String(), "\x1b[31m") {
		t.Errorf("no sparkline or no colour:\n%s", b.String())
	}
}

func TestTable_ShowsControlCharactersInsteadOfSendingThem(t *testing.T) {
	v := cases()["two"]
	evil := "x\x1b]0;owned\a\u202e"
	v.Job, v.Nodes[0].Node, v.Nodes[0].Detail = evil, evil, evil
	v.Links = []verdict.Link{{Group: evil, Nodes: []string{evil}, State: verdict.Degraded, Detail: evil}}
	v.Findings = []verdict.Finding{{Kind: evil, Detail: evil}}
	v.Events = []verdict.Event{{Node: evil, Cause: evil}}
	for name, write := range map[string]func(*bytes.Buffer) error{
		"table":   func(b *bytes.Buffer) error { return (&Printer{W: b}).Table(v) },
		"explain": func(b *bytes.Buffer) error { return (&Printer{W: b}).Explain(v) },
	} {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			t.Fatal(err)
		}

		if strings.ContainsAny(b.String(), "\x1b\a\u202e") {
			t.Errorf("%s sends control characters: %q", name, b.String())
		}
	}
}

func TestExplain_GivesTheNumbers(t *testing.T) {
	s := samples["8"]
	var b bytes.Buffer
	if err := (&Printer{W: &b, Width: 1000, Frame: s.frame()}).Explain(s.verdict()); err != nil {
		t.Fatal(err)
	}

	for _, text := range []string{
		"node-2 slows this job down.", "rank 5 spends 1.12 s a step (median) on its forward passes, its peers in the same role 850 ms: 1.32×, 272 ms more (z = 41.2",
		"1 of its 2 measured ranks is slow: the others keep pace, so look at a device", "Its forward time is up", "What to do: Look at clocks", "99% of the measurements expected", "No checkpoint was recorded",
	} {
		if !strings.Contains(b.String(), text) {
			t.Errorf("explanation lacks %q:\n%s", text, b.String())
		}
	}
}

// What was read wrongly once: a save called a step, a step's own time without the excess called its
// peers', a device suspected of slow loading, and a cost that nobody knows called none.
func TestExplain_OtherCauses(t *testing.T) {
	slow := func(cause string, ranks int, e verdict.Evidence) *verdict.Verdict {
		v := verdict.New("j")
		v.Decided = true
		v.Nodes = []verdict.Node{{Node: "a", State: verdict.Degraded, Cause: cause, Ranks: []int{0, 1}[:ranks], Devices: 2, Slowdown: 2, JobImpact: 0.1, Evidence: []verdict.Evidence{e}}}
		return v
	}
	unknown := verdict.New("j")
	unknown.Decided, unknown.Healthy = true, true
	unknown.Findings = []verdict.Finding{{Kind: verdict.LowCoverage, Detail: "no Communication was recorded"}}
	torn := slow(verdict.Compute, 2, verdict.Evidence{Metric: "fp", Value: 2, Peers: 1})
	torn.Unread = &verdict.Unread{Lines: 1174, Of: 117265}
	for name, c := range map[string]struct {
		verdict     *verdict.Verdict
		want, never []string
	}{
		"a save": {slow(verdict.Checkpoint, 2, verdict.Evidence{Metric: "checkpoint", Value: 20, Peers: 10}),
			[]string{"rank 0 spends 20.0 s a save (median) on saving", "2 of its 2 measured ranks are slow."}, []string{"look at the host", "20.0 s a step"}},
		"loading": {slow(verdict.DataLoader, 1, verdict.Evidence{Metric: "step", Value: 3, Peers: 2}),
			[]string{"a step of rank 0 takes 3.00 s (median), without the excess 2.00 s", "1 of its 2 measured ranks is slow."}, []string{"look at a device", "peers in the same role"}},
		"all ranks": {torn, []string{"2 of its 2 measured ranks are slow: look at the host", "1,174 of 117,265 lines"}, nil},
		"no cost":   {unknown, []string{"Part of the job was not measured."}, []string{"loses no time"}},
	} {
		var b bytes.Buffer
		if err := (&Printer{W: &b, Width: 1000}).Explain(c.verdict); err != nil {
			t.Fatal(err)
		}

		if err := (&Printer{W: &b, Width: 1000}).Table(c.verdict); err != nil {
			t.Fatal(err)
		}

		for _, w := range c.want {
			if !strings.Contains(b.String(), w) {
				t.Errorf("%s lacks %q:\n%s", name, w, b.String())
			}
		}

		for _, w := range c.never {
			if strings.Contains(b.String(), w) {
				t.Errorf("%s says %q:\n%s", name, w, b.String())
			}
		}
	}
}

// The map shows first what tells the culprit, never the step time that is alike on all ranks.
func TestPicture_StepIsNoLayerOfEvidence(t *testing.T) {
	s := samples["8"]
	p := s.picture()
	v := s.verdict()
	v.Nodes[0].Evidence = append([]verdict.Evidence{{Metric: "step", Rank: v.Nodes[0].Ranks[0], Value: 3, Peers: 2}}, v.Nodes[0].Evidence...)
	if got := p.layers(v)[0].Name; got == "Step" {
		t.Errorf("the first layer is %q", got)
	}

	for _, c := range chartsOf(v, p) {
		if c.Metric == "step" {
			t.Error("the step is a chart of its own")
		}
	}
}

// The slowest ranks are those since the suspicion began, not over all steps before.
func TestOnset_OfASuspect(t *testing.T) {
	s := samples["8"]
	v := s.verdict()
	want := onset(v, s.picture())
	if want == 0 {
		t.Fatal("the sample's culprit is slow from the start")
	}

	v.Nodes = v.Nodes[:1]
	v.Nodes[0].State, v.Links = verdict.Suspect, nil
	if got := onset(v, s.picture()); got != want {
		t.Errorf("onset of a suspect in column %d, want %d", got, want)
	}
}

func TestQuantise_KeepsRatios(t *testing.T) {
	for _, v := range []float64{0.2, 0.5, 0.9, 0.99, 1, 1.01, 1.05, 1.1, 1.5, 2.36, 5, 19} {
		got := math.Exp(ratioLevels[quantise(math.Log(v), ratioLevels)])
		if math.Abs(got/v-1) > 0.06 || math.Abs(v-1) < 0.2 && math.Abs(got/v-1) > 0.004 {
			t.Errorf("ratio %g comes back as %g", v, got)
		}
	}

	if quantise(math.NaN(), ratioLevels) != 0 || quantise(math.Log(-1), ratioLevels) != 0 || quantise(math.NaN(), shareLevels) != 0 {
		t.Error("what was not measured is not code 0")
	}

	if quantise(math.Log(1e9), ratioLevels) != 255 || quantise(math.Log(1e-9), ratioLevels) != 1 || quantise(2, shareLevels) != 255 || quantise(-1, shareLevels) != 1 {
		t.Error("values beyond the ends are not at the ends")
	}
}

func TestPicture_RelativeWithFewPeers(t *testing.T) {
	l := &frame.Layout{Present: []bool{true, true, true}, Node: []int32{-1, -1, -1}, Role: []int32{0, 0, 1}, Replica: []int32{0, 1, 0}, Roles: []frame.Role{{Rows: []int32{0, 1}}, {Rows: []int32{2}}}}
	f := &frame.Frame{Ranks: []int{0, 1, 2}}
	for step, values := range [][]float32{{1, 2, 3}, {2, 2, 6}} {
		c := &frame.Column{Step: int64(step), Layout: l}
		c.V[frame.FP] = values
		f.Add(c, Drawn)
	}

	p := pictureOf(f)
	got := p.relative(frame.FP, p.drawn...)
	want := []float32{1, 1, 2, 1, 3 / 4.5, 6 / 4.5}
	for i := range want {
		if math.Abs(float64(got[i/2][i%2]-want[i])) > 1e-6 {
			t.Fatalf("relative = %v, want %v", got, want)
		}

		if row := p.relative(frame.FP, rank{row: i / 2})[i/2]; row[i%2] != got[i/2][i%2] {
			t.Fatalf("relative of row %d alone = %v, want as in %v", i/2, row, got)
		}
	}
}

func TestQuantile(t *testing.T) {
	for _, c := range []struct {
		x       []float64
		q, want float64
	}{
		{[]float64{7}, 0.9, 7},
		{[]float64{4, 1, 3, 2}, 0, 1},
		{[]float64{4, 1, 3, 2}, 0.5, 2.5},
		{[]float64{4, 1, 3, 2}, 1, 4},
		{[]float64{5, 1, 4, 2, 3}, 0.5, 3},
		{[]float64{5, 1, 4, 2, 3}, 0.9, 4.6},
		{[]float64{2, 9, 2, 2}, 0.5, 2},
	} {
		if got := quantile(slices.Clone(c.x), c.q); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("quantile(%v, %g) = %g, want %g", c.x, c.q, got, c.want)
		}
	}

	if !math.IsNaN(median(nil)) {
		t.Error("median of nothing is a number")
	}
}

// TestEventSentence: the plural is that of the ranks, whatever a node is called.
func TestEventSentence(t *testing.T) {
	for _, c := range []struct {
		e    verdict.Event
		want string
	}{
		{verdict.Event{FirstStep: 3, LastStep: 3, Cause: verdict.Compute}, "the job: slower in step 3, compute"},
		{verdict.Event{Node: "n1", Ranks: []int{2}, FirstStep: 3, LastStep: 5, Cause: verdict.Compute}, "n1, rank 2: slower in steps 3–5, compute"},
		{verdict.Event{Node: "rack 1, rank 7", Ranks: []int{2, 4}, FirstStep: 3, LastStep: 5, Cause: verdict.Compute}, "rack 1, rank 7, ranks 2, 4: slower in steps 3–5, compute"},
	} {
		if got := eventSentence(c.e); got != c.want {
			t.Errorf("eventSentence(%+v) = %q, want %q", c.e, got, c.want)
		}
	}
}
