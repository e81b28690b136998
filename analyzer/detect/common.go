package detect

import (
	"math"
	"slices"

	"github.com/laggard-dev/laggard/analyzer/detect/robust"
	"github.com/laggard-dev/laggard/analyzer/detect/sequential"
	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
	"github.com/laggard-dev/laggard/analyzer/frame"
)

// common is why slow nodes are not accused: they share a cause (a switch, a storage, a
// mix of hardware, a replica's work), or nothing tells which of two is the slow one.
type common struct {
	sudden   map[string]bool    // nodes that became slow within commonSteps of each other
	standing map[string]float64 // nodes that are slow, more than can all be bad, and how far they are above others
	few      []int              // ranks that are slower than their few peers, and always were
	mates    []candidate        // who may wait for a culprit, or be another one: no groups are known
	replicas []int32            // that are as slow in each of their stages: they have more work
	last     []int              // of the replica that is the last in most steps, by more work or slowness
	nodes    int                // of the job
}

// undecidable reports whether what was dropped may be bad nodes all the same: the job is
// too small to tell.
func (c *common) undecidable() bool {
	return len(c.few) > 0 || len(c.standing) > 0 && c.nodes < smallJob
}

// withoutCommon drops the candidates that have a common cause.
func (e *Engine) withoutCommon(all []candidate) (left []candidate, dropped common) {
	sudden := e.sudden(all)
	dropped = common{sudden: map[string]bool{}, standing: map[string]float64{}, nodes: e.nodes()}
	for i := range all {
		c := &all[i]
		node := e.nodeOf(c.row)
		switch {
		case e.moreWork(c):
			if q := e.layout.Replica[c.row]; !slices.Contains(dropped.replicas, q) {
				dropped.replicas = append(dropped.replicas, q)
			}
		case e.givenMore(c):
		case sudden[node]:
			dropped.sudden[node] = true
		case e.standing(c):
			dropped.standing[node] = max(dropped.standing[node], c.effect)
		case e.fewPeers(c) && !e.rose(c):
			dropped.few = append(dropped.few, e.layout.Ranks[c.row])
		default:
			left = append(left, *c)
		}
	}

	return left, dropped
}

// moreWork reports whether all ranks of the rank's pipeline, on several nodes, take about as much longer for their forward
// passes, and have as much more own time: they share their micro-batches, and no devices. Times are asked as they are, for what a replica
// shares is taken out of what the tests see.
func (e *Engine) moreWork(c *candidate) bool {
	q := e.layout.Replica[c.row]
	if q < 0 || !c.has[compute] && !c.has[own] || c.has[loading] || e.layout.Stages < 2 || !e.live(frame.FP) {
		return false
	}

	longer := func(m frame.Metric, r int) float64 {
		return math.Log(e.recent.Median(m, r, threshold.Window) / e.roleMedian(m, r, threshold.Window, nil))
	}
	measured := slices.DeleteFunc([]frame.Metric{frame.FP, frame.Self}, func(m frame.Metric) bool { return !e.live(m) })
	above, all, stages := 0.0, []float64{}, map[int]bool{}
	for _, m := range measured {
		above = max(above, longer(m, c.row))
	}

	for _, r := range e.layout.Replicas[q] {
		for _, m := range measured {
			x := longer(m, int(r))
			if !(x > 0 && x >= above/2) || e.layout.Role[r] < 0 {
				return false
			}

			all = append(all, x)
		}

		stages[e.layout.Roles[e.layout.Role[r]].Stage] = true
	}

	usual := robust.Median64(all)
	alike := usual >= likeWork*above || above-usual < e.cfg.MinEffect
	return alike && len(stages) == e.layout.Stages && e.singleNode(e.layout.Replicas[q]) < 0
}

// givenMore reports whether a rank was given as many more tokens as it takes longer, and how times go with tokens is not known, for nobody's
// change from step to step: where they do, what they explain is taken out of what the tests see.
func (e *Engine) givenMore(c *candidate) bool {
	if c.has[loading] || c.has[saving] || e.tokens.Explains(int(compute)) {
		return false
	}

	more := e.moreTokens(c.row)
	return more > 0 && (more >= likeWork*c.effect || c.effect-more < e.cfg.MinEffect)
}

// moreTokens is how many more tokens row r is given than its peers, a logarithm; 0 where nobody tells.
func (e *Engine) moreTokens(r int) float64 {
	return robust.Finite(math.Log(e.recent.Median(frame.Tokens, r, threshold.Window)/e.roleMedian(frame.Tokens, r, threshold.Window, nil)), 0)
}

// sudden is the nodes that became slow in the same moment as many others: a switch or
// a storage did it. What the record begins with has no moment.
func (e *Engine) sudden(all []candidate) map[string]bool {
	at := map[string]int{}
	for i := range all {
		c := &all[i]
		if c.main == saving || e.tracks[c.main].FromStart(c.row) || c.sinceAt == 0 {
			continue
		}

		node := e.nodeOf(c.row)
		if old, ok := at[node]; !ok || c.sinceAt < old {
			at[node] = c.sinceAt
		}
	}

	out := map[string]bool{}
	for node, x := range at {
		n := 0
		for _, y := range at {
			if abs(x-y) <= commonSteps {
				n++
			}
		}

		out[node] = n >= commonNodes && 8*n >= len(e.layout.Nodes)
	}

	return out
}

