package feed

import (
	"errors"
	"fmt"

	"github.com/laggard-dev/laggard/analyzer/frame"
)

// A Feed is saved with encoding/gob: its exported fields and those of what they point
// at. Pointers that are shared are not told by gob: Layouts and Restore do so.

// Layouts lists the layouts of the eras, each once, and says which era has which;
// -1 is last, the one that the engine has.
func (f *Feed) Layouts(last *frame.Layout) (list []*frame.Layout, of []int) {
	at := map[*frame.Layout]int{}
	if last != nil {
		at[last] = -1
	}
	for _, e := range f.Processes.Eras {
		k, ok := at[e.layout]
		if !ok {
			k = len(list)
			at[e.layout], list = k, append(list, e.layout)
		}
		of = append(of, k)
	}
	return list, of
}

// Restore gives each era of a decoded Feed its layout, and checks what was decoded.
func (f *Feed) Restore(list []*frame.Layout, of []int, last *frame.Layout) error {
	eras := f.Processes.Eras
	if len(of) != len(eras) {
		return fmt.Errorf("%d layouts of %d eras", len(of), len(eras))
	}
	for _, l := range list {
		if !l.Valid() {
			return errors.New("not a layout")
		}
	}
	for i, k := range of {
		switch {
		case k >= 0 && k < len(list):
			eras[i].layout = list[k]
		case k == -1 && last != nil:
			eras[i].layout = last
		default:
			return fmt.Errorf("era %d has layout %d of %d", i, k, len(list))
		}
	}
	return f.check()
}

// mostRank bounds the rank numbers of a state: tables are as long as the highest.
const mostRank = 1 << 24

// check reports lists of a feed that was read from a file which have not the length
// that the others expect, and processes without what they need.
func (f *Feed) check() error {
	r := f.Processes
	n := len(r.Rows)
	for _, k := range r.Rows {
		if k < 0 || k >= mostRank {
			return fmt.Errorf("rank %d", k)
		}
	}
	for i := range r.Eras {
		if len(r.Eras[i].layout.Ranks) != n {
			return fmt.Errorf("a layout has %d ranks, want %d", len(r.Eras[i].layout.Ranks), n)
		}
	}
	if len(r.Order) != len(r.Ranks) {
		return fmt.Errorf("%d ranks in order, want %d", len(r.Order), len(r.Ranks))
	}
	for rank, list := range r.Ranks {
		for _, p := range list {
			if p.Life == nil || p.Rank != rank {
				return fmt.Errorf("a process of rank %d is incomplete", rank)
			}
		}
	}
	for _, c := range f.Pending {
		if err := c.check(n); err != nil {
			return err
		}
	}
	for i := range f.Recent {
		if len(f.Recent[i].Owner) > n {
			return fmt.Errorf("a column of %d ranks, want %d", len(f.Recent[i].Owner), n)
		}
	}
	if len(f.Missed) > n || len(f.Seen) > n || len(f.Recent) > recentColumns || f.Next < 0 || f.Next >= recentColumns {
		return errors.New("the feed's lists are too long")
	}
	return nil
}

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
