package detect

import (
	"fmt"
	"math"
	"slices"

	"laggard/analyzer/frame"
	"laggard/schemas/verdict"
)

// describe makes the finding on one candidate: the cause that covers what its
// peers wait for, the numbers behind it, and what it costs.
func (e *Engine) describe(c *candidate, all []candidate) finding {
	culprit := map[int]bool{}
	for i := range all {
		culprit[all[i].row] = true
	}
	skip := func(r int) bool { return culprit[r] }
	f := finding{Cause: e.cause(c, skip), Confidence: e.confidence(c)}
	f.Slowdown = e.slowdown(c, skip)
	f.Impact = e.impact(c, skip)
	f.Slowdown, f.Impact, f.Confidence = finite(f.Slowdown, 1), finite(f.Impact, 0), finite(f.Confidence, 0.5)
	f.Evidence = e.evidence(c, skip)
	f.Detail = e.sentence(c, &f)
	return f
}

// cause applies the table of causes: the one whose excess covers most, and at
// least causeShare, of all measured excess.
func (e *Engine) cause(c *candidate, skip func(int) bool) string {
	var x [signals + 1]float64
	for s := range signals {
		if c.has[s] {
			x[s] = max(0, e.excess(c.row, s, skip))
		}
	}
	if c.has[saving] {
		x[saving] = e.savingCost(c.row)
	}
	self := max(x[compute], x[own])
	total := self + x[loading] + x[saving]
	share := causeShare
	if e.estimated {
		share = estimatedShare
	}
	switch {
	case total <= 0:
		return verdict.Unattributed
	case x[loading] >= share*total:
		return verdict.DataLoader
	case x[saving] >= share*total:
		return verdict.Checkpoint
	case self < share*total:
		return verdict.Unattributed
	}
	if e.tensorLink(c.row) {
		return verdict.Communication
	}
	if !e.seen[frame.FP] {
		return verdict.Unattributed
	}
	if e.coversSelf(c, skip) {
		return verdict.Compute
	}
	return verdict.HostDelay
}

// coversSelf reports whether forward time is up by about as much as self time: a
// slow device slows forward as well, what slows all but forward is the host. A
// small rise need not have alarmed by itself.
func (e *Engine) coversSelf(c *candidate, skip func(int) bool) bool {
	if !e.seen[frame.Self] {
		return c.has[compute]
	}
	s := own
	if c.has[compute] {
		s = compute
	}
	k := min(window, max(minBold, e.tracks[s].age(c.row)))
	if inside, known := e.inside(c, k, skip); known {
		return inside
	}
	fp, self := e.ratioOf(c.row, compute, k, skip), e.ratioOf(c.row, own, k, skip)
	if c.has[compute] {
		return !(fp < computeShare*self)
	}
	return fp >= max(computeShare*self, e.cfg.MinEffect/2)
}

// ratioOf is the log ratio of rank r to its peers: of the raw times, or without
// what work explains where that is noisy.
func (e *Engine) ratioOf(r int, s signal, k int, skip func(int) bool) float64 {
	if e.level.bulk[s] < noisyRatio {
		return math.Log(e.value(r, s, k) / e.peers(r, s, k, skip))
	}
	return float64(median(e.tracks[s].values(r, k)))
}

// inside decides for a rank that the members of its tensor, context or expert
// groups wait for: inside the forward pass, then all of them are as long, or
// before it begins, then theirs are longer than its own.
func (e *Engine) inside(c *candidate, k int, skip func(int) bool) (inside, known bool) {
	x := e.excess(c.row, own, skip)
	if !(x > 0) || e.innerLead(c.row, k) < awaitedShare*x {
		return false, false
	}
	most := math.NaN()
	for _, m := range innerMetrics {
		g := e.groupOf(c.row, m)
		if g == nil || !g.Complete() || !e.seen[m] {
			continue
		}
		d := e.recent.over(frame.FP, sample(g.Rows, 0), k, func(p int) bool { return p == c.row || skip(p) }) - e.recent.median(frame.FP, c.row, k)
		if d == d && !(most >= d) {
			most = d
		}
	}
	return most < beforeShare*x, most == most
}

// tensorLink reports whether the rank computes slowly because the wire of a group
// that works inside the forward pass is slow.
func (e *Engine) tensorLink(r int) bool {
	for g := range e.links.groups {
		dim := e.links.groups[g].Dim
		if (dim == "tp" || dim == "cp" || dim == "ep") && e.links.phase[g] == degraded && slices.Contains(e.links.groups[g].Rows, int32(r)) {
			return true
		}
	}
	return false
}

