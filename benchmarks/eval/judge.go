package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/laggard-dev/laggard/analyzer/detect"
	"github.com/laggard-dev/laggard/analyzer/feed"
	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/analyzer/simulate"
	"github.com/laggard-dev/laggard/schemas/topology"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// task is one case: a scenario, a seed, and now and then a recorded job below it.
type task struct {
	scenario string
	seed     uint64
	trace    *simulate.Trace // nil = synthetic
	world    int             // about how many ranks; 0 = as the scenario draws
	noise    string          // of the healthy hours whose job it is; "" = a case
}

// config makes the job of a case.
func (t task) config() (simulate.Config, error) {
	switch {
	case t.trace != nil:
		return simulate.Replayed(t.scenario, t.seed, t.trace)
	case t.world > 0:
		return simulate.Sized(t.scenario, t.seed, t.world)
	}

	return simulate.Scenario(t.scenario, t.seed)
}

// row is the scenario's number in the suite's table.
func (t task) row() int {
	row, _ := simulate.Row(t.scenario)
	return row
}

// family reports whether the case is one of a family of jobs.
func (t task) family() bool { return slices.Contains(simulate.Families(), t.scenario) }

// String is the command that replays the case.
func (t task) String() string {
	if t.noise != "" {
		return fmt.Sprintf("go run ./benchmarks/eval -healthy %q -seed %d -v", t.noise, t.seed)
	}

	s := fmt.Sprintf("go run ./benchmarks/eval -scenario %s -seed %d -v", t.scenario, t.seed)
	if t.trace != nil {
		s += " -trace " + t.trace.Name
	}

	if t.world > 0 {
		s += fmt.Sprintf(" -world %d", t.world)
	}

	return s
}

// outcome is what came of one case.
type outcome struct {
	task
	truth   simulate.Truth
	verdict *verdict.Verdict
	ranks   int
	steps   int

	hit          int      // culprit nodes named
	victims      []string // nodes named that are none
	cause        int      // culprits named with an accepted cause
	delays       []int    // steps from the onset to detection, of culprits named
	links        int      // slow groups found
	wrong        []string // groups named that are none
	findings     int      // of the truth's, found
	others       []string // kinds found that the truth doesn't name
	events       int      // of the truth's, found
	intermittent bool     // a culprit is called so

	provable, asked bool              // by the oracle; whether it was asked
	rules           []map[string]bool // the nodes that each of the other tools' rules names
	twin            *outcome          // the same job with right clocks and all rows, of rows 17 and 18; else nil
	tellsWaits      bool              // what is recorded tells the cost, not bounds of it alone
}

// judged plays and judges a case: a scenario's without its topology file, a family's with
// it, as analyze would, where what its culprits cost is weighed, too.
func (t task) judged() (*outcome, error) {
	cfg, err := t.config()
	if err != nil {
		return nil, err
	}

	if t.family() {
		o, _, err := t.play(cfg, simulate.Topology(cfg))
		if err != nil {
			return nil, err
		}

		o.tellsWaits = tellsWaits(&cfg)
		if err := o.truth.Weigh(cfg); err != nil {
			return nil, fmt.Errorf("%v: weigh: %w", t, err)
		}

		return o, nil
	}

	o, f, err := t.play(cfg, nil)
	if err != nil {
		return nil, err
	}

	o.ask(f, limits[o.row()])
	for _, r := range rules {
		o.rules = append(o.rules, r.find(f))
	}

	if o.row() == 17 || o.row() == 18 { // with right clocks, with nothing missing
		cfg.Clock, cfg.Loss = simulate.Clock{}, simulate.Loss{Run: 1}
		o.twin, _, err = t.play(cfg, nil)
	}

	return o, err
}

// play judges one configuration, with a topology file or without.
func (t task) play(cfg simulate.Config, file *topology.File) (*outcome, *frame.Frame, error) {
	var rows feed.History
	truth, err := simulate.Run(cfg, rows.Add)
	if err != nil {
		return nil, nil, fmt.Errorf("%v: %w", t, err)
	}

	f, v, err := judge(&rows, file)
	if err != nil {
		return nil, nil, fmt.Errorf("%v: %w", t, err)
	}

	o := &outcome{task: t, truth: truth, verdict: v, ranks: cfg.Shape.World(), steps: cfg.Steps}
	o.score()
	return o, f, nil
}

// tellsWaits reports whether a job records who waits for whom, and for how long, in all
// its attempts: then its cost can be known.
func tellsWaits(cfg *simulate.Config) bool {
	r := &cfg.Record
	return !slices.Contains(r.Off, "Communication") && (!r.NoGroups || !r.NoTopology && len(cfg.Restarts) == 0)
}

// judge is the way from rows to a verdict, with the thresholds that the detector comes with;
// t is the topology file, nil for none. The frame is empty where there was nothing to build one of.
func judge(b *feed.History, t *topology.File) (*frame.Frame, *verdict.Verdict, error) {
	f, err := b.Frame(t)
	if errors.Is(err, feed.ErrEmpty) {
		return &frame.Frame{}, verdict.New(""), nil
	}

	if err != nil {
		return nil, nil, fmt.Errorf("build frame: %w", err)
	}

	return f, detect.Analyze(f, detect.Default()), nil
}

// named are the states in which a node counts as accused. A suspect is not: it asks for more steps.
var named = []string{verdict.Degraded, verdict.Intermittent, verdict.Recovered}

// score compares the verdict with the truth. A fault that is seen in its first step is detected after
// one step.
func (o *outcome) score() {
	v, t := o.verdict, &o.truth
	for _, n := range v.Nodes {
		switch {
		case !slices.Contains(named, n.State):
		case !slices.Contains(t.SlowNodes, n.Node):
			o.victims = append(o.victims, n.Node+" "+n.State+" "+n.Cause)
		default:
			o.hit++
			c := t.Culprit(n.Node)
			if slices.Contains(t.Cause, n.Cause) && (c == nil || slices.Contains(c.Cause, n.Cause)) {
				o.cause++
			}

			if c != nil {
				o.delays = append(o.delays, max(0, int(n.DetectedStep)-c.OnsetStep+1))
			}

			o.intermittent = o.intermittent || n.State == verdict.Intermittent
		}
	}

	for _, l := range v.Links {
		switch {
		case !slices.Contains(named, l.State):
		case slices.Contains(t.Links, l.Group):
			o.links++
		default:
			o.wrong = append(o.wrong, l.Group)
		}
	}

	for _, f := range v.Findings {
		if slices.Contains(t.Findings, f.Kind) {
			o.findings++
		} else {
			o.others = append(o.others, f.Kind)
		}
	}

	for _, e := range t.Events {
		if slices.ContainsFunc(v.Events, func(x verdict.Event) bool { return x.Node == e.Node }) {
			o.events++
		}
	}
}

// essence is what two verdicts on the same job must share: who, what, why.
func essence(v *verdict.Verdict) []string {
	var out []string
	for _, n := range v.Nodes {
		out = append(out, fmt.Sprintf("node %s %s %s %v", n.Node, n.State, n.Cause, n.Ranks))
	}

	for _, l := range v.Links {
		out = append(out, fmt.Sprintf("link %s %s", l.Group, l.State))
	}

	for _, f := range v.Findings {
		out = append(out, fmt.Sprintf("finding %s %v", f.Kind, f.Stages))
	}

	for _, e := range v.Events {
		out = append(out, fmt.Sprintf("event %s %s", e.Node, e.Kind))
	}

	slices.Sort(out)
	return append(out, fmt.Sprint(v.Decided))
}
