package detect

import (
	"math"
	"slices"

	"laggard/analyzer/frame"
)

// candidate is a rank that is slow now, before anybody is accused.
type candidate struct {
	row             int
	has             [signals + 1]bool // signals that are slow, saving included
	main            signal
	phase           uint8 // degraded, or suspect
	since, detected int64
	sinceAt         int
	effect, z       float64
	excess          float64 // seconds a step more than peers, of the main signal
	few             bool
	self            bool // known from its own past only
	sure            bool // a carried suspicion met it again
}

// onlyOwn reports whether nothing but self time speaks against the rank: it may
// be waiting where no range was recorded.
func (c *candidate) onlyOwn() bool {
	return c.has[own] && !c.has[compute] && !c.has[loading] && !c.has[saving]
}

// active reports whether unit r is slow now in the eyes of a window test.
func (t *track) active(r int) bool {
	return t.phase[r] == degraded || t.phase[r] == suspect && t.passes[r] >= t.need(r) && !t.masked(r)
}

// candidates lists the ranks that are slow now in any signal.
func (e *Engine) candidates() []candidate {
	var out []candidate
	for r := range e.n {
		c := candidate{row: r, main: -1}
		for s := range signals {
			t := e.tracks[s]
			if !t.active(r) {
				continue
			}
			c.has[s] = true
			x := e.excess(r, s, nil)
			if c.main < 0 || x > c.excess {
				c.main, c.excess, c.effect, c.z, c.few = s, x, float64(t.effect[r]), float64(t.z[r]), t.few[r]
			}
			// Self time alone may have been up before, as a wait; what measured work
			// says counts.
			if c.phase == 0 || s != own && t.detected[r] < c.detected || s == loading && c.onlyOwn() {
				c.since, c.detected, c.sinceAt = e.sinceOf(t, r), t.detected[r], int(t.sinceAt[r])
			}
			c.phase = degraded
		}
		if e.saver.guilty(r) {
			c.has[saving] = true
			x := e.savingCost(r)
			if c.main < 0 || x > c.excess {
				c.main, c.excess, c.effect, c.z = saving, x, float64(e.saver.rise[r]), float64(e.saver.rise[r])/math.Max(e.saver.sigma, saveNoise)
			}
			if c.phase == 0 || e.saver.third[r] < c.detected {
				c.since, c.detected = e.saver.since[r], e.saver.third[r]
			}
			c.phase = degraded
		}
		if c.main >= 0 {
			out = append(out, c)
		}
	}
	return out
}

// sinceOf is the first slow step of the episode; the first recorded one where
// the rank was slow from the start.
func (e *Engine) sinceOf(t *track, r int) int64 {
	if t.fromStart(r) {
		return t.firstLabel[r]
	}
	return t.since[r]
}

// excess is how many seconds a step more than its peers rank r spends in the
// signal now; skip leaves out other culprits.
func (e *Engine) excess(r int, s signal, skip func(int) bool) float64 {
	k := min(window, max(minBold, e.tracks[s].age(r)))
	mine, theirs := e.value(r, s, k), e.peers(r, s, k, skip)
	if x := mine - theirs; x == x {
		return x
	}
	return mine * (1 - math.Exp(-float64(e.tracks[s].effect[r])))
}

// value is the median of the signal's raw time of a rank, seconds.
func (e *Engine) value(r int, s signal, k int) float64 {
	switch s {
	case own:
		return e.recent.median(frame.Self, r, k)
	case loading:
		return e.recent.median(frame.DataLoader, r, k)
	}
	fp, bp := e.recent.median(frame.FP, r, k), e.recent.median(frame.Backward, r, k)
	if bp == bp {
		return fp + bp
	}
	return fp
}

// peers is the same over the other ranks of the role.
func (e *Engine) peers(r int, s signal, k int, skip func(int) bool) float64 {
	g := e.layout.Role[r]
	if g < 0 {
		return math.NaN()
	}
	var v []float64
	for _, p := range sample(e.layout.Roles[g].Rows, r) {
		if int(p) == r || skip != nil && skip(int(p)) {
			continue
		}
		if x := e.value(int(p), s, k); x == x {
			v = append(v, x)
		}
	}
	if len(v) > 0 && len(v) < medianPeers-1 {
		return slices.Min(v)
	}
	return middle(v)
}

// sampleSize bounds the peers whose medians a sentence quotes.
const sampleSize = 129

