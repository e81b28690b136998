package detect

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/laggard-dev/laggard/analyzer/detect/robust"
	"github.com/laggard-dev/laggard/analyzer/detect/sequential"
	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// intermittentNodes names nodes that are slow again and again, never for long:
// many slow steps of one rank, or several transients within an hour.
func (e *Engine) intermittentNodes(all nodes) {
	var found [signals][]int
	for s := range signals {
		for r := range e.n {
			c := candidate{row: r}
			c.has[s] = true
			// Of ranks in lockstep that all have more work, it shows on the one that is the last in a step.
			if e.tracks[s].Intermittent(r) && (s != compute || !e.onlyForward(r)) && !e.moreWork(&c) {
				found[s] = append(found[s], r)
			}
		}
	}

	for _, s := range []signal{compute, loading, own} {
		for _, r := range found[s] {
			if s != own || e.ownSpikes(r, found) {
				e.addIntermittent(all, s, r)
			}
		}
	}

	for name, list := range e.bursts() {
		if n := all[name]; n != nil && n.State != "" {
			continue
		}

		n := all.of(name)
		n.State, n.Cause = verdict.Intermittent, e.causeOf(list[0].Signal)
		first, last := list[0], list[len(list)-1]
		effect := 0.0
		for _, ev := range list {
			effect = max(effect, ev.Effect)
			if !slices.Contains(n.Ranks, ev.Rank) {
				n.Ranks = append(n.Ranks, ev.Rank)
			}
		}

		n.SinceStep, n.DetectedStep, n.UntilStep = first.First, list[min(transientsPerHour, len(list))-1].Last, last.Last
		n.Slowdown = math.Exp(effect)
		n.Confidence = 0.85
		n.Detail = fmt.Sprintf("%d passing slow times between step %d and %d, up to %.2f times as long as its peers", len(list), first.First, last.Last, n.Slowdown)
	}
}

// onlyForward reports whether the own time of rank r, which is healthy or nobody accuses it of, lacks the slow steps of
// its forward passes: where these hold exchanges between experts, or another node is slow, whoever is late makes them long.
func (e *Engine) onlyForward(r int) bool {
	return (e.exchanges(r) || e.seen[frame.Self] && !e.accused(own, r) && e.slowElsewhere(r)) && e.lacks(r, float64(e.tracks[own].Spikes(r).Sum), float64(e.tracks[compute].Spikes(r).Sum))
}

// slowElsewhere reports whether a rank on another node than r's is slow now.
func (e *Engine) slowElsewhere(r int) bool {
	return e.tracks[compute].Any(func(p int) bool {
		return e.layout.Node[p] != e.layout.Node[r] && (e.tracks[compute].Active(p) || e.tracks[loading].Active(p))
	})
}

// onlyForwardPassed reports the same of an episode of its forward passes that is just over, whatever they
// hold.
func (e *Engine) onlyForwardPassed(r int, ep sequential.Episode) bool {
	if !e.seen[frame.Self] || !e.tracks[own].Healthy(r) {
		return false
	}

	back := min(ep.Ago, threshold.Window)
	v, known := e.tracks[own].Values(r, back), ep.Steps-(ep.Ago-back) // its last steps are remembered longest
	if known <= 0 || len(v) < known {
		return false // not to be told
	}

	return e.lacks(r, float64(robust.Median(v[:known])), ep.Effect)
}

// exchanges reports whether forward passes of rank r hold exchanges between experts, or nobody knows
// what they hold, while its own time is healthy.
func (e *Engine) exchanges(r int) bool {
	return (e.groupOf(r, frame.EP) != nil && e.seen[frame.Self] || e.unknownMates()) && e.tracks[own].Healthy(r)
}

// lacks reports whether own time has less than computeShare of what the forward passes of rank r
// are slow by, in seconds; both are given as logarithms.
func (e *Engine) lacks(r int, inOwn, inForward float64) bool {
	return inOwn*e.value(r, own, threshold.Window) < computeShare*inForward*e.value(r, compute, threshold.Window)
}

// ownSpikes decides whether slow steps seen in self time only belong to the rank:
// not when somebody's forward or loading explains them, nor when a pipeline mate
// has more.
func (e *Engine) ownSpikes(r int, found [signals][]int) bool {
	if len(found[compute])+len(found[loading]) > 0 || !e.recorded(e.layout.Replica[r]) {
		return false
	}

	t := e.tracks[own]
	mine := t.Spikes(r).Sum
	for _, k := range found[own] {
		if k != r && t.Spikes(k).Sum > mine && e.layout.Node[k] != e.layout.Node[r] {
			return false
		}
	}

	return true
}

