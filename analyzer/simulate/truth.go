package simulate

import (
	"slices"

	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// Truth is the answer that a right verdict gives, in the schema of the labelled
// traces (truth.json).
type Truth struct {
	Name        string   `json:"name"`
	SlowNodes   []string `json:"slow_nodes"`
	SlowRanks   []int    `json:"slow_ranks"` // in the last attempt
	Cause       []string `json:"cause"`      // accepted causes
	Links       []string `json:"links"`      // groups
	Findings    []string `json:"findings"`   // kinds that must be there
	Events      []Event  `json:"events"`
	MustNotFlag []string `json:"must_not_flag"` // nodes
	OnsetStep   *int     `json:"onset_step"`    // number of the step; null = no fault
	ExpectExit  []int    `json:"expect_exit"`

	Culprits []Culprit `json:"culprits,omitempty"` // slow nodes and links one by one

	Seed     uint64  `json:"seed"`
	Scenario string  `json:"scenario"`
	Seconds  float64 `json:"seconds"` // mean step time
	Impact   float64 `json:"impact"`  // share of step time lost to all culprits since the first one's onset
}

// Culprit is a node, or a link, with a fault that began within the job.
type Culprit struct {
	Node      string   `json:"node,omitempty"`
	Link      string   `json:"link,omitempty"` // a group
	Ranks     []int    `json:"ranks"`          // in the last attempt
	Cause     []string `json:"cause"`          // accepted causes
	OnsetStep int      `json:"onset_step"`
	UntilStep int      `json:"until_step,omitempty"` // first step without the fault; 0 = it lasts
	Comes     bool     `json:"comes_and_goes,omitempty"`
	// Undecidable: with what is recorded nobody can tell it from its only peer.
	Undecidable bool `json:"undecidable,omitempty"`
	// Impact is the share of step time that the job would save without it, from its
	// onset to its end.
	Impact float64 `json:"impact"`

	faults      []int // indexes
	first, last int   // executed steps from its onset to its end
}

// Event is a problem that passes.
type Event struct {
	Node  string `json:"node"`
	Kind  string `json:"kind"`
	Ranks []int  `json:"ranks"`
}

// truth sums up what was wrong.
func (j *job) truth() Truth {
	t := Truth{
		Name: j.cfg.Job, Seed: j.cfg.Seed, Scenario: j.cfg.Scenario, SlowNodes: []string{}, SlowRanks: []int{}, Cause: []string{},
		Links: []string{}, Findings: append([]string{}, j.cfg.Expect.Findings...), Events: []Event{}, MustNotFlag: []string{},
		ExpectExit: j.cfg.Expect.Exit, Seconds: j.elapsed / 1e9 / float64(max(1, j.cfg.Steps)),
	}
	for k := range j.effects {
		if e := &j.effects[k]; e.onset >= 0 {
			e.tell(j, k, &t)
			if t.OnsetStep == nil || e.onset < *t.OnsetStep {
				t.OnsetStep = &e.onset
			}
		}
	}

	slices.Sort(t.SlowRanks)
	t.SlowRanks = slices.Compact(t.SlowRanks)
	for _, h := range j.hosts {
		if !slices.Contains(t.SlowNodes, h.name) {
			t.MustNotFlag = append(t.MustNotFlag, h.name)
		}
	}

	if len(t.ExpectExit) == 0 || len(t.SlowNodes)+len(t.Links) == 0 && slices.Contains(t.ExpectExit, verdict.ExitDegraded) {
		t.ExpectExit = []int{verdict.ExitHealthy}
		if len(t.SlowNodes)+len(t.Links) > 0 {
			t.ExpectExit = []int{verdict.ExitDegraded}
		}
	}

	if slices.ContainsFunc(t.Culprits, func(c Culprit) bool { return c.Undecidable }) {
		t.ExpectExit = []int{verdict.ExitUndecided}
	}

	return t
}

// tell adds the k-th fault to the truth.
func (e *effect) tell(j *job, k int, t *Truth) {
	node := j.hosts[e.Node].name
	switch {
	case e.Kind == Job:
		t.Findings = union(t.Findings, verdict.JobSlow)
	case e.Kind == Link:
		t.Links = union(t.Links, e.Group)
		e.accuse(j, k, t, Culprit{Link: e.Group, Ranks: j.lay.ranksOf(e.group), Cause: []string{verdict.Communication}, Undecidable: j.undecidable(e)})
	case j.cfg.Expect.Event:
		t.Events = append(t.Events, Event{Node: node, Kind: "transient", Ranks: e.ranks})
	default:
		t.SlowNodes = union(t.SlowNodes, node)
		t.SlowRanks = append(t.SlowRanks, e.ranks...)
		// Where experts exchange tokens within a forward pass, one range of all that exchange is
		// as long as another: what happens in it can't be told from what happens before it.
		cause := kinds[e.Kind].causes
		if j.lay.shape.EP > 1 && e.computes() {
			cause = union(slices.Clone(cause), verdict.Compute, verdict.HostDelay)
		}

		t.Cause = union(t.Cause, cause...)
		if e.Kind == NIC {
			t.Links = union(t.Links, j.lay.between(e.Node)...)
		}

		e.accuse(j, k, t, Culprit{Node: node, Ranks: e.ranks, Cause: cause, Undecidable: j.undecidable(e)})
	}
}

// accuse adds a culprit, or a further fault of one: it is slow from the first onset to the last
// end, and undecidable only where all of its faults are.
func (e *effect) accuse(j *job, k int, t *Truth, c Culprit) {
	c.OnsetStep, c.first, c.last, c.faults, c.Comes = e.onset, e.first, j.cfg.Steps, []int{k}, e.bursts != nil
	if e.until >= 0 {
		c.UntilStep, c.last = e.until, e.To
	}

	for i := range t.Culprits {
		x := &t.Culprits[i]
		if x.Node != c.Node || x.Link != c.Link {
			continue
		}

		x.Ranks, x.Cause, x.faults = union(x.Ranks, c.Ranks...), union(slices.Clone(x.Cause), c.Cause...), append(x.faults, k)
		x.OnsetStep, x.first = min(x.OnsetStep, c.OnsetStep), min(x.first, c.first)
		x.Comes, x.Undecidable = x.Comes || c.Comes, x.Undecidable && c.Undecidable
		if x.last = max(x.last, c.last); x.last == j.cfg.Steps {
			x.UntilStep = 0
		}

		return
	}

	t.Culprits = append(t.Culprits, c)
}

// enoughPast is the number of healthy steps of its own that tell a rank from its
// only peer: the first ones of a process count as warm-up.
const enoughPast = 20

// undecidable reports whether nobody can name the culprit from what is recorded: it
// has one peer at most and hardly a past, or it shows in no range, or ranks of other nodes
// wait for it inside their forward passes and nothing tells waiting from working. A slow network must be told from
// that of any other node, and one link without a past from more than two other groups.
func (j *job) undecidable(e *effect) bool {
	if e.Kind == Link {
		return e.past < enoughPast && j.lay.alike(e.group) <= 2
	}

	if e.Kind == NIC {
		return j.off[record.Communication] || !j.lay.ownNetwork(e.Node)
	}

	if e.computes() && j.off[record.Communication] && (j.cfg.Record.Enqueued || j.metAcross(e.ranks)) {
		return true
	}

	if e.past >= enoughPast {
		return false
	}

	for _, i := range e.ranks {
		peers := 0
		for _, p := range j.lay.stages[j.lay.at[i].p] {
			if j.faulty(&j.lay.at[p]) || j.r[p].absent || e.Kind == DataLoader && !j.loads(p) {
				continue
			}

			peers++
		}

		if peers > 1 {
			return false
		}
	}

	return true
}

// metAcross reports whether ranks of other nodes wait for those in every forward pass, as long
// as they take. Context and expert groups meet in its first part.
func (j *job) metAcross(ranks []int) bool {
	inner := []int{dimTP, dimCP, dimEP}
	if j.lay.shape.TP > 1 {
		inner = inner[:1]
	}

	return slices.ContainsFunc(ranks, func(i int) bool {
		return slices.ContainsFunc(inner, func(dim int) bool {
			g := j.lay.at[i].groups[dim]
			return g >= 0 && j.lay.groups[g].wide
		})
	})
}

// ranksOf returns the ranks of a group, none for one that is gone.
func (l *layout) ranksOf(group int) []int {
	if group < 0 {
		return []int{}
	}

	return l.groups[group].ranks
}

// between returns the names of the groups between hosts that have ranks on one. That of all
// ranks is left out: it would be among them on every host.
func (l *layout) between(host int) []string {
	return l.wideNames(func(g *group) bool {
		return g.dim != dimWorld && slices.ContainsFunc(g.ranks, func(i int) bool { return l.at[i].host == host })
	})
}

// hostsOf is the hosts that the ranks of a group are on.
func (l *layout) hostsOf(g *group) (hosts []int) {
	for _, r := range g.ranks {
		hosts = union(hosts, l.at[r].host)
	}

	return hosts
}

// alike is how many other groups should be as fast as one: as many ranks of the same dimension on as many hosts.
func (l *layout) alike(at int) (n int) {
	g := &l.groups[at]
	for i := range l.groups {
		o := &l.groups[i]
		if i != at && o.dim == g.dim && len(o.ranks) == len(g.ranks) && len(l.hostsOf(o)) == len(l.hostsOf(g)) {
			n++
		}
	}

	return n
}

// ownNetwork reports whether the network of a host can be told from that of any other: the groups on several hosts
// that it is in, and the hosts that its pipelines send to and receive from, have no other host in common.
func (l *layout) ownNetwork(host int) bool {
	like := slices.DeleteFunc(slices.Clone(l.hosts), func(h int) bool { return h == host })
	with := func(hosts ...int) {
		like = slices.DeleteFunc(like, func(h int) bool { return !slices.Contains(hosts, h) })
	}

	for i := range l.groups {
		g := &l.groups[i]
		hosts := l.hostsOf(g)
		if g.wide && g.dim != dimPP && g.dim < dimEmbd && slices.Contains(hosts, host) {
			with(hosts...)
		}
	}

	for _, a := range l.at {
		for _, p := range []int{a.p - 1, a.p + 1} {
			if a.host != host || p < 0 || p >= l.shape.PP {
				continue
			}

			if h := l.at[l.rank(a.t, a.c, a.d, p)].host; h != host {
				with(h)
			}
		}
	}

	return len(like) == 0
}

// Culprit returns the culprit on a node, nil where nothing is wrong with it.
func (t *Truth) Culprit(node string) *Culprit {
	for i := range t.Culprits {
		if c := &t.Culprits[i]; c.Node == node && node != "" {
			return c
		}
	}

	return nil
}

func union[T comparable](to []T, words ...T) []T {
	for _, w := range words {
		if !slices.Contains(to, w) {
			to = append(to, w)
		}
	}

	return to
}