// sample returns at most sampleSize of the rows, evenly.
func sample(rows []int32, _ int) []int32 {
	if len(rows) <= sampleSize {
		return rows
	}
	out := make([]int32, 0, sampleSize)
	for i := range sampleSize {
		out = append(out, rows[i*len(rows)/sampleSize])
	}
	return out
}

// accuse removes who must not be named from the candidates: victims, common
// causes, and those of whom the culprit may be missing from the record.
func (e *Engine) accuse(all []candidate) (culprits, common []candidate) {
	keep := all[:0:0]
	measured := map[int32]bool{} // nodes with measured work against them
	for i := range all {
		if !all[i].onlyOwn() {
			measured[e.layout.Node[all[i].row]] = true
		}
	}
	for i := range all {
		c := &all[i]
		if c.onlyOwn() && (measured[e.layout.Node[c.row]] || !e.convincing(c, all)) {
			continue
		}
		if e.tensorVictim(c) || e.maybeStage(c) || !e.visible(c) {
			continue
		}
		keep = append(keep, *c)
	}
	return e.withoutCommon(keep)
}

// convincing decides on a rank with nothing but self time against it. Time that
// no range covers may be a wait: so its whole pipeline must be recorded, nobody
// in it may have more of it, nobody else may explain it, its own recorded waiting
// must be down by as much, and the others must really wait for it.
func (e *Engine) convincing(c *candidate, all []candidate) bool {
	r := c.row
	q := e.layout.Replica[r]
	if q < 0 || c.z < ownAlarm || !e.recorded(q) || e.links.covers(r) {
		return false
	}
	k := min(window, max(minBold, e.tracks[own].age(r)))
	for _, p := range e.layout.Replicas[q] {
		if int(p) == r || e.layout.Role[p] == e.layout.Role[r] {
			continue
		}
		x := e.value(int(p), own, k) - e.peers(int(p), own, k, nil)
		same := e.layout.Node[p] == e.layout.Node[r]
		if x > c.excess*pipelineLead || !same && x > c.excess {
			return false
		}
	}
	for i := range all {
		if e.explains(&all[i], c) {
			return false
		}
	}
	mine := e.recent.median(frame.Exposed, r, k)
	theirs := e.recent.over(frame.Exposed, sample(e.layout.Roles[e.layout.Role[r]].Rows, r), k, func(p int) bool { return p == r })
	if d := theirs - mine; d == d && d < identityShare*c.excess {
		return false
	}
	return e.awaited(c, k) || e.began(c, k)
}

// began decides on a rank that the job hardly waits for (others have slack, or
// wait somewhere else) but whose self time rose clearly above its own past. A
// wait that no range records grows only when somebody makes others wait: then
// recorded waits grow as well, and its pipeline would have to be the late one.
func (e *Engine) began(c *candidate, k int) bool {
	t := e.tracks[own]
	if t.fromStart(c.row) || t.baseN[c.row] < minBase || c.z < beganAlarm || c.effect < e.cfg.Effect ||
		!e.roleRecorded(c.row) || e.slowest(c.row, k) < slowestShare {
		return false
	}
	if late, known := e.lateness(c.row, k); known && late >= beganShare*c.excess {
		return true
	}
	grown, known := e.level.waitGrowth(c.since)
	return known && grown < beganShare*c.excess
}

// roleRecorded reports whether every rank of r's role has records.
func (e *Engine) roleRecorded(r int) bool {
	for _, p := range e.layout.Roles[e.layout.Role[r]].Rows {
		if e.judged[p] == 0 {
			return false
		}
	}
	return true
}

// explains reports whether culprit o is why rank c has more uncovered time.
func (e *Engine) explains(o, c *candidate) bool {
	if o.row == c.row || e.layout.Node[o.row] == e.layout.Node[c.row] {
		return false
	}
	if o.onlyOwn() {
		return abs(o.sinceAt-c.sinceAt) <= 2*commonSteps && o.excess*0.9 > c.excess
	}
	if e.layout.Replica[o.row] == e.layout.Replica[c.row] {
		return true // its pipeline waits for it anyway
	}
	x := o.excess
	if y := e.excess(o.row, own, nil); y == y && o.main == compute {
		x = max(x, y)
	}
	return x >= explainedShare*c.excess
}

