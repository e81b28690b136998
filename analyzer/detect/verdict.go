package detect

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/laggard-dev/laggard/analyzer/detect/link"
	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// Verdict returns the decision on what was observed so far. It changes nothing:
// call it as often as you like.
func (e *Engine) Verdict() *verdict.Verdict {
	v := verdict.New(e.job)
	if e.layout == nil {
		low(v, "no step was recorded")
		return v
	}

	v.Attempts, v.WorldSize, v.Roles = e.attempts, e.worldSize, e.layout.From
	if v.WorldSize == 0 {
		v.WorldSize, v.WorldSizeFrom = e.world(), verdict.FromRanks
	}

	v.Steps = verdict.Steps{First: e.firstStep, Last: e.lastStep, Analyzed: e.columns - e.quarantined}
	if e.expected > 0 {
		v.Coverage = round4(min(1, float64(e.measured)/float64(e.expected+e.off)))
	}

	all := e.candidates()
	culprits, common := e.accuse(all)
	e.fillNodes(v, culprits)
	e.fillLinks(v)
	e.fillCosts(v, culprits, common.mates)
	e.fillEvents(v)
	e.addHalves(v, &common)
	e.fillFindings(v, &common)
	e.fillTimes(v)
	e.decide(v, &common)
	v.Healthy = v.Exit(e.cfg.MinImpact) == verdict.ExitHealthy
	return v
}

// nodes are a verdict's entries by the node's name.
type nodes map[string]*verdict.Node

// of returns the node's entry, a new one where there is none.
func (all nodes) of(name string) *verdict.Node {
	if all[name] == nil {
		all[name] = &verdict.Node{Node: name, Evidence: []verdict.Evidence{}, Ranks: []int{}}
	}

	return all[name]
}

// repeat enters what was said of a node before.
func (all nodes) repeat(said verdict.Node) *verdict.Node {
	n := all.of(said.Node)
	said.Ranks, said.Evidence = append(n.Ranks, said.Ranks...), append(n.Evidence, said.Evidence...)
	*n = said
	return n
}

// fillNodes makes one entry a node: active first, then intermittent, then those
// that recovered or were left behind by a new mapping.
func (e *Engine) fillNodes(v *verdict.Verdict, culprits []candidate) {
	all := nodes{}
	e.degradedNodes(all, culprits)
	e.wholeNodes(all)
	e.aloneNodes(all, culprits)
	e.intermittentNodes(all)
	for name, c := range e.carried {
		if c.Degraded && all[name] == nil {
			e.leftBehind(all.repeat(c.Case), c.At)
		}
	}

	e.suspectNodes(all, culprits)
	e.recoveredNodes(all)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		n := all[name]
		slices.Sort(n.Ranks)
		n.Ranks = slices.Compact(n.Ranks) // one may have recovered several times
		n.Devices = e.devices(name)
		n.Slowdown = math.Round(n.Slowdown*1e3) / 1e3
		n.Evidence = n.Evidence[:min(len(n.Evidence), maxEvidence)]
		if k := len(n.Ranks); n.Devices > 1 && n.State != verdict.Recovered && n.Detail != "" {
			n.Detail += fmt.Sprintf("; %d of the node's %d ranks", k, n.Devices)
		}

		v.Nodes = append(v.Nodes, *n)
	}

	slices.SortStableFunc(v.Nodes, func(a, b verdict.Node) int { return cmp.Compare(stateOrder(a.State), stateOrder(b.State)) })
}

// degradedNodes enters the culprits: a node's cause is that of its rank that loses most.
func (e *Engine) degradedNodes(all nodes, culprits []candidate) {
	worst := map[string]float64{}
	begun := map[string][][2]int64{}
	for i := range culprits {
		c := &culprits[i]
		name := e.nodeOf(c.row)
		carried, met := e.carried[name]
		c.sure = met
		f := e.describe(c, culprits)
		n := all.of(name)
		fresh := n.State == ""
		n.State = verdict.Degraded
		n.Ranks = append(n.Ranks, e.layout.Ranks[c.row])
		n.Evidence = append(n.Evidence, f.Evidence...)
		begun[name] = append(begun[name], [2]int64{c.detected, c.since})
		n.DetectedStep, n.SinceStep = when(begun[name], c.onlyOwn())
		if met && (carried.Degraded || carried.Judged) {
			n.SinceStep, n.DetectedStep = carried.Case.SinceStep, carried.Case.DetectedStep
		}

		n.Confidence = max(n.Confidence, f.Confidence)
		if fresh || c.excess > worst[name] {
			worst[name] = c.excess
			n.Cause, n.Slowdown, n.Detail = f.Cause, f.Slowdown, f.Detail
		}
	}
}

