package detect

import (
	"fmt"
	"math"
	"slices"

	"github.com/laggard-dev/laggard/analyzer/detect/cost"
	"github.com/laggard-dev/laggard/analyzer/detect/sequential"
	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// unit is a replica or a role that is slow in a signal.
type unit struct {
	test   *sequential.Test // of such units in the signal
	at     int
	signal signal
	rows   []int32
}

// fault is what row r of a unit is blamed for.
func (e *Engine) fault(u unit, r int32) cost.Fault {
	f := cost.Fault{Row: int(r), From: max(0, e.recent.Count-u.test.Age(u.at))}
	if effect, _ := u.test.Last(u.at); u.signal == loading {
		f.Late = effect
	} else {
		f.Effect, f.Has[own] = effect, u.signal == own && e.byForward()
	}

	return f
}

// byForward reports whether forward passes, where they are recorded, tell who computes slowly.
func (e *Engine) byForward() bool { return e.seen[frame.FP] && !e.unknownMates() }

// watchWholes follows replicas as wholes, where what their stages share is removed. Where nothing is any more,
// their ranks show for themselves who is slow.
func (e *Engine) watchWholes(c *frame.Column) {
	for s, recorded := range []bool{compute: e.byForward() && c.V[frame.FP] != nil, own: c.V[frame.Self] != nil} {
		sh, t := e.sharing[s], e.wholes[s]
		switch {
		case !recorded || !sh.Usable:
		case sh.Used:
			t.Observe(sh.Common, nil, c.Step, func(sequential.Episode) {})
		case !sh.Shares():
			for q := range t.Len() {
				t.End(q)
			}
		}
	}
}

// wholeNodes names a node that holds a whole replica which is slow for good:
// work rotates over replicas, a slow host does not.
func (e *Engine) wholeNodes(all nodes) {
	for _, u := range e.slowWholes() {
		n := all.of(e.nodeOf(int(u.rows[0])))
		if n.State != "" {
			continue
		}

		n.State, n.Cause = verdict.Degraded, verdict.Compute
		if u.signal == own && e.byForward() {
			n.Cause = verdict.HostDelay
		}

		effect, _ := u.test.Last(u.at)
		n.Slowdown = math.Exp(effect)
		n.SinceStep, n.DetectedStep = u.test.FirstSlow(u.at), u.test.Detected(u.at)
		n.Confidence = 0.8
		for _, r := range u.rows {
			n.Ranks = append(n.Ranks, e.layout.Ranks[r])
		}

		n.Detail = fmt.Sprintf("all %d recorded ranks of the replica on this node take %.2f times as long as the other replicas, step after step", len(u.rows), n.Slowdown)
	}
}

// slowWholes lists the replicas on one node each that are slow for good. What was always so is a
// kind of hardware where another replica is as much faster than its peers, or so are more than a third.
func (e *Engine) slowWholes() (slow []unit) {
	for s, t := range e.wholes {
		for q, rows := range e.layout.Replicas {
			if !t.Active(q) || !e.isWhole(rows) || slices.ContainsFunc(slow, func(u unit) bool { return u.at == q }) || slices.ContainsFunc(rows, e.tiedElsewhere) {
				continue
			}

			if _, z := t.Last(q); e.mayHoldWaits(signal(s), rows) && (z < ownAlarm && !t.Accused(q) || slices.ContainsFunc(rows, func(r int32) bool { return e.onSlowLink(int(r), false) })) {
				continue
			}

			kind := t.Any(func(p int) bool { return !t.Few(p) && t.Standing(p) <= -max(t.Standing(q)/2, t.Doubt(p)) })
			if !kind || !t.Habitual(q) || t.AboveHabit(q) >= e.cfg.MinEffect {
				slow = append(slow, unit{t, q, signal(s), rows})
			}
		}
	}

	always := func(u unit) bool { return u.test.Habitual(u.at) && u.test.AboveHabit(u.at) < e.cfg.MinEffect }
	if n := len(slow) - len(slices.DeleteFunc(slices.Clone(slow), always)); n > 1 && 3*n > len(e.layout.Replicas) {
		slow = slices.DeleteFunc(slow, always)
	}

	return slow
}

// mayHoldWaits reports whether the signal of a replica may hold waits: its own time where forward passes tell who
// computes slowly, and these where they hold exchanges between experts.
func (e *Engine) mayHoldWaits(s signal, rows []int32) bool {
	return e.byForward() && (s == own || e.groupOf(int(rows[0]), frame.EP) != nil)
}

// isWhole reports whether the recorded ranks of a replica are on one node and of several stages: of one alone nobody
// can tell its work from slowness.
func (e *Engine) isWhole(rows []int32) bool {
	stage := func(r int32) int {
		if g := e.layout.Role[r]; g >= 0 {
			return e.layout.Roles[g].Stage
		}

		return -1
	}

	return e.singleNode(rows) >= 0 && slices.ContainsFunc(rows, func(r int32) bool { return stage(r) != stage(rows[0]) })
}

// tiedElsewhere reports whether row r works in lockstep with ranks on other nodes, and no record tells who of them
// waits.
func (e *Engine) tiedElsewhere(r int32) bool {
	return e.unseenInner(int(r)) && slices.ContainsFunc(e.graph.Mates(int(r)), func(p int32) bool { return e.layout.Node[p] != e.layout.Node[r] })
}

// singleNode returns the only node of the rows, -1 when there are several.
func (e *Engine) singleNode(rows []int32) int32 {
	node := int32(-1)
	for i, r := range rows {
		n := e.layout.Node[r]
		if i > 0 && n != node {
			return -1
		}

		node = n
	}

	return node
}
