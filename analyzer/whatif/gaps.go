package whatif

import (
	"cmp"
	"slices"
	"sort"
)

// cut takes out of a rank's compute what it was blocked for by communication inside
// of it: a forward pass whose layers tensor parallelism shares is several pieces,
// with a collective after each. The ranges are sorted by their start.
func cut(ranges []Range) []Range {
	sort.SliceStable(ranges, func(a, b int) bool { return ranges[a].Start < ranges[b].Start })
	var out []Range
	for i, r := range ranges {
		if r.Group != "" {
			out = append(out, r)
			continue
		}
		from := r.Start
		for _, c := range ranges[i+1:] {
			if c.Start >= r.End {
				break
			}
			if c.Group == "" || c.End > r.End || c.blocks() <= 0 {
				continue
			}
			if at := c.End - c.blocks(); at > from {
				out = append(out, Range{Class: r.Class, Start: from, End: at, Own: -1})
			}
			from = max(from, c.End)
		}
		if from < r.End || from == r.Start {
			r.Start = from
			out = append(out, r)
		}
	}
	sort.SliceStable(out, func(a, b int) bool { return out[a].Start < out[b].Start })
	return out
}

// blocks is for how long, at its end, communication blocked its rank, ns.
func (r *Range) blocks() int64 {
	if r.Exposed < 0 {
		return r.End - r.Start
	}
	return min(r.Exposed, r.End-r.Start)
}

// Thresholds of fillGaps.
const (
	gapFloor = 0.5 // of the median forward pass: shorter time between ranges is launch overhead
	gapCap   = 3.0 // times the rank's median gap: longer time is waiting that nobody recorded
)

// fillGaps turns time between a rank's ranges into own work: launch overhead where
// it is short, compute where no backward was recorded. What is longer than gapCap
// times the rank's median gap is an unrecorded wait, of no work.
func fillGaps(steps map[int64]map[int][]Range) {
	var forward []float64
	backward := false
	for _, ranks := range steps {
		for _, rs := range ranks {
			for _, r := range rs {
				switch r.Class {
				case Backward:
					backward = true
				case Forward:
					forward = append(forward, float64(r.End-r.Start))
				}
			}
		}
	}
	floor := int64(gapFloor * median(forward))
	lengths := map[int][]float64{}
	for _, ranks := range steps {
		for rank, rs := range ranks {
			var gaps []Range
			busy := busyTimes(rs)
			until := int64(0)
			for i, b := range busy {
				if i > 0 && b.from > until {
					g := Range{Class: Launch, Start: until, End: b.from, Own: -1}
					if b.from-until > floor && !backward {
						g.Class = Gap
						lengths[rank] = append(lengths[rank], float64(b.from-until))
					}
					if b.from-until <= floor || !backward {
						gaps = append(gaps, g)
					}
				}
				until = max(until, b.to)
			}
			ranks[rank] = append(rs, gaps...)
		}
	}
	for _, ranks := range steps {
		for rank, rs := range ranks {
			limit := int64(gapCap * median(lengths[rank]))
			for i := range rs {
				if rs[i].Class == Gap && rs[i].End-rs[i].Start > limit {
					rs[i].Own = 0
				}
			}
		}
	}
}

// busy is a time in which a rank computes or is blocked.
type busy struct{ from, to int64 }

// busyTimes lists them in order. Beside a transfer that doesn't block it a rank is
// not busy: it computes, which may be in no record.
func busyTimes(ranges []Range) []busy {
	out := make([]busy, 0, len(ranges))
	for i := range ranges {
		r := &ranges[i]
		b := busy{r.Start, r.End}
		if r.Group != "" && r.Class != P2P {
			b.from = r.End - r.blocks()
		}
		if b.from < b.to || r.Group == "" {
			out = append(out, b)
		}
	}
	slices.SortFunc(out, func(a, b busy) int { return cmp.Compare(a.from, b.from) })
	return out
}
