package whatif

import (
	"cmp"
	"slices"
)

// cut takes out of a rank's compute what it was blocked for by communication inside
// of it: a forward pass whose layers tensor parallelism shares is several pieces,
// with a collective after each.
func cut(timings []timing) []timing {
	byStart(timings)
	out := make([]timing, 0, len(timings)+len(timings)/8)
	for i, s := range timings {
		if s.group != 0 {
			out = append(out, s)
			continue
		}

		// A piece ends where the rank was blocked, and the next one begins where that was over.
		from := s.start
		for _, c := range timings[i+1:] {
			if c.start >= s.end {
				break
			}

			if c.group == 0 || c.end > s.end || c.own <= 0 {
				continue
			}

			if at := c.end - c.own; at > from {
				out = append(out, timing{class: s.class, start: from, end: at, own: at - from})
			}

			from = max(from, c.end)
		}

		if from < s.end || from == s.start {
			s.start, s.own = from, s.end-from
			out = append(out, s)
		}
	}

	byStart(out)
	return out
}

// byStart sorts ranges by their starts; equal ones keep their order, so that a replay is the same each time.
func byStart(timings []timing) {
	slices.SortStableFunc(timings, func(a, b timing) int { return cmp.Compare(a.start, b.start) })
}

// Thresholds of fillGaps.
const (
	gapFloor = 0.5 // of the median forward pass: shorter time between ranges is launch overhead
	gapCap   = 3.0 // times the rank's median gap: longer time is waiting that nobody recorded
)

// fillGaps turns time between a rank's ranges into own work: launch overhead where
// it is short, compute where no backward was recorded. What is longer than gapCap
// times the rank's median gap is an unrecorded wait, of no work.
func fillGaps(steps []*recorded) {
	each := func(f func(rank int, s *timing)) {
		for _, of := range steps {
			for rank, timings := range of.ranges {
				for i := range timings {
					f(rank, &timings[i])
				}
			}
		}
	}
	var passes []float64
	complete := false
	each(func(_ int, s *timing) {
		complete = complete || s.class == backward
		if s.class == forward {
			passes = append(passes, float64(s.end-s.start))
		}
	})
	// Where the backward pass was recorded all computing was: a long gap is idle.
	floor := int64(gapFloor * median(passes))
	parallel(steps, func(_ int, of *recorded) {
		for rank, timings := range of.ranges {
			of.ranges[rank] = withGaps(timings, floor, complete)
		}
	})
	lengths, limits := map[int][]float64{}, map[int]int64{}
	each(func(rank int, s *timing) {
		if s.class == gap {
			lengths[rank] = append(lengths[rank], float64(s.end-s.start))
		}
	})
	for rank, x := range lengths {
		limits[rank] = int64(gapCap * median(x))
	}

	each(func(rank int, s *timing) {
		if s.class == gap && s.end-s.start > limits[rank] {
			s.own = 0
		}
	})
}

// withGaps adds the times in which a rank neither computes nor is blocked, those above
// floor only where the recorded compute is not complete. Beside a transfer that doesn't
// block it a rank computes, which may be in no record.
func withGaps(timings []timing, floor int64, complete bool) []timing {
	busy := make([]timing, 0, len(timings))
	for _, s := range timings {
		if s.group != 0 && s.class != p2p {
			s.start = s.end - s.own
		}

		if s.start < s.end || s.group == 0 {
			busy = append(busy, s)
		}
	}

	byStart(busy)
	for i, until := 1, int64(0); i < len(busy); i++ {
		until = max(until, busy[i-1].end)
		switch length := busy[i].start - until; {
		case length <= 0:
		case length <= floor:
			timings = append(timings, timing{class: launch, start: until, end: until + length, own: length})
		case !complete:
			timings = append(timings, timing{class: gap, start: until, end: until + length, own: length})
		}
	}

	return timings
}