// slowdown is the ratio to the peers in the main signal; for data loading the
// ratio of the whole work.
func (e *Engine) slowdown(c *candidate, skip func(int) bool) float64 {
	ratio := math.Exp(c.effect)
	switch c.main {
	case saving:
		return math.Exp(c.effect)
	case loading:
		if t := e.stepMedian; t > c.excess && c.excess > 0 {
			return t / (t - c.excess)
		}
		return ratio
	}
	s := c.main
	if c.has[compute] {
		s = compute
	}
	k := min(window, max(minBold, e.tracks[s].age(c.row)))
	x := e.value(c.row, s, k) / e.peers(c.row, s, k, skip)
	if x != x || math.IsInf(x, 0) || e.tracks[s].noiseOf(c.row) > noisyWork {
		return ratio // what is left after work was taken out tells more
	}
	return x
}

// savingCost is the excess of a slow save spread over the steps between saves.
func (e *Engine) savingCost(r int) float64 {
	return float64(e.saver.cost[r]) / max(1, e.saver.every)
}

// impact bounds the share of the step that the job would save: the rank's time
// above the slowest of its peers that are well, capped by what others wait more.
func (e *Engine) impact(c *candidate, skip func(int) bool) float64 {
	t := e.stepMedian
	if t <= 0 {
		return 0
	}
	x := 0.0
	for s := range signals {
		if c.has[s] || s == own && c.has[compute] && e.seen[frame.Self] {
			if y := e.lead(c.row, s, skip); y == y {
				if s == loading {
					x += max(0, y)
				} else {
					x = max(x, y)
				}
			}
		}
	}
	if w := e.waiting(c.row, skip); w == w {
		x = min(x, w)
	}
	if c.has[saving] {
		x += e.savingCost(c.row)
	}
	return min(1, max(0, x/t))
}

// lead is how far rank r is above the slowest healthy rank of its role, step by
// step: in the mean, for in steps in which another is slower it costs nothing.
func (e *Engine) lead(r int, s signal, skip func(int) bool) float64 {
	g := e.layout.Role[r]
	if g < 0 {
		return math.NaN()
	}
	k := min(window, max(minBold, e.tracks[s].age(r)))
	sum, n := 0.0, 0
	for i := max(0, e.recent.count-k); i < e.recent.count; i++ {
		mine := e.cell(s, i, r)
		if mine != mine {
			continue
		}
		worst := nan32
		for _, p := range e.layout.Roles[g].Rows {
			if x := e.cell(s, i, int(p)); x == x && int(p) != r && !(x <= worst) && !skip(int(p)) {
				worst = x
			}
		}
		if worst == worst {
			sum += float64(max(0, mine-worst))
			n++
		}
	}
	if n == 0 {
		return e.excess(r, s, skip)
	}
	return sum / float64(n)
}

// cell is the raw time of a signal in the i-th analysed step.
func (e *Engine) cell(s signal, i, r int) float32 {
	at := func(m frame.Metric) float32 {
		if v := e.recent.cells[m]; v != nil {
			return v[(i%window)*e.n+r]
		}
		return nan32
	}
	switch s {
	case own:
		return at(frame.Self)
	case loading:
		return at(frame.DataLoader)
	}
	fp := at(frame.FP)
	if bp := at(frame.Backward); bp == bp {
		return fp + bp
	}
	return fp
}

// waiting is what the other ranks wait more than r does, seconds a step: the
// median over the job of the waits in its groups, NaN when none is recorded.
func (e *Engine) waiting(r int, skip func(int) bool) float64 {
	if !e.seen[frame.Exposed] {
		return math.NaN()
	}
	mine := e.recent.median(frame.Exposed, r, window)
	var v []float64
	for _, g := range e.layout.Roles[e.layout.Role[r]].Rows {
		if int(g) != r && !skip(int(g)) && len(v) < sampleSize {
			if x := e.recent.median(frame.Exposed, int(g), window) - mine; x == x {
				v = append(v, max(0, x))
			}
		}
	}
	if x := e.jobWait(); x == x && len(v) > 0 {
		return min(x, middle(v))
	}
	return middle(v)
}

// jobWait is the median over ranks of the waits in their groups: each group's
// time less that of its shortest member.
func (e *Engine) jobWait() float64 {
	wait, seen := make(map[int32]float64, e.n), make(map[int32]float64, e.n)
	for g := range e.links.groups {
		m := e.links.metric[g]
		if m >= frame.MetricCount || !e.seen[m] {
			continue
		}
		rows := e.links.groups[g].Rows
		if len(rows) > sampleSize || len(wait) > 8*sampleSize {
			continue
		}
		low := math.NaN()
		for _, r := range rows {
			if x := e.recent.median(m, int(r), window); x == x && !(x >= low) {
				low = x
			}
		}
		for _, r := range rows {
			if x := e.recent.median(m, int(r), window); x == x {
				wait[r] += x - low
				seen[r] += x
			}
		}
	}
	var v []float64
	for r, x := range wait {
		if seen[r] >= causeShare*e.recent.median(frame.Comm, int(r), window) { // else its waits are elsewhere
			v = append(v, x)
		}
	}
	slices.Sort(v)
	if len(v) < 4 {
		return math.NaN()
	}
	return middle(v)
}