// standing reports whether so many nodes of the job are as slow as c that they can't
// all be bad. Up to half of them may be, if each clearly became slow against its own
// past while the others did not (as slow as those that always were is as slow as their kind), or
// is a rank among well ones of its own node. In a small job that half is counted of those that became slow together, for one fault
// after the other are two; and it must be half of the ranks as well, for what is common to nodes
// is no single device's. What was always so may be a mix of hardware, and is where a node is as much
// faster than its peers: no fault makes it so. (In a small job half a role may be the
// slow rank and who waits for it.)
func (e *Engine) standing(c *candidate) bool {
	if c.main >= signals {
		return false // saves are compared one by one
	}

	total := e.nodes()
	if c.onlyOwn() && e.layout.Stages > 1 { // a victim's waits are in own time: only half of the nodes, all their time, are a kind
		return total >= smallJob && !e.onlyOfNode(c) && (e.halfOfKind(c) || !e.rose(c) && (e.forwardOfKind(c) || e.quickOfKind(c)))
	}

	k, always, together, ranks, mixed, more, above := total, total, total, e.n, total >= smallJob, 0.0, 0.0
	for s := range signals { // who waits in one signal does not in the other
		if c.has[s] {
			t := e.tracks[s]
			a := e.alike(t, c.row)
			k, always, together, ranks = min(k, len(a.slow)), min(always, len(a.always)), min(together, len(a.together)), min(ranks, a.ranks)
			mixed, more = mixed && s != loading && e.habitual(t, c.row) && len(a.fast) > 0, max(more, t.AboveHabit(c.row))
			above = max(above, t.Standing(c.row))
		}
	}

	// A few that are far slower than the rest slow the job, whatever they are.
	far := above >= kindSpread && 2*k < total
	mixed = mixed && !far
	alone := e.onlyOfNode(c)
	if mixed && more < e.cfg.MinEffect && !alone {
		return true // whatever else changed: the node is as slow as it always was
	}

	most := max(1, commonShare*float64(total))
	if rose := e.rose(c); rose || alone {
		if rose && alone { // no kind, however slow others always were
			k, always = k-always, 0
		}

		if total < smallJob {
			k = together
			if 2*ranks <= e.n {
				k = 0
			}
		}

		return float64(always) > most || float64(k) > most && 2*k > total
	}

	if total <= smallJob { // one fault after the other are two
		k = together
	}

	return mixed || float64(k) > most && !far
}

// halfOfKind reports whether half of the job's nodes, or of those of a rank's role, always had as much own time.
func (e *Engine) halfOfKind(c *candidate) bool {
	half := func(rows []int32) bool {
		all, had := e.everHad(rows, c.row, 1)
		return all >= commonNodes && 2*had >= all
	}
	return half(e.graph.All()) || half(e.layout.Roles[e.layout.Role[c.row]].Rows)
}

// quickOfKind reports whether as many nodes always had as much less own time as a rank's, and others, always had more.
func (e *Engine) quickOfKind(c *candidate) bool {
	_, slow := e.everHad(e.graph.All(), c.row, 1)
	_, quick := e.everHad(e.graph.All(), c.row, -1)
	return slow > 1 && quick >= slow
}

// everHad is on how many nodes the rows are, and on how many of these one of them always had as much more own time
// than its peers as a rank has, times sign: at least half as much, and more than chance makes.
func (e *Engine) everHad(rows []int32, rank int, sign float64) (all, had int) {
	t := e.tracks[own]
	return e.nodesWith(rows, func(p int) bool { return t.Habitual(p) && sign*t.Standing(p) >= max(t.Standing(rank)/2, t.Doubt(p)) })
}

// nodesWith is on how many nodes the rows are, and on how many of these one of them is so.
func (e *Engine) nodesWith(rows []int32, is func(row int) bool) (all, with int) {
	has := map[int32]bool{}
	for _, r := range rows {
		if n := e.layout.Node[r]; n >= 0 {
			has[n] = has[n] || is(int(r))
		}
	}

	for _, x := range has {
		if x {
			with++
		}
	}

	return len(has), with
}

// forwardOfKind reports whether the forward passes of a rank, in which no other stage is waited for, always took
// longer by at least half as much as its own time does, and those of other nodes as much less.
func (e *Engine) forwardOfKind(c *candidate) bool {
	t := e.tracks[compute]
	return t.Standing(c.row) >= e.tracks[own].Standing(c.row)/2 && e.habitual(t, c.row) && len(e.alike(t, c.row).fast) > 0
}