// recoveredNodes enters those that were slow and of which nothing worse is to be said, by
// what was known when they were slow last.
func (e *Engine) recoveredNodes(all nodes) {
	for _, p := range slices.Backward(e.history) {
		n := all[p.Node]
		switch {
		case n == nil:
			all.repeat(p)
		case n.State == verdict.Recovered:
			n.Ranks = append(n.Ranks, p.Ranks...)
		}
	}
}

// when is the detected and first slow step of a node with several slow ranks: the
// earliest, or the middle one where nothing but self time tells, which may have
// been up for another reason before.
func when(begun [][2]int64, onlyOwn bool) (detected, since int64) {
	slices.SortFunc(begun, func(a, b [2]int64) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) })
	k := 0
	if onlyOwn {
		k = len(begun) / 2
	}

	return begun[k][0], begun[k][1]
}

// maxEvidence bounds the numbers quoted for one node: eight ranks with five each.
const maxEvidence = 40

func stateOrder(s string) int {
	return slices.Index([]string{verdict.Degraded, verdict.Intermittent, verdict.Suspect, verdict.Recovered}, s)
}

// leftBehind sets the state of a node whose slowness was not confirmed again, left at that many analysed steps: still
// degraded while it has ranks that the new mapping is too young to tell of, or that are suspect, else recovered.
func (e *Engine) leftBehind(n *verdict.Node, at int) {
	n.State = verdict.Recovered
	if e.devices(n.Node) > 0 && (e.analysed-at < threshold.MinValid || e.slowNow(n.Node)) {
		n.State, n.UntilStep = verdict.Degraded, 0
	}
}

// devices counts the recorded ranks of a node now.
func (e *Engine) devices(name string) int {
	k := 0
	for r := range e.n {
		if e.layout.Present[r] && e.nodeOf(r) == name {
			k++
		}
	}

	return k
}

// fillLinks lists slow groups, and the one node that all of them share.
func (e *Engine) fillLinks(v *verdict.Verdict) {
	slow := e.slowLinks()
	if e.fabric(slow) {
		return // a finding says it
	}

	for k, w := range slow {
		l := verdict.Link{Group: w.Name, State: verdict.Degraded, Ranks: []int{}, Nodes: []string{}}
		for _, r := range w.Rows {
			l.Ranks = append(l.Ranks, e.layout.Ranks[r])
			if n := e.nodeOf(int(r)); n != "" && !slices.Contains(l.Nodes, n) {
				l.Nodes = append(l.Nodes, n)
			}
		}

		l.Slowdown = math.Round(math.Exp(w.Rise)*1e3) / 1e3
		least, most := e.linkCost(slow[k : k+1])
		setCost(&l.JobImpact, &l.JobImpactMax, least, most)
		l.SinceStep = w.Since
		l.Detail = fmt.Sprintf("transfers in %s, without what is waited for, take %.4g s a step, %.2f times what they should (%.4g s)",
			link.Called(w.Name), w.Now, l.Slowdown, w.Now/l.Slowdown)
		v.Links = append(v.Links, l)
	}

	if n := e.commonNode(slow); n >= 0 {
		e.linkNode(v, n, slow)
	}
}

// linkNode lists the node that all slow groups have in common, where nothing else makes it slow now: who comes and goes
// may wait for its wires.
func (e *Engine) linkNode(v *verdict.Verdict, n int32, slow []link.Slow) {
	name := e.layout.Nodes[n]
	if k := slices.IndexFunc(v.Nodes, func(x verdict.Node) bool { return x.Node == name }); k >= 0 {
		if v.Nodes[k].State == verdict.Degraded {
			return
		}

		v.Nodes = slices.Delete(v.Nodes, k, k+1)
	}

	l := v.Links[0]
	x := verdict.Node{Node: name, State: verdict.Degraded, Cause: verdict.Communication, Ranks: []int{}, Slowdown: l.Slowdown,
		SinceStep: l.SinceStep, DetectedStep: slow[0].Found, Confidence: 0.9, Devices: e.devices(name), Evidence: []verdict.Evidence{}}
	for i, w := range slow {
		x.SinceStep = min(x.SinceStep, w.Since)
		for _, r := range w.Rows {
			if rank := e.layout.Ranks[r]; e.layout.Node[r] == n && !slices.Contains(x.Ranks, rank) {
				x.Ranks = append(x.Ranks, rank)
			}
		}

		x.Evidence = append(x.Evidence, verdict.Evidence{Metric: "transfer", Rank: v.Links[i].Ranks[0], Value: round6(w.Now),
			Peers: round6(w.Now / v.Links[i].Slowdown), Z: math.Round(w.Rise/w.Noise*10) / 10})
	}

	slices.Sort(x.Ranks)
	x.JobImpact, x.JobImpactMax = e.linkCost(slow)
	x.Detail = fmt.Sprintf("all %d slow groups have only this node in common", len(slow))
	v.Nodes = append(v.Nodes, x)
}

func round4(x float64) float64 { return math.Round(x*1e4) / 1e4 }
