package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/laggard-dev/laggard/analyzer/simulate"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// familyJobs is how many jobs of each family are judged: all variants of each.
const familyJobs = 15

// family is the account of one family of jobs.
type family struct {
	name        string
	jobs        int
	undecidable int // jobs that nobody can decide: exact there is exit code 4 and nobody named
	exact       int // jobs of which exactly the culprits are named
	victims     int // nodes and links accused that are innocent
	replayed    int
	named       int // culprits named
	cause       int // of them with an accepted cause
	costs       []float64
	unknown     int // costs of jobs whose groups aren't known
	bounded     int // of them not above what the verdict says at most
	delays      []int
	failures    []failure
}

// runFamilies judges n jobs of each family, some at a time. Every fourth job of a
// family that can be replayed runs on one of the recorded jobs.
func runFamilies(ctx context.Context, names []string, n int, seed uint64, parallel int, traces []*simulate.Trace, progress func(done, total int)) ([]*family, error) {
	var out []*family
	var mu sync.Mutex
	done := 0
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(max(1, parallel))
	for _, name := range names {
		f := &family{name: name}
		out = append(out, f)
		for k := range n {
			g.Go(func() error {
				if ctx.Err() != nil {
					return ctx.Err()
				}

				t := task{scenario: name, seed: seed + uint64(k)}
				if k%4 == 3 && len(traces) > 0 && simulate.Replayable(name) {
					t.trace = traces[k/4%len(traces)]
				}

				o, err := t.weighed()
				if err != nil {
					return err
				}

				mu.Lock()
				defer mu.Unlock()
				f.add(o)
				if done++; progress != nil {
					progress(done, n*len(names))
				}

				return nil
			})
		}
	}

	err := g.Wait()
	for _, f := range out {
		f.sort()
	}

	return out, err
}

// weighed plays and judges a case with its topology file, as analyze would, and
// weighs what its culprits cost.
func (t task) weighed() (*outcome, error) {
	cfg, err := t.config()
	if err != nil {
		return nil, err
	}

	s := &sheet{plain: true}
	truth, err := simulate.Run(cfg, s)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", t, err)
	}

	if err := truth.Weigh(cfg); err != nil {
		return nil, fmt.Errorf("%v: weigh: %w", t, err)
	}

	_, v, err := judge(&s.History, simulate.Topology(cfg))
	if err != nil {
		return nil, fmt.Errorf("%v: %w", t, err)
	}

	o := &outcome{task: t, truth: truth, verdict: v, ranks: cfg.Shape.World(), exact: tellsWaits(&cfg)}
	o.score()
	return o, nil
}

// tellsWaits reports whether a job records who waits for whom, and for how long, in all
// its attempts: then its cost can be known.
func tellsWaits(cfg *simulate.Config) bool {
	r := &cfg.Record
	return !slices.Contains(r.Off, "Communication") && (!r.NoGroups || !r.NoTopology && len(cfg.Restarts) == 0)
}

// add judges one outcome.
func (f *family) add(o *outcome) {
	wrong := o.inexact()
	f.jobs++
	f.replayed += count(o.trace != nil)
	f.exact += count(len(wrong) == 0)
	f.undecidable += count(slices.Equal(o.truth.ExpectExit, []int{verdict.ExitUndecided}))
	f.victims += len(o.victims) + len(o.wrong)
	f.named, f.cause = f.named+o.hit, f.cause+o.cause
	f.delays = append(f.delays, o.delays...)
	for _, c := range o.costs() {
		if c.known {
			f.costs = append(f.costs, c.off())
			if c.off() > costWorst {
				wrong = append(wrong, fmt.Sprintf("cost of %s: %.4f for %.4f", c.who, c.stated, c.truth))
			}

			continue
		}

		f.unknown++
		if c.truth <= c.most+1e-9 {
			f.bounded++
		} else {
			wrong = append(wrong, fmt.Sprintf("cost of %s: at most %.4f for %.4f", c.who, c.most, c.truth))
		}
	}

	if o.hit > o.cause {
		wrong = append(wrong, fmt.Sprintf("cause %s, want %v", o.causes(), o.truth.Cause))
	}

	if len(wrong) > 0 {
		f.failures = append(f.failures, failure{o.task, wrong})
	}
}

