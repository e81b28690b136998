package feed

import (
	"errors"
	"fmt"
	"slices"

	"github.com/laggard-dev/laggard/analyzer/frame"
)

// Restore makes a decoded Feed go on: a Feed is saved with encoding/gob, its exported
// fields and those of what they point at. last is the layout of the last column that it
// gave away, nil where there was none.
func (f *Feed) Restore(last *frame.Layout) error {
	f.layout = last
	return f.check()
}

// mostRank bounds the rank numbers of a state: tables are as long as the highest.
const mostRank = 1 << 24

// check reports lists of a feed that was read from a file which have not the length
// that the others expect, and processes without what they need.
func (f *Feed) check() error {
	n := len(f.Rows)
	for _, k := range f.Rows {
		if k < 0 || k >= mostRank {
			return fmt.Errorf("rank %d", k)
		}
	}

	if l := f.layout; l != nil && len(l.Ranks) != n {
		return fmt.Errorf("the layout has %d ranks, want %d", len(l.Ranks), n)
	}

	if len(f.Order) != len(f.Ranks) {
		return fmt.Errorf("%d ranks in order, want %d", len(f.Order), len(f.Ranks))
	}

	for k, list := range f.Ranks {
		for _, p := range list {
			if p.Rank != f.Order[k] {
				return fmt.Errorf("a process of rank %d among those of rank %d", p.Rank, f.Order[k])
			}
		}
	}

	for _, c := range slices.Concat(f.Recent, f.Pending) {
		if err := c.check(n); err != nil {
			return err
		}
	}

	if len(f.Missed) != n || len(f.Newest) != n || len(f.Recent) > recentColumns {
		return errors.New("the feed's lists are too long or too short")
	}

	return nil
}

// check wants lists of n ranks in a column: gob makes them as long as the file says.
func (c *column) check(n int) error {
	ok := len(c.Owner) == n && c.StartRow < n
	for _, v := range c.V {
		ok = ok && (v == nil || len(v) == n)
	}

	if !ok {
		return fmt.Errorf("a column of %d ranks, want %d", len(c.Owner), n)
	}

	return nil
}