// awaited reports whether the job really waits for the rank. With a pipeline its
// mates in other stages must reach the gradient reduction late together with it,
// and so wait less there than their peers; without one, the rank or its node must
// be the slowest of all in most steps, which a rank that waits itself never is.
func (e *Engine) awaited(c *candidate, k int) bool {
	r := c.row
	if e.innerLead(r, k) >= awaitedShare*c.excess {
		return true
	}
	if e.layout.Stages > 1 {
		if late, known := e.lateness(r, k); known {
			return late >= awaitedShare*c.excess
		}
	}
	return e.roleRecorded(r) && e.slowest(r, k) >= slowestShare
}

// innerLead is how many seconds less than the other members r waits in the groups
// that work inside the forward pass: all of them wait for it there.
func (e *Engine) innerLead(r, k int) float64 {
	sum := 0.0
	for _, m := range innerMetrics {
		g := e.groupOf(r, m)
		if g == nil || !g.Complete() || !e.seen[m] {
			continue
		}
		theirs := e.recent.over(m, sample(g.Rows, 0), k, func(p int) bool { return p == r })
		if d := theirs - e.recent.median(m, r, k); d == d {
			sum += d
		}
	}
	return sum
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
		if e.layout.Roles[g].Stage == e.layout.Roles[own].Stage || len(v) >= sampleSize {
			continue
		}
		mine := e.recent.median(frame.DP, int(p), k)
		theirs := e.recent.over(frame.DP, sample(e.layout.Roles[g].Rows, 0), k, func(o int) bool { return o == int(p) })
		if d := theirs - mine; d == d {
			v = append(v, d)
		}
	}
	return middle(v), len(v) > 0
}