// inexact says in what the named nodes and links differ from the culprits, nothing
// where they are exactly those. It asks the verdict's nodes, not the exit code.
func (o *outcome) inexact() []string {
	var out []string
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	v, t := o.verdict, &o.truth
	if o.alarms() > 0 {
		say("falsely accused: %s", strings.Join(append(slices.Clone(o.victims), o.wrong...), ", "))
	}

	if v.Decided && slices.Equal(t.ExpectExit, []int{verdict.ExitUndecided}) {
		say("decided, though nobody can")
	}

	if !v.Decided && !slices.Contains(t.ExpectExit, verdict.ExitUndecided) {
		say("undecided")
	}

	for i := range t.Culprits {
		c := &t.Culprits[i]
		state := stateOf(v, c)
		switch {
		case c.Undecidable && slices.Contains(named, state):
			say("%s%s named, though nobody can know", c.Node, c.Link)
		case c.Undecidable:
		case state == verdict.Degraded || state == verdict.Intermittent:
		case state == verdict.Recovered && c.UntilStep > 0:
		case state == "":
			say("missed %s%s (ranks %v)", c.Node, c.Link, c.Ranks)
		default:
			say("%s%s is called %s", c.Node, c.Link, state)
		}
	}

	if o.events < len(t.Events) {
		say("event missing on %s", t.Events[0].Node)
	}

	return out
}

func (o *outcome) alarms() int { return len(o.victims) + len(o.wrong) }

// stateOf is the state in which a verdict names a culprit, "" where it doesn't.
func stateOf(v *verdict.Verdict, c *simulate.Culprit) string {
	for _, n := range v.Nodes {
		if n.Node == c.Node && c.Node != "" {
			return n.State
		}
	}

	for _, l := range v.Links {
		if l.Group == c.Link && c.Link != "" {
			return l.State
		}
	}

	return ""
}

// cost is what a verdict says that a culprit costs, beside the truth.
type cost struct {
	who                 string
	stated, most, truth float64
	known               bool // it can be known, or the verdict says that it is: stated is no bound
}

// off is the relative error of a cost; what is below 2 % counts as 2 %.
func (c cost) off() float64 { return math.Abs(c.stated-c.truth) / max(0.02, c.truth) }

// costs compares the costs of the culprits that are named, and of all together where
// all are. They are read from the verdict's JSON, as its users do.
func (o *outcome) costs() []cost {
	type impact struct {
		Node string   `json:"node"`
		Link string   `json:"group"`
		Cost *float64 `json:"job_impact"`
		Most *float64 `json:"job_impact_max"`
	}
	var v struct {
		impact
		Nodes []impact `json:"nodes"`
		Links []impact `json:"links"`
	}
	b, err := json.Marshal(o.verdict)
	if err == nil {
		err = json.Unmarshal(b, &v)
	}

	if err != nil {
		panic("BUG: a verdict's JSON can't be read: " + err.Error())
	}

	var out []cost
	add := func(who string, x impact, truth float64) {
		c := cost{who: who, stated: *x.Cost, most: *x.Cost, truth: truth, known: o.exact || x.Most == nil}
		if x.Most != nil {
			c.most = *x.Most
		}

		out = append(out, c)
	}
	for i := range o.truth.Culprits {
		c := &o.truth.Culprits[i]
		for _, x := range append(v.Nodes, v.Links...) {
			if x.Node == c.Node && x.Link == c.Link && slices.Contains(named, stateOf(o.verdict, c)) {
				add(c.Node+c.Link, x, c.Impact)
			}
		}
	}

	if v.Cost != nil && len(out) > 1 && len(out) == len(o.truth.Culprits) {
		add("all", v.impact, o.truth.Impact)
	}

	return out
}
