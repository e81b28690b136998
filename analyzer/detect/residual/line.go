package residual

import (
	"math"

	"github.com/laggard-dev/laggard/analyzer/detect/robust"
	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
)

// learn follows how a rank goes with the other parts in each role: about its own centre,
// so that a rank that is always slow teaches nothing, nor does one that got slow. An expert's load would be in that
// centre; there no rank counts for more than usual ones.
func (s *Sharing) learn(waited []bool, t known) {
	keep := 1 - 1/min(threshold.Memory, max(youngMemory, float64(s.columns))) // the wild first steps are soon forgotten
	for g := range s.sums {
		s.sums[g].fade(keep)
	}

	most := float32(mostDev)
	if s.within != nil {
		s.buf = robust.Compact(s.buf[:0], s.dev)
		most = usualDevs * robust.Spread(s.buf)
	}

	for r, x := range s.dev {
		g := s.role[r]
		if g < 0 || x != x || s.w[r] != s.w[r] || waited != nil && waited[r] {
			continue
		}

		mostX, mostW := most, most
		if sums := &s.sums[g]; s.within == nil && sums.N >= settledColumns*float64(len(s.parts)) {
			mostX, mostW = clipAt(sums.YY/sums.N), clipAt(sums.XX/sums.N)
		}

		dx, dw := robust.Clip(x-s.mean[r], -mostX, mostX), robust.Clip(s.w[r]-s.wmean[r], -mostW, mostW)
		if s.within == nil { // what the others take of its work they tell while it is slow as well
			s.wmean[r] += dw / float32(s.told[r]+2)
			s.told[r] = min(s.told[r]+1, 200)
		}

		if s.within == nil && !t.Healthy(r) || t.Degraded(r) {
			continue
		}

		if s.within == nil {
			s.mean[r] += dx / float32(s.seen[r]+2)
			s.seen[r] = min(s.seen[r]+1, 200)
		}

		s.sums[g].add(dw, dx)
	}
}

// clipAt is how far from its centre a rank counts, where the mean square was so much: a rank that
// gets slow, and those that wait for it, seem to share much work until it is suspect.
func clipAt(square float64) float32 {
	return float32(min(mostDev, usualDevs*math.Sqrt(square)))
}

// Spread is how much what is shared differs, 0 where nothing is.
func (s *Sharing) Spread() float64 {
	most := 0.0
	for g, x := range s.slopes {
		if x > 0 {
			most = max(most, s.differs(g))
		}
	}

	return most
}

// Apart is how much the works differ, shared or not: what a whole stage has of it, more to do for
// all its ranks, can't be told from slowness.
func (s *Sharing) Apart() float64 {
	most := 0.0
	for g := range s.sums {
		if s.sums[g].N > 0 {
			most = max(most, s.differs(g))
		}
	}

	return most
}

// differs is how much the works of role g differ: a standard deviation, of logarithms.
func (s *Sharing) differs(g int) float64 { return math.Sqrt(s.sums[g].XX / s.sums[g].N) }

// slope is what to take of w in role g: 0 while they don't go together. Both are
// measured with noise, so least squares would fall short: Deming's line takes the noise
// of w, a middle of other parts, to be a known share of that of a rank (Deming,
// Statistical Adjustment of Data, 1943). A stage of a real job follows 1.52 times.
// Where correlation is weak the line hangs on that share, so it is believed by degrees.
func (s *Sharing) slope(g int) float64 {
	sums := &s.sums[g]
	r := sums.correlation()
	if !(r > SharedCorrelation) {
		return 0
	}

	sure := min(1, (r-SharedCorrelation)/(sharedSure-SharedCorrelation))
	d := sums.YY - sums.XX/s.noise
	slope := (d + math.Sqrt(d*d+4*sums.XY*sums.XY/s.noise)) / (2 * sums.XY)
	return sure * (1 + sure*(min(slope, sharedMost)-1))
}

// Together is the median correlation of roles with the rest of their replica.
func (s *Sharing) Together() float64 {
	var v []float64
	for g := range s.sums {
		if r := s.sums[g].correlation(); r == r {
			v = append(v, r)
		}
	}

	if len(v) == 0 {
		return 0
	}

	return robust.Median64(v)
}
