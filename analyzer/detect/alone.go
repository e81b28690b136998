package detect

import (
	"fmt"
	"math"
	"slices"

	"github.com/laggard-dev/laggard/analyzer/detect/history"
	"github.com/laggard-dev/laggard/analyzer/detect/level"
	"github.com/laggard-dev/laggard/analyzer/detect/link"
	"github.com/laggard-dev/laggard/analyzer/detect/robust"
	"github.com/laggard-dev/laggard/analyzer/detect/sequential"
	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// watchAlone follows the roles at home.
func (e *Engine) watchAlone(c *frame.Column, t float64) {
	if e.byForward() && c.V[frame.FP] != nil {
		e.observeAlone(compute, e.level.Now[compute], 1, c.Step)
	}

	if c.V[frame.Self] != nil {
		e.observeAlone(own, e.level.Now[own], 1, c.Step)
		e.convictAlone()
	}

	if c.V[frame.DataLoader] != nil && t > 0 {
		e.observeAlone(loading, e.ref[loading].Middle, 1/float32(t), c.Step)
	}
}

// observeAlone feeds the test of the roles at home with one step: how much more of now, by role, than the middle of
// those elsewhere each has, times unit.
func (e *Engine) observeAlone(s signal, now []float32, unit float32, step int64) {
	if len(e.home) < 2 || !slices.ContainsFunc(e.home, func(n int32) bool { return n >= 0 }) {
		return
	}

	for g := range e.home {
		e.aloneV[g] = robust.NaN
		if e.home[g] < 0 {
			continue
		}

		e.buf = e.buf[:0]
		for k, x := range now {
			if e.home[k] != e.home[g] && x == x {
				e.buf = append(e.buf, x)
			}
		}

		e.aloneV[g] = (now[g] - robust.Median(e.buf)) * unit
	}

	e.alone[s].Load = e.experts[own].Apart()
	e.alone[s].Observe(e.aloneV, nil, step, func(sequential.Episode) {})
}

// convictAlone makes a suspect role at home slow by its own time if the job's steps grew with it: that the others go
// as far from their past does not excuse it, for they wait for it where no range tells.
func (e *Engine) convictAlone() {
	t := e.alone[own]
	for g, n := range e.home {
		if n < 0 || t.Healthy(g) || t.Active(g) || t.Age(g) < threshold.Window || t.Age(g)%threshold.EvaluateEvery != 0 {
			continue
		}

		if e.stepsGrewWith(g) {
			t.Convict(g, t.AboveHabit(g))
		}
	}
}

// stepsGrewWith reports whether the job's steps are longer since a role at home has more own time, and by a like amount,
// and nobody waits for data who did not.
func (e *Engine) stepsGrewWith(g int) bool {
	waits := func(t *sequential.Test) bool { return t.Any(func(r int) bool { return !t.Healthy(r) }) }
	if waits(e.tracks[loading]) || waits(e.alone[loading]) {
		return false
	}

	grown, x := e.grewSince(e.alone[own].FirstSlow(g)), e.aloneExcess(own, g)
	return grown > 0 && x >= explainedShare*grown && grown >= identityShare/2*x
}

// grewSince is by how many seconds the job's steps are longer since that step, within a window of it; 0 where they
// became longer at another time, or did not.
func (e *Engine) grewSince(step int64) float64 {
	rise, since := e.level.Change(level.Step)
	if abs(int(since-step)) > threshold.Window {
		return 0
	}

	return -e.stepMedian * math.Expm1(-rise)
}

// findHomes finds the home of each role: the node that has so many of its ranks that the middle of them says nothing
// of it; -1 where there is none. residents are the ranks there, or all.
func (e *Engine) findHomes() {
	e.home, e.residents = make([]int32, len(e.layout.Roles)), make([][]int32, len(e.layout.Roles))
	for g := range e.home {
		rows := e.layout.Roles[g].Rows
		on := map[int32][]int32{}
		for _, r := range rows {
			on[e.layout.Node[r]] = append(on[e.layout.Node[r]], r)
		}

		e.home[g], e.residents[g] = -1, rows
		for n, here := range on {
			if 2*len(here) > len(rows) {
				e.home[g], e.residents[g] = n, here
			}
		}
	}
}

// aloneNodes names a node that is the home of a role which became slow against its own past while the rest of
// the job did not: where the middle of all stages takes longer as well, by most of that.
func (e *Engine) aloneNodes(all nodes, culprits []candidate) {
	slow := e.slowAlone(culprits)
	if step, _ := e.level.Change(level.Step); step >= math.Log1p(level.Rise) && len(e.layout.Roles) > 1 {
		work, _ := e.level.Change(level.Compute)
		more, _ := e.level.Change(level.Passes) // micro-batches are as many for all stages, whatever each takes for one
		if work -= more; work >= math.Log1p(level.Rise)/2 {
			slow = slices.DeleteFunc(slow, func(u unit) bool {
				effect, _ := u.test.Last(u.at)
				return effect < explainedShare*work // everybody changed
			})
		}
	}

	here := map[string]bool{}
	for _, u := range slow {
		rows, t := u.rows, u.test
		n := all.of(e.nodeOf(int(rows[0])))
		if n.State != "" && !here[n.Node] {
			continue
		}

		for _, r := range rows {
			n.Ranks = append(n.Ranks, e.layout.Ranks[r])
			n.Evidence = append(n.Evidence, e.pastEvidence(u, r))
		}

		if here[n.Node] {
			continue
		}

		here[n.Node] = true
		effect, _ := t.Last(u.at)
		n.State, n.Cause, n.Slowdown = verdict.Degraded, verdict.Compute, math.Exp(effect)
		does := fmt.Sprintf("it takes %.2f times as long", n.Slowdown)
		switch {
		case u.signal == loading:
			n.Cause, n.Slowdown = verdict.DataLoader, 1/(1-min(0.99, effect))
			does = fmt.Sprintf("it waits %.4g s more of a step for data", effect*e.stepMedian)
		case !e.seen[frame.FP]:
			n.Cause = verdict.Unattributed
		case u.signal == own && e.byForward() && e.alone[compute].AboveHabit(u.at) < computeShare*effect: // passes need not have alarmed themselves
			n.Cause = verdict.HostDelay
			does = fmt.Sprintf("it spends %.2f times as long outside communication, data loading and saving", n.Slowdown)
		}

		n.SinceStep, n.DetectedStep = t.FirstSlow(u.at), t.Detected(u.at)
		n.Confidence = 0.65
		peers := "no peers"
		if len(rows) < len(e.layout.Roles[u.at].Rows) {
			peers = "too few peers"
		}

		past := "its own past (self-relative)"
		if t.Moved(u.at) {
			past = "what it took on another node"
		}

		n.Detail = fmt.Sprintf("%s has %s on other nodes; against %s %s since step %d, while the other stages do not",
			e.layout.Roles[u.at].Name(e.layout.Stages), peers, past, does, n.SinceStep)
	}
}

// pastEvidence is what a rank of a role at home takes now, beside what it would by its past.
func (e *Engine) pastEvidence(u unit, r int32) verdict.Evidence {
	effect, z := u.test.Last(u.at)
	x := robust.Finite(e.value(int(r), u.signal, threshold.Window), 0)
	past := x * math.Exp(-effect)
	if u.signal == loading {
		past = max(0, x-effect*e.stepMedian)
	}

	return verdict.Evidence{Metric: signalMetric[u.signal], Rank: e.layout.Ranks[r], Value: round6(x), Peers: round6(past), Z: math.Round(z*10) / 10}
}

// slowAlone lists the roles at home that became slow against the others. There
// must be another one without a slow rank: against those that come and go alone, a role
// changes that stays as it was. Own time, which may hold waits, counts where nothing else is slow.
func (e *Engine) slowAlone(culprits []candidate) (slow []unit) {
	disturbed := func(g int) bool {
		return slices.ContainsFunc(e.residents[g], func(r int32) bool {
			return slices.ContainsFunc(culprits, func(c candidate) bool { return c.row == int(r) }) ||
				e.inSome(func(t *sequential.Test) bool { return t.Intermittent(int(r)) })
		})
	}
	list := func(s signal, is func(g int) bool) {
		for g := range e.home {
			if e.home[g] < 0 || !e.alone[s].Active(g) || e.anotherModel(s, g) || !is(g) || slices.ContainsFunc(slow, func(u unit) bool { return u.at == g }) {
				continue
			}

			for k := range e.home {
				if k != g && !disturbed(k) {
					slow = append(slow, unit{e.alone[s], g, s, e.residents[g]})
					break
				}
			}
		}
	}
	list(compute, func(g int) bool { return !e.mayWaitForLink(compute, g) })
	for k := range slow { // its forward passes may be longer by waits for each other within it
		u := &slow[k]
		inForward, _ := u.test.Last(u.at)
		if all, _ := e.alone[own].Last(u.at); e.alone[own].Active(u.at) && inForward < computeShare*all {
			u.test, u.signal = e.alone[own], own
		}
	}

	list(loading, func(int) bool { return true })
	if len(slow) == 0 {
		var rises map[int32]float64
		list(own, func(g int) bool {
			if rises == nil {
				rises = e.ownRises(culprits)
			}

			return e.leadsAlone(g, rises)
		})
	}

	return slow
}

// anotherModel reports whether a role was moved to a node where it takes longer by no more than hosts of one model differ:
// this one from the one before, and by as much those of the other stages. A node that another role left when it was slow there
// is none.
func (e *Engine) anotherModel(s signal, g int) bool {
	effect, _ := e.alone[s].Last(g)
	_, met := e.carried[e.layout.Nodes[e.home[g]]]
	return e.alone[s].Moved(g) && effect < 2*modelSpread && !met
}

// leadsAlone reports whether a role with more own time than it had waits for nobody: no link of its groups is
// slow, nobody on another node has as much more, and it was not named first in congestion, or when that is over.
func (e *Engine) leadsAlone(g int, rises map[int32]float64) bool {
	if t := e.alone[own]; !t.Accused(g) && (t.Recovering(g) || e.links.Busy()) {
		return false
	}

	x := e.aloneExcess(own, g)
	for node, y := range rises {
		if node != e.home[g] && y*pipelineLead > x {
			return false
		}
	}

	together := 0.0 // half of the roles widen the spread that each of them is measured by
	for k, node := range e.home {
		if node == e.home[g] && e.alone[own].Active(k) {
			together++
		}
	}

	_, z := e.alone[own].Last(g)
	return (e.alone[own].Accused(g) || z*math.Sqrt(together) >= ownAlarm || e.stepsGrewWith(g)) && !e.onSlowLink(int(e.residents[g][0]), false) && !e.mayWaitForLink(own, g)
}

// mayWaitForLink reports whether a link became slow with a role at home, and its transfers take as much longer: the
// pipeline waits for another stage where no range tells, and those of a tensor group in their forward passes for the one
// whose input is sent last.
func (e *Engine) mayWaitForLink(s signal, g int) bool {
	x := e.aloneExcess(s, g)
	return slices.ContainsFunc(e.slowLinks(), func(w link.Slow) bool {
		return abs(int(e.alone[s].FirstSlow(g)-w.Since)) <= threshold.Window && w.Cost >= x
	})
}

// ownRises is by how many seconds a step the own time of anybody on a node is more at most: of a role at home, of a
// rank that is slow in it, or of a culprit in what it is accused of.
func (e *Engine) ownRises(culprits []candidate) map[int32]float64 {
	most := map[int32]float64{}
	for g, node := range e.home {
		most[node] = max(most[node], e.aloneExcess(own, g))
	}

	for r, node := range e.layout.Node {
		if !e.tracks[own].Healthy(r) {
			most[node] = max(most[node], robust.Finite(e.ownExcess(r, threshold.Window), 0))
		}
	}

	for i := range culprits {
		node := e.layout.Node[culprits[i].row]
		most[node] = max(most[node], culprits[i].excess)
	}

	return most
}

// aloneExcess is how many seconds of a signal's time a step a role has more than it had, beside the others.
func (e *Engine) aloneExcess(s signal, g int) float64 {
	usual := robust.MedianOf(history.Sample(e.residents[g]), func(r int) float64 { return e.value(r, s, threshold.Window) })
	return -robust.Finite(usual, 0) * math.Expm1(-e.alone[s].AboveHabit(g))
}

// waitsForRole reports whether a link became slow with a role at home elsewhere that has as much more own time: no
// groups are told, so what looks like the link's transfers may be a wait of the whole job.
func (e *Engine) waitsForRole(w link.Slow) bool {
	if !e.unknownMates() {
		return false
	}

	t := e.alone[own]
	for g, rows := range e.residents {
		if e.home[g] >= 0 && !slices.Contains(w.Rows, rows[0]) && t.Active(g) && abs(int(t.FirstSlow(g)-w.Since)) <= threshold.Window && e.aloneExcess(own, g) >= w.Cost {
			return true
		}
	}

	return false
}
