package detect

import (
	"maps"
	"math"
	"slices"

	"github.com/laggard-dev/laggard/analyzer/detect/robust"
	"github.com/laggard-dev/laggard/analyzer/detect/sequential"
	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// saving is the signal of checkpoints: it has no track, only saves.
const saving = signals

// plain reports whether what was said of a rank is told when it is over and nobody can check it any more: by how
// much longer the rank took, and how clearly. The z of its evidence is that of one window; where more than a little is
// said, each further one of its steps is as much again.
func (e *Engine) plain(n *verdict.Node, steps int) bool {
	windows := 1.0
	if n.Slowdown-1 >= e.cfg.Effect {
		windows = math.Sqrt(max(1, float64(steps)/threshold.Window))
	}

	return n.Slowdown-1 >= sequential.LongShare*e.cfg.MinEffect && slices.ContainsFunc(n.Evidence, func(x verdict.Evidence) bool { return x.Z*windows >= overAlarm })
}

// closeCases forgets what is said of rows.
func (e *Engine) closeCases() {
	for s := range e.cases {
		e.cases[s] = map[int]verdict.Node{}
	}
}

// nodeOf is the name of the node on which the row runs now.
func (e *Engine) nodeOf(row int) string { return e.layout.NodeOf(row) }

// remember keeps what was said of a rank whose confirmed episode ended.
func (e *Engine) remember(n verdict.Node) {
	n.State = verdict.Recovered
	e.history = robust.Newest(append(e.history, n), maxHistory)
}

// savesEnded keeps what was known of a rank whose slow saves have ended.
func (e *Engine) savesEnded(r int) {
	x := e.saver.Slow(r)
	c := candidate{row: r, main: saving, effect: x.Effect, z: x.Z, since: x.Since, detected: x.Detected}
	c.has[saving] = true
	n := e.describe(&c, nil)
	n.JobImpact, n.JobImpactMax = e.saver.Cost(n.Node, e.now())
	n.UntilStep = x.Until
	e.remember(n)
}

// ended files an episode of rank ep.unit: a condition that is over, an event, or
// nothing anybody could check.
func (e *Engine) ended(s signal, ep sequential.Episode, c *frame.Column) {
	r := ep.Unit
	known, accused := e.cases[s][r]
	delete(e.cases[s], r)
	if s == own && !e.tracks[compute].Degraded(r) { // it only corroborated
		delete(e.cases[compute], r)
	}

	if s == compute && accused && known.Cause == verdict.Compute && c.V[frame.Self] == nil { // it is measured otherwise
		e.tracks[own].End(r)
		delete(e.cases[own], r)
	}

	if ep.Confirmed && !accused {
		return // it was a victim all along, or what it took longer was work
	}

	if ep.Confirmed && e.plain(&known, ep.Steps) {
		if a := e.costs.Closed(e.nodeOf(r), ep.Well); a.Time > 0 {
			known.JobImpact, known.JobImpactMax = a.Bounds()
		}

		known.Node, known.SinceStep, known.DetectedStep, known.UntilStep = e.nodeOf(r), ep.Since, ep.Detected, ep.Until
		e.remember(known)
		return
	}

	if !ep.Event || s == compute && e.onlyForwardPassed(r, ep) {
		return
	}

	e.events = robust.Newest(append(e.events, event{Node: e.nodeOf(r), Rank: e.layout.Ranks[r], Signal: s,
		First: ep.Since, Last: ep.Until, AtNs: c.StartNs,
		At: max(0, e.analysed-ep.Ago), Steps: ep.Steps, Effect: ep.Effect}), maxEvents)
}

// refresh renews what is known of the culprits while they are slow.
func (e *Engine) refresh() {
	due, slow := e.analysed%threshold.EvaluateEvery == 0, false
	for s := range signals {
		t := e.tracks[s]
		for _, r := range t.Confirmed() {
			due = true
			e.relearnMates(s, int(r))
		}

		slow = slow || t.Any(func(r int) bool { return t.Degraded(r) && !t.Recovering(r) })
	}

	if !due {
		return
	}

	var culprits []candidate
	if slow {
		culprits, _ = e.accuse(e.candidates())
	}

	for _, u := range e.slowUnits(culprits) {
		u.test.Accuse(u.at)
	}

	faults := e.blame(culprits)
	e.costs.Blame(faults, e.recovering, func(node string) bool {
		_, waits := e.carried[node]
		return waits || e.slowNow(node)
	})
	if len(faults) > 0 && !e.costs.Learned() || e.analysed%(threshold.EvaluateEvery*threshold.EvaluateEvery) == 0 {
		e.costs.Learn()
	}

	if len(culprits) == 0 {
		return
	}

	e.acquit(culprits)
	p := e.costs.Settled(faults)
	for i := range culprits {
		c := &culprits[i]
		n := e.describe(c, culprits)
		n.JobImpact, n.JobImpactMax = e.costOf(p, n.Node)
		for s := range signals {
			if c.has[s] && !e.tracks[s].Recovering(c.row) {
				e.cases[s][c.row] = n
				e.tracks[s].Accuse(c.row)
			}
		}
	}
}

// acquit forgets the cases of those that are as slow as ever, began with a culprit and are no
// longer accused beside it: they wait for it, and will have recovered from nothing.
func (e *Engine) acquit(culprits []candidate) {
	for s, t := range e.tracks {
		maps.DeleteFunc(e.cases[s], func(r int, _ verdict.Node) bool {
			return t.Degraded(r) && !t.Recovering(r) && !slices.ContainsFunc(culprits, func(c candidate) bool { return c.row == r }) &&
				slices.ContainsFunc(culprits, func(c candidate) bool { return abs(c.sinceAt-t.SinceAt(r)) <= commonSteps })
		})
	}
}

// relearnMates lets those with whom row r shares its work forget the steps in which its slowness was
// taken for work of theirs: they seemed the faster for it.
func (e *Engine) relearnMates(s signal, r int) {
	if s >= loading {
		return
	}

	since := e.tracks[s].SinceAt(r)
	for _, t := range e.tracks {
		if !t.Healthy(r) {
			since = min(since, t.SinceAt(r))
		}
	}

	for _, p := range e.sharing[s].Mates(r) {
		e.tracks[s].Unlearn(int(p), since)
	}
}

// carry keeps the suspicions of nodes whose ranks are about to be mapped anew.
func (e *Engine) carry(l *frame.Layout) {
	old := e.layout
	moved := len(old.Ranks) != len(l.Ranks) || old.World != l.World || !sameRoles(old, l)
	gone := func(r int) bool { return moved || old.Incarnation[r] != l.Incarnation[r] }
	culprits, _ := e.accuse(e.candidates())
	faults := e.blame(culprits)
	p := e.costs.Price(faults)
	if moved {
		e.costs.SettleAll(faults)
	}

	for i := range culprits {
		c := &culprits[i]
		if !gone(c.row) || c.main == saving {
			continue
		}

		node := e.nodeOf(c.row)
		if known, ok := e.carried[node]; ok && known.Degraded {
			continue
		}

		n := e.describe(c, culprits)
		n.JobImpact, n.JobImpactMax = e.costOf(p, node)
		n.UntilStep = e.tracks[c.main].Until(c.row)
		e.carried[node] = carry{Signal: c.main, Degraded: true, At: e.analysed, Case: n}
	}

	for _, s := range []signal{compute, loading} {
		t := e.tracks[s]
		for r := range t.Len() {
			node := e.nodeOf(r)
			if _, known := e.carried[node]; known || t.Healthy(r) || !gone(r) || t.Idle(r) {
				continue
			}

			e.carried[node] = carry{Signal: s, At: e.analysed, Case: verdict.Node{SinceStep: t.Since(r), DetectedStep: t.Detected(r)}}
		}
	}

	for _, s := range []signal{compute, loading} {
		t := e.alone[s]
		for g, rows := range e.residents {
			if node := e.nodeOf(int(rows[0])); e.home[g] >= 0 && !t.Healthy(g) && gone(int(rows[0])) {
				if _, known := e.carried[node]; !known {
					e.carried[node] = carry{Signal: s, At: e.analysed, Case: verdict.Node{SinceStep: t.Since(g), DetectedStep: t.Detected(g)}}
				}
			}
		}
	}

	if moved {
		e.closeCases()
	}
}

// adopt gives the suspicion of a node to its ranks of the new mapping: they start
// half way up. A node whose new ranks are well after a full window has recovered.
func (e *Engine) adopt() {
	for node, c := range e.carried {
		age := e.analysed - c.At
		if age == 1 {
			for r, n := range e.layout.Node {
				if n >= 0 && e.layout.Nodes[n] == node && e.layout.Present[r] && c.Signal < signals {
					e.tracks[c.Signal].LiftHalf(r)
				}
			}
		}

		if age < threshold.Window || c.Judged {
			continue
		}

		if !e.slowNow(node) {
			if c.Degraded && e.plain(&c.Case, 0) {
				e.remember(c.Case)
			}

			delete(e.carried, node)
			continue
		}

		c.Judged = true
		e.carried[node] = c
	}
}

// slowNow reports whether any rank of the node, or a role that is at home there, is suspect or worse.
func (e *Engine) slowNow(node string) bool {
	for g, n := range e.home {
		if n >= 0 && e.layout.Nodes[n] == node && slices.ContainsFunc(e.alone[:], func(t *sequential.Test) bool { return !t.Healthy(g) }) {
			return true
		}
	}

	return e.anyOn(node, func(t *sequential.Test, r int) bool { return !t.Healthy(r) })
}

// recovering reports whether any rank of the node was slow, and may be well again.
func (e *Engine) recovering(node string) bool {
	return e.anyOn(node, func(t *sequential.Test, r int) bool { return t.Degraded(r) && t.Recovering(r) })
}

// anyOn reports whether one of the node's ranks is so in any signal.
func (e *Engine) anyOn(node string, is func(t *sequential.Test, r int) bool) bool {
	return e.inSome(func(t *sequential.Test) bool {
		return t.Any(func(r int) bool { return is(t, r) && e.nodeOf(r) == node })
	})
}

// inSome reports whether it is so in any signal.
func (e *Engine) inSome(is func(t *sequential.Test) bool) bool {
	return slices.ContainsFunc(e.tracks[:], is)
}
