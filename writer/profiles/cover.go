package profiles

import (
	"cmp"
	"slices"
)

// interval is a stretch of time on one clock, ns.
type interval struct{ from, to int64 }

// cover collects when a rank computed. What lies within the interval added last costs no room:
// operators come behind the one that called them.
type cover struct {
	all    []interval
	merged bool
}

// mostIntervals bounds a cover: 64 MB.
const mostIntervals = 4 << 20

// add takes an interval. Where there is no more room those that are there are merged first.
func (c *cover) add(from, to int64) {
	if n := len(c.all); n > 0 {
		if last := &c.all[n-1]; from >= last.from && from <= last.to {
			last.to = max(last.to, to)
			return
		}

		if n >= mostIntervals {
			c.merge()
		}
	}

	c.all = append(c.all, interval{from, to})
	c.merged = false
}

// merge makes the intervals disjoint and sorted.
func (c *cover) merge() {
	if c.merged {
		return
	}

	slices.SortFunc(c.all, func(a, b interval) int { return cmp.Compare(a.from, b.from) })
	out := c.all[:0]
	for _, iv := range c.all {
		if n := len(out); n > 0 && iv.from <= out[n-1].to {
			out[n-1].to = max(out[n-1].to, iv.to)
			continue
		}

		out = append(out, iv)
	}

	c.all, c.merged = out, true
}

// extent is from the first to the last of the intervals.
func (c *cover) extent() (from, to int64) {
	c.merge()
	if len(c.all) == 0 {
		return 0, 0
	}

	return c.all[0].from, c.all[len(c.all)-1].to
}

// within returns how much of an interval is covered.
func (c *cover) within(iv interval) (total int64) {
	c.merge()
	i, _ := slices.BinarySearchFunc(c.all, iv.from, func(a interval, from int64) int { return cmp.Compare(a.to, from) })
	for ; i < len(c.all) && c.all[i].from < iv.to; i++ {
		total += max(0, min(c.all[i].to, iv.to)-max(c.all[i].from, iv.from))
	}

	return total
}

// exposed returns of each communication, sorted by start, what no computation covers. What two
// have in common counts for the one that starts first.
func (c *cover) exposed(comm []interval) []int64 {
	out := make([]int64, len(comm))
	counted := int64(-1 << 62)
	for i, iv := range comm {
		iv.from = max(iv.from, counted)
		if iv.to <= iv.from {
			continue
		}

		counted = iv.to
		out[i] = iv.to - iv.from - c.within(iv)
	}

	return out
}