func (e *Engine) addIntermittent(all nodes, s signal, r int) {
	name := e.nodeOf(r)
	if n := all[name]; n != nil && n.State != "" && n.State != verdict.Intermittent {
		return
	}

	t := e.tracks[s]
	n := all.of(name)
	x := t.Spikes(r)
	if n.State == "" {
		n.State, n.Cause = verdict.Intermittent, e.causeOf(s)
		if s == own && e.seen[frame.FP] && float64(e.tracks[compute].Spikes(r).Sum) >= computeShare*float64(x.Sum) {
			n.Cause = verdict.Compute // forward was slow as well, in too few steps to tell by itself
		}

		n.SinceStep, n.DetectedStep, n.UntilStep = x.First, x.Last, 0
		n.Confidence = 0.9
		n.Detail = fmt.Sprintf("rank %d is slow by itself in %.1f %% of the steps, by %.0f %% on average; its peers in %.1f %%",
			e.layout.Ranks[r], 100*x.Share(), 100*math.Expm1(x.Mean()), 100*t.PeersSpike(r))
	}

	n.Ranks = append(n.Ranks, e.layout.Ranks[r])
	n.Slowdown = max(n.Slowdown, math.Exp(x.Mean()))
}

// causeOf is the cause that a signal alone speaks for.
func (e *Engine) causeOf(s signal) string {
	switch {
	case s == compute:
		return verdict.Compute
	case s == loading:
		return verdict.DataLoader
	case s == saving:
		return verdict.Checkpoint
	case e.seen[frame.FP]:
		return verdict.HostDelay
	}

	return verdict.Unattributed
}

// bursts returns the transients of each node that had enough of them within an hour, one of its ranks in each of so
// many, and clearly more than most others: noise that wanders makes some on every node, of this rank and that one.
// Own time may hold waits for whoever a rank works with where no groups are known.
func (e *Engine) bursts() map[string][]event {
	byNode := map[string][]event{}
	for _, ev := range e.passing() {
		if ev.Signal != own || !e.unknownMates() {
			byNode[ev.Node] = append(byNode[ev.Node], ev)
		}
	}

	out := map[string][]event{}
	for name, list := range byNode {
		if !e.dense(list) || e.mostOfARank(list) < transientsPerHour {
			continue
		}

		var others []float64
		for _, other := range e.layout.Nodes {
			if other != name {
				others = append(others, float64(len(byNode[other])))
			}
		}

		usual := robust.Finite(robust.Median64(others), 0)
		if float64(len(list)) > usual+burstSigmas*math.Sqrt(usual) {
			out[name] = list
		}
	}

	return out
}

// dense reports whether so many of a node's transients lie within an hour, or fill so much of its steps.
func (e *Engine) dense(list []event) bool {
	slow := 0
	for i, ev := range list {
		slow += ev.Steps
		if k := i - transientsPerHour + 1; k >= 0 && ev.AtNs-list[k].AtNs <= int64(3600e9) {
			return true
		}
	}

	return len(list) >= transientsPerHour && float64(slow) >= burstShare*float64(e.analysed-list[0].At)
}

// mostOfARank is in how many of a node's transients the rank took part that was in most of them.
func (e *Engine) mostOfARank(list []event) (most int) {
	in := map[int]int{}
	for _, ev := range list {
		for _, rank := range e.tookPart(ev) {
			in[rank]++
			most = max(most, in[rank])
		}
	}

	return most
}

// tookPart is the ranks of the transient's node that were slow in some of its steps.
func (e *Engine) tookPart(ev event) (ranks []int) {
	for _, o := range e.events {
		if o.Node == ev.Node && o.First <= ev.Last && ev.First <= o.Last && !slices.Contains(ranks, o.Rank) {
			ranks = append(ranks, o.Rank)
		}
	}

	return ranks
}

// passing returns the transients that belong to their nodes, one a node and time.
func (e *Engine) passing() []event {
	var out []event
	for i, ev := range e.events {
		drop := false
		for j, o := range e.events {
			if i == j || ev.First > o.Last || o.First > ev.Last {
				continue
			}

			switch {
			case o.Node == ev.Node: // one entry a node: the stronger signal's
				drop = drop || better(o, ev, j < i)
			case ev.Signal == own && (o.Signal != own || o.Effect > ev.Effect):
				drop = true // somebody else explains it
			case ev.Signal == compute && o.Signal == compute && e.unknownMates():
				drop = true // either may have waited for the other, or both for a wire
			}
		}

		for _, p := range e.history {
			if ev.Signal == own && p.Node != ev.Node && ev.First <= p.UntilStep && p.SinceStep <= ev.Last {
				drop = true
			}
		}

		if !drop {
			out = append(out, ev)
		}
	}

	return out
}

// better reports whether a is the better account of the same slow time than b.
func better(a, b event, first bool) bool {
	rank := func(ev event) int { return slices.Index([]signal{compute, loading, own}, ev.Signal) }
	if order := cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(b.Effect, a.Effect)); order != 0 {
		return order < 0
	}

	return first
}

// fillEvents lists transients, with the ranks that took part.
func (e *Engine) fillEvents(v *verdict.Verdict) {
	for _, ev := range e.passing() {
		x := verdict.Event{Node: ev.Node, Kind: "transient", FirstStep: ev.First, LastStep: ev.Last, Cause: e.causeOf(ev.Signal), Ranks: e.tookPart(ev)}
		v.Events = append(v.Events, x)
	}
}