// confidence grows with z and shrinks with everything that had to be assumed.
func (e *Engine) confidence(c *candidate) float64 {
	x := 1 - 0.5*math.Exp(-c.z/4)
	switch {
	case c.self:
		x *= 0.7
	case c.few:
		x *= 0.9
	}
	if c.onlyOwn() {
		x *= 0.85
		if e.estimated {
			x *= 0.9
		}
	}
	if !e.layout.Certain {
		x *= 0.8
	}
	if c.sure {
		x = 1 - (1-x)/2
	}
	return math.Round(min(x, 0.999)*1000) / 1000
}

// evidence lists what a person would check.
func (e *Engine) evidence(c *candidate, skip func(int) bool) []verdict.Evidence {
	rank := e.layout.Ranks[c.row]
	var out []verdict.Evidence
	add := func(name string, v, p, z float64) {
		if v == v && p == p {
			out = append(out, verdict.Evidence{Metric: name, Rank: rank, Value: round6(v), Peers: round6(p), Z: finite(math.Round(z*10)/10, 0)})
		}
	}
	for s := range signals {
		t := e.tracks[s]
		if !c.has[s] && !(s == own && c.has[compute]) && !(s == compute && c.has[own]) {
			continue
		}
		k := min(window, max(minBold, t.age(c.row)))
		if s == compute {
			add("fp", e.recent.median(frame.FP, c.row, k), e.roleMedian(frame.FP, c.row, k, skip), float64(t.z[c.row]))
			add("backward", e.recent.median(frame.Backward, c.row, k), e.roleMedian(frame.Backward, c.row, k, skip), float64(t.z[c.row]))
			continue
		}
		add(signalMetric[s], e.value(c.row, s, k), e.peers(c.row, s, k, skip), float64(t.z[c.row]))
	}
	if c.has[saving] {
		mine := float64(e.saver.cost[c.row])
		all := mine / (1 - math.Exp(-float64(e.saver.rise[c.row])))
		add("checkpoint", all, all-mine, c.z)
	}
	add("wait", e.recent.median(frame.Exposed, c.row, window), e.roleMedian(frame.Exposed, c.row, window, skip), 0)
	return out
}

func (e *Engine) roleMedian(m frame.Metric, r, k int, skip func(int) bool) float64 {
	rows := sample(e.layout.Roles[e.layout.Role[r]].Rows, r)
	return e.recent.over(m, rows, k, func(p int) bool { return p == r || skip(p) })
}

func round6(v float64) float64 { return math.Round(v*1e6) / 1e6 }

var signalWords = [signals + 1]string{"computes", "spends", "loads data", "saves"}

// sentence says what the numbers say, for a person to check.
func (e *Engine) sentence(c *candidate, f *finding) string {
	rank, role := e.layout.Ranks[c.row], ""
	if g := e.layout.Role[c.row]; g >= 0 {
		role = e.layout.Roles[g].Name(e.layout.Stages)
	}
	for _, v := range f.Evidence {
		switch {
		case v.Metric == "fp" && c.has[compute]:
			return fmt.Sprintf("rank %d takes %.4g s for its forward passes of a step, its peers in %s %.4g s (%.2f times)", rank, v.Value, role, v.Peers, ratio(v.Value, v.Peers))
		case v.Metric == "self" && c.main == own:
			return fmt.Sprintf("rank %d spends %.4g s of a step outside communication, data loading and saving, its peers in %s %.4g s", rank, v.Value, role, v.Peers)
		case v.Metric == "dataloader" && c.main == loading:
			return fmt.Sprintf("rank %d waits %.4g s a step for data, its peers in %s %.4g s", rank, v.Value, role, v.Peers)
		case v.Metric == "checkpoint" && c.main == saving:
			return fmt.Sprintf("rank %d took %.4g s for each of its last %d checkpoints, its peers %.4g s", rank, v.Value, e.saver.run[c.row], v.Peers)
		}
	}
	return fmt.Sprintf("rank %d %s %.2f times as long as its peers in %s", rank, signalWords[c.main], f.Slowdown, role)
}

// finite returns x, or def where x is no number: JSON has none of them.
func finite(x, def float64) float64 {
	if x != x || math.IsInf(x, 0) {
		return def
	}
	return x
}

func ratio(a, b float64) float64 {
	if b <= 0 {
		return 0
	}
	return a / b
}

// savingCase is the finding on a rank whose slow saves have ended.
func (e *Engine) savingCase(r int) finding {
	c := candidate{row: r, main: saving, phase: degraded, effect: float64(e.saver.rise[r]),
		z: float64(e.saver.rise[r]) / math.Max(e.saver.sigma, saveNoise)}
	c.has[saving] = true
	return e.describe(&c, nil)
}
