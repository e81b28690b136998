package detect

import (
	"math"
	"slices"

	"github.com/laggard-dev/laggard/analyzer/detect/history"
	"github.com/laggard-dev/laggard/analyzer/detect/robust"
	"github.com/laggard-dev/laggard/analyzer/detect/sequential"
	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
	"github.com/laggard-dev/laggard/analyzer/frame"
)

// convincing decides on a rank with nothing but self time against it. Time that
// no range covers may be a wait: so its whole pipeline must be recorded, unless its own groups wait for it, nobody
// in it may have more of it, nobody else may explain it, its own recorded waiting
// must be down by as much, and it must be the one that is late.
func (e *Engine) convincing(c *candidate, all []candidate) bool {
	r := c.row
	q := e.layout.Replica[r]
	if q < 0 || e.onSlowLink(r, false) {
		return false
	}

	t := e.tracks[own]
	k := t.Recent(r)
	// Who is waited for inside the forward pass, by members of its own groups and by
	// as much, is late itself: what all of them wait for makes all of them late. Of time that comes and goes the
	// last steps may tell less than the window that alarmed.
	leads := e.innerLead(r, k) >= awaitedShare*max(c.excess, -e.value(r, own, k)*math.Expm1(-c.effect))
	if !leads && !e.recorded(q) || e.comesAndGoes(c, leads) {
		return false
	}

	if !e.accused(own, r) && t.Recovering(r) {
		return false // what it waited for is over, and its window does not tell any more
	}

	if min(c.effect, 2*t.Standing(r)) < sequential.LongShare*e.cfg.MinEffect {
		return false // nobody could check it
	}

	long := t.Age(r) >= sequential.LongBlocks*threshold.BlockSteps
	if !e.accused(own, r) && c.z*math.Sqrt(e.together(r)) < ownAlarm && !(leads && (c.effect >= leadEffect || long)) {
		return false
	}

	most, same := e.mates(c, k)
	if max(most, same/pipelineLead) > c.excess {
		return false
	}

	if !leads && (e.roleRises(c) || slices.ContainsFunc(all, func(o candidate) bool { return e.explains(&o, c) })) {
		return false
	}

	// Waits for it vary from step to step: what showed them once in this episode is proof.
	if e.accused(own, r) {
		return true
	}

	mine := e.recent.Median(frame.Exposed, r, k)
	theirs := e.roleMedian(frame.Exposed, r, k, nil)
	if d := theirs - mine; d == d && d < max(identityShare/2*c.excess, identityShare*c.excess-e.medianError(r, own, k)) {
		return false
	}

	return leads || !e.awaitsWires(c, k) && !e.awaitsStages(c, k) && (e.uncontested(c, most) || e.awaited(c, k) || e.began(c, k))
}

// awaitsStages reports whether a rank waits longer than its peers for other stages, by a part of its excess: who is
// late itself finds its work waiting.
func (e *Engine) awaitsStages(c *candidate, k int) bool {
	return e.recent.Median(frame.PP, c.row, k)-e.roleMedian(frame.PP, c.row, k, nil) > mateShare*c.excess
}

// awaitsWires reports whether transfers inside the forward passes of a pipeline mate on another node take as much
// longer than those of its peers: who waits for it comes late as well.
func (e *Engine) awaitsWires(c *candidate, k int) bool {
	return slices.ContainsFunc(e.layout.Replicas[e.layout.Replica[c.row]], func(p int32) bool {
		return e.layout.Role[p] != e.layout.Role[c.row] && e.layout.Node[p] != e.layout.Node[c.row] && e.slowWires(int(p), k) >= explainedShare*c.excess
	})
}

// roleRises reports whether ranks of c's role on most other nodes have more own time as well: it sets no node apart.
func (e *Engine) roleRises(c *candidate) bool {
	others := slices.DeleteFunc(slices.Clone(history.Sample(e.layout.Roles[e.layout.Role[c.row]].Rows)), func(p int32) bool { return e.layout.Node[p] == e.layout.Node[c.row] })
	nodes, rise := e.nodesWith(others, e.tracks[own].Active)
	return nodes > 1 && 2*rise > nodes
}

// together is how many ranks of r's node have more own time, since about the same moment: those of its role, for
// half of a role widens the spread that each of them is measured by, and where it rose, all.
func (e *Engine) together(r int) (n float64) {
	t := e.tracks[own]
	for p, node := range e.layout.Node {
		if node == e.layout.Node[r] && t.Active(p) && abs(t.SinceAt(p)-t.SinceAt(r)) <= threshold.Window/2 &&
			(e.layout.Role[p] == e.layout.Role[r] || !t.Habitual(p)) {
			n++
		}
	}

	return n
}