// onlyOfNode reports whether the other ranks of the rank's own node are well, as far as they can be told
// from others that do the same work: what a single one of them has is no other model of hardware.
func (e *Engine) onlyOfNode(c *candidate) bool {
	if e.seen[frame.Self] && !c.has[own] {
		return false // it may wait in its forward passes
	}

	mates := e.graph.Mates(c.row)
	peers := 0
	for p := range e.n {
		g := e.layout.Role[p]
		if p == c.row || e.layout.Node[p] != e.layout.Node[c.row] || g < 0 || g != e.layout.Role[c.row] && e.home[g] >= 0 {
			continue
		}

		peers++
		waits := c.has[own] && (slices.Contains(mates, int32(p)) || e.unknownMates()) // in its forward passes, for this one
		for s := range signals {
			if t := e.tracks[s]; c.has[s] && !(waits && s == compute) && t.Standing(p) >= t.Standing(c.row)/2 {
				return false
			}
		}
	}

	return peers > 0
}

// likes are the nodes that are about as slow as one of them in a signal, those of them
// that were so before, those that became so when it did, and how many ranks those are, and
// those about as fast as it is slow. A node is so with half as many such ranks or more: of a
// whole host a single rank elsewhere is no like.
type likes struct {
	slow, always, together, fast map[int32]bool
	ranks                        int
}

// alike finds the nodes that are like row r in a signal.
func (e *Engine) alike(t *sequential.Test, r int) likes {
	out := likes{slow: map[int32]bool{}, always: map[int32]bool{}, together: map[int32]bool{}, fast: map[int32]bool{}}
	above := t.Standing(r)
	slow := func(p int) bool { return t.Standing(p) >= above/2 && t.Standing(p) >= t.Doubt(p) } // most are out by the first
	// Among two of each kind the new are half as far from the middle as one old is elsewhere.
	fast := func(p int) bool { return t.Standing(p) <= -above/3 && t.Standing(p) <= -t.Doubt(p) && !t.Few(p) }
	slowOf, fastOf := map[int32]int{}, map[int32]int{}
	for p := range e.n {
		switch n := e.layout.Node[p]; {
		case n < 0:
		case slow(p):
			slowOf[n]++
		case fast(p):
			fastOf[n]++
		}
	}

	most := slowOf[e.layout.Node[r]] // none where its own is not known
	for p := range e.n {
		n := e.layout.Node[p]
		switch {
		case n < 0:
		case slow(p) && 2*slowOf[n] >= most:
			out.slow[n] = true
			unknown := !t.HasPast(p) && !t.HasPast(r) // both were so before they had one, whenever that was told
			if !t.Active(p) || unknown || abs(t.SinceAt(p)-t.SinceAt(r)) <= threshold.Window/2 {
				out.together[n] = true
				out.ranks++
			}

			if t.WasAbove(p, max(above/2, t.Doubt(p))) {
				out.always[n] = true
			}

		case fast(p) && 2*fastOf[n] >= most:
			out.fast[n] = true
		}
	}

	return out
}

// fewPeers reports whether the rank is compared with a single other one, or all of its role on its node with those of
// few other nodes, by no more than hosts of one model differ, and its node's other ranks are not well.
func (e *Engine) fewPeers(c *candidate) bool {
	g := e.layout.Role[c.row]
	if g < 0 || c.main >= signals {
		return false
	}

	rows, t, others := e.layout.Roles[g].Rows, e.tracks[c.main], map[int32]bool{}
	if len(rows) == 2 {
		return true
	}

	for _, p := range rows {
		if n := e.layout.Node[p]; n != e.layout.Node[c.row] {
			if others[n] = true; len(others) > fewHosts {
				return false
			}
		} else if t.Standing(int(p)) < t.Standing(c.row)/2 {
			return false // a well one beside it tells
		}
	}

	return len(others) > 0 && c.main != loading && e.habitual(t, c.row) && t.Standing(c.row) < modelSpread && !e.onlyOfNode(c)
}

// rose reports whether the rank became slow against its own past, in any signal.
func (e *Engine) rose(c *candidate) bool {
	for s := range signals {
		if t := e.tracks[s]; c.has[s] && t.Rose(c.row) && !e.asItsHost(t, c.row) {
			return true
		}
	}

	return false
}

// habitual reports whether the rank, or its host, always was as slow in a signal.
func (e *Engine) habitual(t *sequential.Test, r int) bool {
	return t.Habitual(r) || e.asItsHost(t, r)
}

// asItsHost reports whether a rank is as slow as most others of its stage on its own node, and these always were so: all
// of them are of one model, and one whose first steps were quicker by chance did not become slow.
func (e *Engine) asItsHost(t *sequential.Test, r int) bool {
	mates, alike := 0, 0
	for p := range e.n {
		g := e.layout.Role[p]
		if p == r || e.layout.Node[p] != e.layout.Node[r] || g < 0 || e.layout.Role[r] < 0 || e.layout.Roles[g].Stage != e.layout.Roles[e.layout.Role[r]].Stage {
			continue
		}

		mates++
		if x := t.Standing(p); x >= t.Standing(r)/2 && t.Standing(r)-x < e.cfg.MinEffect && t.Habitual(p) && !t.Rose(p) {
			alike++
		}
	}

	return 2*alike > mates
}

// nodes is the number of nodes with recorded ranks.
func (e *Engine) nodes() int {
	n, _ := e.nodesWith(e.graph.All(), func(int) bool { return true })
	return n
}
