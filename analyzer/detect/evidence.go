package detect

import (
	"fmt"
	"math"

	"github.com/laggard-dev/laggard/analyzer/detect/history"
	"github.com/laggard-dev/laggard/analyzer/detect/robust"
	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// confidence grows with z and shrinks with everything that had to be assumed.
func (e *Engine) confidence(c *candidate) float64 {
	x := 1 - 0.5*math.Exp(-c.z/4)
	if c.few {
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
			out = append(out, verdict.Evidence{Metric: name, Rank: rank, Value: round6(v), Peers: round6(p), Z: robust.Finite(math.Round(z*10)/10, 0)})
		}
	}
	for s := range signals {
		t := e.tracks[s]
		if !c.has[s] && !(s == own && c.has[compute]) && !(s == compute && c.has[own]) {
			continue
		}

		k := t.Recent(c.row)
		_, z := t.Last(c.row)
		if s == compute {
			same := e.sameWork(c.row, k, skip)
			add("fp", e.recent.Median(frame.FP, c.row, k), same*e.roleMedian(frame.FP, c.row, k, skip), z)
			if e.backward.Waiting {
				same, z = 1, 0 // it speaks of the others
			}

			add("backward", e.recent.Median(frame.Backward, c.row, k), same*e.roleMedian(frame.Backward, c.row, k, skip), z)
			continue
		}

		if s == loading && c.main == loading && c.excess > 0 && e.stepMedian > c.excess {
			add("step", e.stepMedian, e.stepMedian-c.excess, 0) // what the slowdown is of
		}

		add(signalMetric[s], e.value(c.row, s, k), e.peers(c.row, s, k, skip), z)
	}

	if c.has[saving] {
		x := e.saver.Slow(c.row)
		all := x.Seconds / (1 - math.Exp(-x.Effect))
		add("checkpoint", all, all-x.Seconds, c.z)
	}

	add("wait", e.recent.Median(frame.Exposed, c.row, threshold.Window), e.roleMedian(frame.Exposed, c.row, threshold.Window, skip), 0)
	return out
}

// sameWork is the factor from the raw forward and backward times of a rank's peers to
// what they would take for its work: 1 where nothing tells that it has other work.
func (e *Engine) sameWork(r, k int, skip func(int) bool) float64 {
	mine, theirs := e.recent.Median(frame.FP, r, k), e.roleMedian(frame.FP, r, k, skip)
	if b, p := e.recent.Median(frame.Backward, r, k), e.roleMedian(frame.Backward, r, k, skip); b == b && p == p && !e.backward.Waiting {
		mine, theirs = mine+b, theirs+p
	}

	x := mine / theirs / (e.value(r, compute, k) / e.peers(r, compute, k, skip))
	if x != x || math.IsInf(x, 0) || math.Abs(x-1) < sameWithin {
		return 1
	}

	return x
}

// roleMedian is the median over the others of a rank's role, without those to skip, of their medians of a metric.
func (e *Engine) roleMedian(m frame.Metric, r, k int, skip func(int) bool) float64 {
	rows := history.Sample(e.layout.Roles[e.layout.Role[r]].Rows)
	return e.recent.Over(m, rows, k, func(p int) bool { return p == r || skip != nil && skip(p) })
}

func round6(v float64) float64 { return math.Round(v*1e6) / 1e6 }

var signalWords = [signals + 1]string{"computes", "spends", "loads data", "saves"}

// sentence says what the numbers say, for a person to check.
func (e *Engine) sentence(c *candidate, n *verdict.Node, byOwn bool) string {
	rank, role := e.layout.Ranks[c.row], ""
	if g := e.layout.Role[c.row]; g >= 0 {
		role = e.layout.Roles[g].Name(e.layout.Stages)
	}

	for _, v := range n.Evidence {
		switch {
		case v.Metric == "fp" && c.has[compute] && !byOwn:
			return fmt.Sprintf("rank %d takes %.4g s for its forward passes of a step, its peers in %s %.4g s for the same work (%.2f times)", rank, v.Value, role, v.Peers, ratio(v.Value, v.Peers))
		case v.Metric == "self" && (byOwn || c.main == own):
			return fmt.Sprintf("rank %d spends %.4g s of a step outside communication, data loading and saving, its peers in %s %.4g s", rank, v.Value, role, v.Peers)
		case v.Metric == "dataloader" && c.main == loading:
			return fmt.Sprintf("rank %d waits %.4g s a step for data, its peers in %s %.4g s", rank, v.Value, role, v.Peers)
		case v.Metric == "checkpoint" && c.main == saving:
			x, each := e.saver.Slow(c.row), "each"
			if x.Often < 1 {
				each = fmt.Sprintf("%.0f %%", 100*x.Often)
			}

			return fmt.Sprintf("rank %d took %.4g s for %s of its last %d checkpoints, its peers %.4g s", rank, v.Value, each, x.Saves, v.Peers)
		}
	}

	return fmt.Sprintf("rank %d %s %.2f times as long as its peers in %s", rank, signalWords[c.main], n.Slowdown, role)
}

func ratio(a, b float64) float64 {
	if b <= 0 {
		return 0
	}

	return a / b
}