// comesAndGoes reports whether a rank on another node is slow again and again in what it
// does itself: then who waits for it has more uncovered time, now and then. Who leads its
// own groups is excused only by one for whom its pipeline waits as long.
func (e *Engine) comesAndGoes(c *candidate, leads bool) bool {
	for _, s := range []signal{compute, loading} {
		for r := range e.n {
			if e.layout.Node[r] == e.layout.Node[c.row] || !e.tracks[s].Intermittent(r) {
				continue
			}

			x := e.tracks[s].Spikes(r)
			if lost := x.Share() * math.Expm1(x.Mean()) * e.value(r, s, threshold.Window); !leads ||
				e.delays(r, e.layout.Replica[c.row]) && lost >= explainedShare*c.excess {
				return true
			}
		}
	}

	return false
}

// medianError is the standard error, in seconds, of the difference between the
// median of rank r over k steps and its peers'.
func (e *Engine) medianError(r int, s signal, k int) float64 {
	noise := math.Hypot(float64(e.tracks[s].Noise(r)), e.level.Bulk[s])
	return robust.Finite(e.value(r, s, k)*math.Sqrt2*noise*robust.MedianLoss/math.Sqrt(float64(k)), 0)
}

// mates is the largest excess, seconds a step, of c's pipeline mates in other
// roles: of those on other nodes, loading included, and of those on its own. Those do not
// count that became slow when it had been accused already.
func (e *Engine) mates(c *candidate, k int) (most, same float64) {
	most, same = math.Inf(-1), math.Inf(-1)
	accused := e.accused(own, c.row)
	for _, p := range e.layout.Replicas[e.layout.Replica[c.row]] {
		if int(p) == c.row || e.layout.Role[p] == e.layout.Role[c.row] {
			continue
		}

		if t := e.tracks[own]; accused && t.Active(int(p)) && t.SinceAt(int(p)) > t.SinceAt(c.row)+threshold.BlockSteps {
			continue
		}

		x := e.ownExcess(int(p), k)
		if e.layout.Node[p] == e.layout.Node[c.row] {
			same = max(same, x)
			continue
		}

		if l := e.value(int(p), loading, k) - e.peers(int(p), loading, k, nil); l > 0 {
			x += l
		}

		most = max(most, x)
	}

	return most, same
}

// uncontested reports whether nobody is there for whom c could be waiting: no
// pipeline at all, or it became slow while all its mates on other nodes stayed as
// they were. (How much of its waits a rank records may differ for good; that is no
// rise.)
func (e *Engine) uncontested(c *candidate, most float64) bool {
	if !e.layout.Certain || !e.roleRecorded(c.row) {
		return false
	}

	t := e.tracks[own]
	rose := !t.FromStart(c.row) && t.HasPast(c.row) && c.z >= beganAlarm && c.effect >= e.cfg.Effect
	return e.layout.Stages == 1 || rose && most < mateShare*c.excess
}

// began decides on a rank that the job hardly waits for (others have slack, or
// wait somewhere else) but whose self time rose clearly above its own past. A
// wait that no range records grows only when somebody makes others wait: then
// recorded waits grow as well, and its pipeline would have to be the late one.
func (e *Engine) began(c *candidate, k int) bool {
	t := e.tracks[own]
	if t.FromStart(c.row) || !t.HasPast(c.row) || c.z < beganAlarm || c.effect < e.cfg.Effect ||
		!e.roleRecorded(c.row) || e.slowest(c.row, k) < slowestShare {
		return false
	}

	if late, known := e.lateness(c.row, k); known && late >= beganShare*c.excess {
		return true
	}

	grown, known := e.level.WaitGrowth(c.since)
	return known && grown < beganShare*c.excess
}

// roleRecorded reports whether every rank of r's role has records.
func (e *Engine) roleRecorded(r int) bool {
	return !e.anyUnjudged(e.layout.Roles[e.layout.Role[r]].Rows)
}

// explains reports whether culprit o is why rank c has more uncovered time: its pipeline waits for it
// anyway, for as long, and c was not accused before o became slow. One that has nothing but such time itself must
// have more of it, and since the same moment, or before: the less a rank waits, the later it shows; and whoever may be in
// c's pipeline, for all that is known, must have become slow then.
func (e *Engine) explains(o, c *candidate) bool {
	later, late := o.sinceAt-c.sinceAt, o.excess
	if o.row == c.row || e.layout.Node[o.row] == e.layout.Node[c.row] || later > threshold.BlockSteps && e.accused(own, c.row) && e.tracks[own].AccusedAt(c.row) <= o.sinceAt {
		return false
	}

	if o.has[own] && !o.onlyOwn() { // it is late by more than its forward passes
		late = max(late, e.excess(o.row, own, nil))
	}

	measured := !o.onlyOwn() && late >= explainedShare*c.excess
	atOnce := later >= -threshold.Window/2 && (later <= threshold.BlockSteps || e.roseSince(c, o.sinceAt))
	together := atOnce && late*0.9 > c.excess
	if e.delays(o.row, e.layout.Replica[c.row]) {
		return together || measured
	}

	return e.unknownMates() && (together || atOnce && measured)
}

