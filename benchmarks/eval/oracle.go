package main

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"

	"github.com/laggard-dev/laggard/analyzer/frame"
)

// The oracle is told the culprit and the step at which its fault began, and has
// only to say whether the steps up to the bar's limit prove it: the mean of the
// culprit's work against its peers after the onset, less the same before. What
// replicas share, or tokens explain, is regressed out with coefficients from before
// the onset. Nobody who has to search can do better with these columns, so its
// power is the bound of a row: what it misses is not in the data in that time.

// oracleAlarm is the z of 0.1 false alarms in 1,000 node-hours under Gaussian tails:
// what a detector with the same budget has to pass.
const oracleAlarm = 5.3

// oracleSpread is how much two healthy devices differ for good (0.1 to 0.6 %).
const oracleSpread = 0.004

// leastHistory is the number of steps before the onset that the oracle needs.
const leastHistory = 20

// oracle returns whether the fault of rank can be proven within limit steps from
// step onset on; known is false where nothing can be said.
func oracle(f *frame.Frame, rank, onset, limit int) (found, known bool) {
	row := slices.Index(f.Ranks, rank)
	if row < 0 {
		return false, false
	}

	best := math.Inf(1)
	for _, m := range []frame.Metric{frame.Self, frame.FP} {
		for _, x := range explained(f, m, row) {
			before, after := split(f, x, onset, limit)
			if len(before) < leastHistory || len(after) < limit/2 {
				continue
			}

			a, sd := usual(before)
			b, _ := usual(after)
			// Against its own past, whose error counts, or against its peers, from whom it
			// may differ for good: whichever is known better.
			own := sd * math.Sqrt(1/float64(len(before))+1/float64(len(after)))
			peers := math.Hypot(sd/math.Sqrt(float64(len(after))), oracleSpread)
			if se := min(own, peers); se < best { // by what was seen before, not the luckiest
				best, known = se, true
				if own > peers {
					a = 0
				}

				found = b-a >= oracleAlarm*se
			}
		}
	}

	return found, known
}

// usual is the mean and spread of v; what is beyond three sigmas, pauses of a
// garbage collector, counts as three. The sigma is 1.4826 times the median deviation from the
// median, as in a Gaussian: a few pauses don't widen it.
func usual(v []float64) (mean, sd float64) {
	s := slices.Sorted(slices.Values(v))
	mid := stat.Quantile(0.5, stat.LinInterp, s, nil)
	dev := make([]float64, len(s))
	for i, x := range s {
		dev[i] = math.Abs(x - mid)
	}

	slices.Sort(dev)
	limit := 3 * 1.4826 * stat.Quantile(0.5, stat.LinInterp, dev, nil)
	for i, x := range s {
		s[i] = min(max(x, mid-limit), mid+limit)
	}

	return stat.MeanStdDev(s, nil)
}

// explained returns the series of ln m of a row against the median of its peers:
// as it is, and without what its replica or its tokens explain.
func explained(f *frame.Frame, m frame.Metric, row int) [][]float64 {
	l := f.Layouts[0]
	x := against(f, m, l.Roles[l.Role[row]].Rows, row)
	if x == nil {
		return nil
	}

	out := [][]float64{x}
	n := 0
	w := make([]float64, len(x))
	for _, p := range l.Replicas[l.Replica[row]] {
		if l.Roles[l.Role[p]].Stage == l.Roles[l.Role[row]].Stage {
			continue
		}

		if y := against(f, m, l.Roles[l.Role[p]].Rows, int(p)); y != nil {
			n++
			for i := range w {
				w[i] += (y[i] - w[i]) / float64(n)
			}
		}
	}

	if n > 0 {
		out = append(out, without(x, w))
	}

	if tok := against(f, frame.Tokens, l.Roles[l.Role[row]].Rows, row); tok != nil {
		out = append(out, without(x, tok))
	}

	return out
}

// against is ln m of a row less the median of the other rows, per column.
func against(f *frame.Frame, m frame.Metric, rows []int32, row int) []float64 {
	if !f.Has(m) || len(rows) < 2 {
		return nil
	}

	out, recorded := make([]float64, len(f.Columns)), false
	var others []float64
	for i := range out {
		v := f.At(m, row, i)
		recorded = recorded || v == v
		others = others[:0]
		for _, p := range rows {
			if y := f.At(m, int(p), i); int(p) != row && y > 0 {
				others = append(others, math.Log(float64(y)))
			}
		}

		out[i] = math.NaN()
		if len(others) > 0 && v > 0 {
			slices.Sort(others)
			out[i] = math.Log(float64(v)) - stat.Quantile(0.5, stat.LinInterp, others, nil)
		}
	}

	if !recorded {
		return nil
	}

	return out
}

// without subtracts from x what w explains of its first steps. The faults that it is asked about
// begin later, so that no part of one is explained away.
func without(x, w []float64) []float64 {
	var a, b []float64
	for i := range x[:min(len(x), 60)] {
		if x[i] == x[i] && w[i] == w[i] {
			a, b = append(a, w[i]), append(b, x[i])
		}
	}

	slope := 0.0
	if len(a) > 2 {
		_, slope = stat.LinearRegression(a, b, nil, false)
	}

	return floats.AddScaledTo(make([]float64, len(x)), x, -slope, w)
}

// split returns the known values before the onset, without the first steps of a
// job, and of the limit steps after it.
func split(f *frame.Frame, x []float64, onset, limit int) (before, after []float64) {
	for i, k := range f.Columns {
		switch d := int(k.Step) - onset; {
		case x[i] != x[i] || i < 10:
		case d < 0:
			before = append(before, x[i])
		case d < limit:
			after = append(after, x[i])
		}
	}

	return before, after
}

// ask fills in what the oracle makes of a case with one culprit, for the rows of
// the bar that have a limit in steps.
func (o *outcome) ask(f *frame.Frame, limit int) {
	if limit == 0 || len(o.truth.SlowNodes) != 1 || len(o.truth.SlowRanks) == 0 || len(f.Layouts) != 1 {
		return
	}

	if c := o.truth.Culprit(o.truth.SlowNodes[0]); c != nil {
		o.provable, o.asked = oracle(f, o.truth.SlowRanks[0], c.OnsetStep, limit)
	}
}
