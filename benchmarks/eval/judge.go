package main

import (
	"errors"
	"fmt"
	"slices"

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

// String names the case such that -scenario and -seed (and -trace) replay it.
func (t task) String() string {
	s := fmt.Sprintf("%s seed %d", t.scenario, t.seed)
	if t.trace != nil {
		s += " on " + t.trace.Name
	}

	if t.world > 0 {
		s += fmt.Sprintf(" with %d ranks", t.world)
	}

	return s
}

// outcome is what came of one case.
type outcome struct {
	task
	truth   simulate.Truth
	verdict *verdict.Verdict

	positive bool // something is wrong with a node or a link
	hit      int  // culprit nodes named
	missed   int
	victims  []string // nodes named that are none
	cause    int      // culprits named with an accepted cause
	delays   []int    // steps from the onset to detection, of culprits named
	links    int      // slow groups found
	wrong    []string // groups named that are none
	findings int      // of the truth's, found
	others   []string // kinds found that the truth doesn't name
	events   int      // of the truth's, found
	blinking bool     // a culprit is called intermittent
	abstain  bool     // not decided
	hours    float64  // node-hours
	ranks    int
	exact    bool // what is recorded tells the cost, not bounds of it alone

	// What the oracle makes of the case, where it was asked.
	provable, asked bool

	rules []ruled // the anchors on the same case
	same  bool    // pairs: the twin's verdict is the same
	// Of the twin: culprits named and missed.
	twinHit, twinMissed int
}

// ruled is what an anchor's rule did.
type ruled struct{ hit, missed, victims int }

// run simulates a case, analyzes and scores it.
func (t task) run() (*outcome, error) {
	cfg, err := t.config()
	if err != nil {
		return nil, err
	}

	return t.play(cfg, nil)
}

// play runs one configuration; s is nil or prepared by the caller.
func (t task) play(cfg simulate.Config, s *sheet) (*outcome, error) {
	if s == nil {
		s = &sheet{}
	}

	truth, err := simulate.Run(cfg, s)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", t, err)
	}

	f, v, err := judge(&s.History, nil)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", t, err)
	}

	o := &outcome{task: t, truth: truth, verdict: v, ranks: cfg.Shape.World()}
	if row, _ := simulate.Row(t.scenario); f != nil && !s.plain {
		o.ask(f, bounded[row])
	}

	o.hours = float64(len(truth.SlowNodes)+len(truth.MustNotFlag)) * truth.Seconds * float64(cfg.Steps) / 3600
	o.score()
	if !s.plain {
		for _, r := range rules {
			o.rules = append(o.rules, o.against(r.find(s)))
		}
	}

	return o, nil
}

// judge is the way from rows to a verdict; t is the topology file, nil for none. The
// frame is nil where there was nothing to build one of.
func judge(b *feed.History, t *topology.File) (*frame.Frame, *verdict.Verdict, error) {
	f, err := b.Frame(t)
	if errors.Is(err, feed.ErrEmpty) {
		return nil, verdict.New(""), nil
	}

	if err != nil {
		return nil, nil, fmt.Errorf("build frame: %w", err)
	}

	return f, detector(f), nil
}

// named are the states in which a node counts as accused.
var named = []string{verdict.Degraded, verdict.Intermittent, verdict.Recovered}

// score compares the verdict with the truth.
func (o *outcome) score() {
	v, t := o.verdict, &o.truth
	o.positive = len(t.SlowNodes)+len(t.Links) > 0
	o.abstain = !v.Decided
	found := map[string]bool{}
	for _, n := range v.Nodes {
		switch {
		case !slices.Contains(named, n.State):
		case !slices.Contains(t.SlowNodes, n.Node):
			o.victims = append(o.victims, n.Node+" "+n.State+" "+n.Cause)
		case !found[n.Node]:
			found[n.Node] = true
			o.hit++
			c := t.Culprit(n.Node)
			if slices.Contains(t.Cause, n.Cause) && (c == nil || slices.Contains(c.Cause, n.Cause)) {
				o.cause++
			}

			if c != nil {
				o.delays = append(o.delays, max(0, int(n.DetectedStep)-c.OnsetStep+1))
			}

			o.blinking = o.blinking || n.State == verdict.Intermittent
		}
	}

	o.missed = len(t.SlowNodes) - o.hit
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

// against scores a set of nodes that a rule named.
func (o *outcome) against(nodes map[string]bool) ruled {
	var r ruled
	for n := range nodes {
		if slices.Contains(o.truth.SlowNodes, n) {
			r.hit++
		} else {
			r.victims++
		}
	}

	r.missed = len(o.truth.SlowNodes) - r.hit
	return r
}

// wrongNode reports whether anybody was accused who did nothing.
func (o *outcome) wrongNode() bool { return len(o.victims) > 0 }