// roseSince reports whether the rank had not half as much more own time before that step: that it was a little slower,
// as older hardware is, since long before is no moment at which it became slow.
func (e *Engine) roseSince(c *candidate, at int) bool {
	return e.tracks[own].Before(c.row, at) < c.effect/2
}

// delays reports whether row r, or a member of the groups that it works with inside the
// forward pass, is in replica q.
func (e *Engine) delays(r int, q int32) bool {
	if e.layout.Replica[r] == q {
		return true
	}

	for _, m := range frame.Inner {
		if g := e.groupOf(r, m); g != nil && slices.ContainsFunc(g.Rows, func(p int32) bool { return e.layout.Replica[p] == q }) {
			return true
		}
	}

	return false
}

// awaited reports whether the job really waits for the rank. With a pipeline its
// mates in other stages must reach the gradient reduction late together with it,
// and so wait less there than their peers; without one, the rank or its node must
// be the slowest of all in most steps, which a rank that waits itself never is.
func (e *Engine) awaited(c *candidate, k int) bool {
	r := c.row
	if e.layout.Stages > 1 {
		if late, known := e.lateness(r, k); known {
			return late >= awaitedShare*c.excess
		}
	}

	return e.roleRecorded(r) && e.slowest(r, k) >= slowestShare
}

// innerLead is how many seconds less than the other members r waits in the groups
// that work inside the forward pass: all of them wait for it there. What those that hold
// the same expert in other groups lead by is the expert's, and what chance makes in k
// steps is none.
func (e *Engine) innerLead(r, k int) float64 {
	sum := 0.0
	for _, m := range e.exposure.Blocking() {
		if g := e.groupOf(r, m); g == nil || !g.Complete() || !e.recent.Has(m) {
			continue
		}

		var mates []int32
		if m == frame.EP {
			mates = e.experts[own].Mates(r)
		}

		var leads []float32
		for _, cells := range e.recent.Latest(m, k) {
			if x := e.leadAt(r, m, cells); x == x {
				theirs := robust.MedianOf(history.Sample(mates), func(p int) float64 { return e.leadAt(p, m, cells) })
				leads = append(leads, float32(x-robust.Finite(theirs, 0)))
			}
		}

		lead := robust.Median(leads)
		if se := robust.MedianLoss * robust.MAD(slices.Clone(leads)) / robust.Sqrt(float32(len(leads))); float64(lead) > e.cfg.Alarm*float64(se) || lead < 0 {
			sum += float64(lead)
		}
	}

	return sum
}

// leadAt is by how much less than the middle other member of its group row r took in
// metric m in a step whose values are cells.
func (e *Engine) leadAt(r int, m frame.Metric, cells []float32) float64 {
	others := robust.MedianOf(history.Sample(e.groupOf(r, m).Rows), func(p int) float64 {
		if p == r {
			return math.NaN()
		}

		return float64(cells[p])
	})
	return others - float64(cells[r])
}

// lateness is how many seconds less than their peers the pipeline mates of r wait
// in the gradient reduction.
func (e *Engine) lateness(r, k int) (float64, bool) {
	if !e.seen[frame.DP] {
		return 0, false
	}

	var v []float64
	for _, p := range e.layout.Replicas[e.layout.Replica[r]] {
		g, own := e.layout.Role[p], e.layout.Role[r]
		if e.layout.Roles[g].Stage == e.layout.Roles[own].Stage || len(v) >= history.SampleRows {
			continue
		}

		if d := e.roleMedian(frame.DP, int(p), k, nil) - e.recent.Median(frame.DP, int(p), k); d == d {
			v = append(v, d)
		}
	}

	return robust.Median64(v), len(v) > 0
}

// slowest is the share of the last k steps in which a rank of r's node has the
// largest self time of the role.
func (e *Engine) slowest(r, k int) float64 {
	hits, n := 0, 0
	for _, cells := range e.recent.Latest(frame.Self, k) {
		at, top := int32(-1), float32(-1)
		for _, p := range e.layout.Roles[e.layout.Role[r]].Rows {
			if x := cells[p]; x > top {
				at, top = p, x
			}
		}

		if at < 0 || cells[r] != cells[r] {
			continue
		}

		n++
		if e.layout.Node[at] == e.layout.Node[r] {
			hits++
		}
	}

	return float64(hits) / float64(max(1, n))
}

// recorded reports whether every rank that should be in the replica has records.
func (e *Engine) recorded(q int32) bool {
	return !e.layout.Partial[q] && !e.anyUnjudged(e.layout.Replicas[q])
}

// anyUnjudged reports whether one of the rows has no records.
func (e *Engine) anyUnjudged(rows []int32) bool {
	return slices.ContainsFunc(rows, func(r int32) bool { return e.judged[r] == 0 })
}
