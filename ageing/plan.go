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
// plan decides and does nothing; Loop carries it out. What was not shipped is
// written to the ledger, durably, before it is unlinked.
package ageing

import (
	"cmp"
	"path/filepath"
	"slices"

	"github.com/laggard-dev/laggard/writer/segment"
)

// share is the part of the segments that one pass deletes: one in five.
const share = 5

// tree is what one look found: its segments, the bytes of everything else in it, and the
// bytes that are reserved for what will be written until the next look.
type tree struct {
	segments    []candidate
	other, room int64
}

// candidate is a segment that may have to go.
type candidate struct {
	segment.Info
	dir       segment.RankDir
	shipped   bool // everything in it is stored
	accounted bool // its loss is in the ledger, and it was not unlinked then: it goes at once
	held      bool // not to be deleted: a live rank's newest, open, or another agent's
	gone      bool // deleted since the look
}

// path is where the segment lies.
func (c *candidate) path() string { return filepath.Join(c.dir.Path, c.Name) }

// bytes returns the size of the tree.
func (t *tree) bytes() int64 {
	sum := t.other
	for i := range t.segments {
		if !t.segments[i].gone {
			sum += t.segments[i].Size
		}
	}

	return sum
}

// twin reports whether the segment is there a second time: a crash in the middle of
// its compression leaves both forms, each of them whole. Of two, one goes unmissed.
func (t *tree) twin(i int) bool {
	c := &t.segments[i]
	for _, k := range []int{i - 1, i + 1} {
		if k >= 0 && k < len(t.segments) && !t.segments[k].gone && t.segments[k].dir == c.dir && t.segments[k].Number == c.Number {
			return true
		}
	}

	return false
}

// plan returns the segments to delete, as indexes into t.segments, one slice a pass, in
// order. It is empty when the tree is under the limit and every deletion was carried out; when
// everything that may go is not enough, all of it goes. plan changes nothing.
func plan(t *tree, limit int64) [][]int {
	bytes := t.bytes()
	order, accounted := deletable(t.segments)
	left := len(t.segments)
	var passes [][]int
	for n := accounted; n > 0 || bytes+t.room > limit && len(order) > 0; n = 0 {
		if n == 0 {
			n = min(max(1, left/share), len(order))
		}

		pass := order[:n:n]
		order = order[n:]
		left -= n
		for _, i := range pass {
			bytes -= t.segments[i].Size
		}

		passes = append(passes, pass)
	}

	return passes
}

// deletable returns the indexes of the segments that may go, first to go first, and how many of them
// are accounted for.
func deletable(s []candidate) (order []int, accounted int) {
	for i := range s {
		if !s[i].held && !s[i].gone {
			order = append(order, i)
			accounted += number(s[i].accounted)
		}
	}

	slices.SortFunc(order, func(i, j int) int { return compare(&s[i], &s[j]) })
	return order, accounted
}

// number is 1 where it is so.
func number(so bool) int {
	if so {
		return 1
	}

	return 0
}

// compare orders segments by how little is lost with them: those whose loss is in the ledger already, then those
// that a store has, then the oldest. Names, jobs and ranks decide between equals, so that two looks at one tree
// plan the same.
func compare(a, b *candidate) int {
	return cmp.Or(
		number(b.accounted)-number(a.accounted),
		number(b.shipped)-number(a.shipped),
		a.ModTime.Compare(b.ModTime),
		cmp.Compare(a.Number, b.Number),
		cmp.Compare(a.Name, b.Name),
		cmp.Compare(a.dir.Job, b.dir.Job),
		cmp.Compare(a.dir.Rank, b.dir.Rank),
	)
}