// slowest is the share of the last k steps in which a rank of r's node has the
// largest self time of the role.
func (e *Engine) slowest(r, k int) float64 {
	cells := e.recent.cells[frame.Self]
	if cells == nil {
		return 0
	}
	hits, n := 0, 0
	for i := max(0, e.recent.count-k); i < e.recent.count; i++ {
		at, top := int32(-1), float32(-1)
		for _, p := range e.layout.Roles[e.layout.Role[r]].Rows {
			if x := cells[(i%window)*e.n+int(p)]; x > top {
				at, top = p, x
			}
		}
		if at < 0 || cells[(i%window)*e.n+r] != cells[(i%window)*e.n+r] {
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
	if e.layout.Partial[q] {
		return false
	}
	for _, r := range e.layout.Replicas[q] {
		if e.judged[r] == 0 {
			return false
		}
	}
	return true
}

// tensorVictim reports whether the rank only shares the fate of its tensor,
// context or expert group: collectives inside the forward pass make all of them as
// slow as the slowest, which waits least in them. What it waits there beyond what
// its peers wait in their groups is then most of its excess.
func (e *Engine) tensorVictim(c *candidate) bool {
	if !c.has[compute] {
		return false
	}
	k := min(window, max(minBold, e.tracks[compute].age(c.row)))
	x := max(0, e.excess(c.row, compute, nil))
	waits := 0.0
	for _, m := range []frame.Metric{frame.TP, frame.EP, frame.CP} {
		if !e.seen[m] {
			continue
		}
		mine := e.groupWait(c.row, m, k)
		if mine != mine {
			continue
		}
		var usual []float64
		for _, p := range sample(e.layout.Roles[e.layout.Role[c.row]].Rows, 0) {
			if len(usual) >= usualSample {
				break
			}
			if w := e.groupWait(int(p), m, k); int(p) != c.row && w == w {
				usual = append(usual, w)
			}
		}
		if u := middle(usual); u == u {
			waits += mine - u
		}
	}
	return waits >= victimShare*x || e.maybeVictim(c, k, x)
}

// maybeVictim reports whether a rank may be the victim of a member of its inner
// groups that has no records: others there are as slow, and nobody is seen to be
// waited for.
func (e *Engine) maybeVictim(c *candidate, k int, x float64) bool {
	t := e.tracks[compute]
	mine := e.levelOf(t, c.row)
	for _, m := range innerMetrics {
		g := e.groupOf(c.row, m)
		if g == nil || !e.seen[m] || g.Complete() && !slices.ContainsFunc(g.Rows, func(p int32) bool { return e.judged[p] == 0 }) {
			continue
		}
		like := 0
		for _, p := range sample(g.Rows, 0) {
			if e.layout.Node[p] != e.layout.Node[c.row] && e.levelOf(t, int(p)) >= mine/2 {
				like++
			}
		}
		if like == 0 {
			continue
		}
		theirs := e.recent.over(m, sample(g.Rows, 0), k, func(p int) bool { return p == c.row })
		if theirs-e.recent.median(m, c.row, k) < victimShare*x {
			return true
		}
	}
	return false
}

// groupWait is what rank r waits in its group of that dimension: its time there
// less the shortest member's; NaN when a member is not known.
func (e *Engine) groupWait(r int, m frame.Metric, k int) float64 {
	g := e.groupOf(r, m)
	if g == nil || !g.Complete() || len(g.Rows) > sampleSize {
		return math.NaN()
	}
	low := math.NaN()
	for _, p := range g.Rows {
		if x := e.recent.median(m, int(p), k); x == x && !(x >= low) {
			low = x
		}
	}
	return e.recent.median(m, r, k) - low
}

// groupOf is the group of row r in the metric's dimension, nil when none is known.
func (e *Engine) groupOf(r int, m frame.Metric) *frame.Group {
	if e.inGroup[m] == nil {
		e.inGroup[m] = make([]int32, e.n)
		for i := range e.inGroup[m] {
			e.inGroup[m][i] = -1
		}
		for i := range e.layout.Groups {
			if dimMetric[e.layout.Groups[i].Dim] == m {
				for _, p := range e.layout.Groups[i].Rows {
					e.inGroup[m][p] = int32(i)
				}
			}
		}
	}
	if i := e.inGroup[m][r]; i >= 0 {
		return &e.layout.Groups[i]
	}
	return nil
}

// visible reports whether the raw times show the effect as far as their noise
// lets them: what only a correction made is no evidence that a person can check.
func (e *Engine) visible(c *candidate) bool {
	s := c.main
	if s >= loading {
		return true
	}
	t := e.tracks[s]
	k := min(window, max(minBold, t.age(c.row)))
	raw := math.Log(e.value(c.row, s, k) / e.peers(c.row, s, k, nil))
	if raw != raw {
		return true
	}
	noise := math.Hypot(float64(t.noiseOf(c.row)), math.Sqrt2*e.level.bulk[s])
	return raw >= c.effect/2-visibleSigmas*medianLoss*noise/math.Sqrt(float64(k))
}

// maybeStage reports whether the rank may just be one of a heavier stage: roles
// are not known, it was slow from the start, and others are as slow.
func (e *Engine) maybeStage(c *candidate) bool {
	if e.layout.Certain || c.main >= loading || !e.tracks[c.main].fromStart(c.row) {
		return false
	}
	t := e.tracks[c.main]
	mine := e.levelOf(t, c.row)
	for r := range e.n {
		if r == c.row || e.layout.Role[r] != e.layout.Role[c.row] {
			continue
		}
		x := e.levelOf(t, r)
		if x >= float32(e.cfg.MinEffect) && x >= mine-stageLikeness && x <= mine+stageLikeness {
			return true
		}
	}
	return false
}

// levelOf is the median residual of a unit over its window.
func (e *Engine) levelOf(t *track, r int) float32 {
	if t.first[r] < 0 {
		return nan32
	}
	return median(t.values(r, window))
}

// withoutCommon drops nodes that became slow in the same moment: a switch or a
// storage did it. What the record begins with has no moment.
func (e *Engine) withoutCommon(all []candidate) (left, dropped []candidate) {
	at := map[string]int{}
	for i := range all {
		c := &all[i]
		if c.main == saving || e.tracks[c.main].fromStart(c.row) || c.sinceAt == 0 {
			continue
		}
		node := e.nodeOf(c.row)
		if old, ok := at[node]; !ok || c.sinceAt < old {
			at[node] = c.sinceAt
		}
	}
	common := map[string]bool{}
	for node, x := range at {
		n := 0
		for _, y := range at {
			if abs(x-y) <= commonSteps {
				n++
			}
		}
		common[node] = n >= commonNodes && 8*n >= len(e.layout.Nodes)
	}
	for _, c := range all {
		if common[e.nodeOf(c.row)] {
			dropped = append(dropped, c)
		} else {
			left = append(left, c)
		}
	}
	return left, dropped
}

func abs(x int) int { return max(x, -x) }

// covers reports whether row r is in a group whose link is slow.
func (w *linkWatch) covers(r int) bool {
	for g := range w.groups {
		if w.phase[g] == degraded && slices.Contains(w.groups[g].Rows, int32(r)) {
			return true
		}
	}
	return false
}
