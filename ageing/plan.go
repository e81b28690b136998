// Package ageing keeps the tree of segments under a cap: the oldest fifth goes, and
// nothing goes unaccounted.
//
// The rule (the user's, made exact): when the bytes of the tree plus room for the
// open segments exceed the cap, one pass deletes max(1, floor(20 %)) of the tree's
// segments; passes repeat until the tree is under the cap. A segment is a file
// named ^\d+(\.zst)?$ in a rank directory; nothing else is ever touched. A live
// rank's newest segment stays, and so does one that is being written. Order:
// shipped first, then modification time, then name.
//
// Plan decides and does nothing; Loop carries it out. What was not shipped is
// written to the ledger, durably, before it is unlinked.
package ageing

import (
	"cmp"
	"slices"
	"time"
)

// share is the part of the segments that one pass deletes: one in five.
const share = 5

// Segment is what Plan has to know of one segment.
type Segment struct {
	Job     string
	Rank    int
	Name    string
	Number  int64 // of the name: order among equals
	Size    int64 // bytes
	ModTime time.Time
	Shipped bool // everything in it is stored
	Held    bool // not to be deleted: a live rank's newest, open, or another agent's
}

// Tree is the whole tree: its segments and the bytes of everything else in it.
type Tree struct {
	Segments []Segment
	Other    int64
}

// Bytes returns the size of the tree.
func (t *Tree) Bytes() int64 {
	sum := t.Other
	for i := range t.Segments {
		sum += t.Segments[i].Size
	}

	return sum
}

// plan returns the segments to delete, as indexes into t.Segments, one slice a
// pass, in order. room is reserved for what will be written until the next look.
// It is empty when the tree is under the limit; when everything that may go is not
// enough, all of it goes. plan changes nothing.
func plan(t *Tree, limit, room int64) [][]int {
	bytes := t.Bytes()
	if bytes+room <= limit {
		return nil
	}

	order := deletable(t.Segments)
	left := len(t.Segments)
	var passes [][]int
	for bytes+room > limit && len(order) > 0 {
		n := min(max(1, left/share), len(order))
		pass := order[:n:n]
		order = order[n:]
		left -= n
		for _, i := range pass {
			bytes -= t.Segments[i].Size
		}

		passes = append(passes, pass)
	}

	return passes
}

// deletable returns the indexes of the segments that are not held, first to go
// first.
func deletable(s []Segment) []int {
	var order []int
	for i := range s {
		if !s[i].Held {
			order = append(order, i)
		}
	}

	slices.SortFunc(order, func(i, j int) int { return compare(&s[i], &s[j]) })
	return order
}

func compare(a, b *Segment) int {
	if a.Shipped != b.Shipped {
		if a.Shipped {
			return -1
		}

		return 1
	}

	return cmp.Or(
		a.ModTime.Compare(b.ModTime),
		cmp.Compare(a.Number, b.Number),
		cmp.Compare(a.Name, b.Name),
		cmp.Compare(a.Job, b.Job),
		cmp.Compare(a.Rank, b.Rank),
	)
}
