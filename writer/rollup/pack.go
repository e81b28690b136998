package rollup

import (
	"slices"

	"github.com/laggard-dev/laggard/schemas/marker"
	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/row"
)

// keep stores the raw row of r until its step is known.
func (s *Stream) keep(r *record.Record, words record.Numbers, at marker.Place) int32 {
	i := len(s.kept)
	if n := len(s.spare); n > 0 {
		i = int(s.spare[n-1])
		s.spare = s.spare[:n-1]
	} else {
		s.kept = append(s.kept, row.Raw{})
	}

	s.kept[i] = s.pack(r, words, at)
	return int32(i)
}

// pack returns the raw row of r, but for its step and what identity lines say.
func (s *Stream) pack(r *record.Record, words record.Numbers, at marker.Place) row.Raw {
	out := row.Raw{
		Rank: uint32(s.o.Rank), Kind: words.Name, Side: s.words.Side(r.Side), StartNs: r.Start, DurNs: r.Dur,
		HostStartNs: r.HostStart, HostDurNs: r.HostDur, ExposedNs: r.Exposed, Ring: r.Ring, Seq: r.Seq, Thread: r.Thread,
		Op: words.Op, OpRaw: words.OpRaw, Group: words.Group, Dtype: words.Dtype, Path: words.Path,
		Peer: r.Peer, Count: r.Count, Bytes: r.Bytes, Tokens: r.Tokens,
		Segment: uint64(at.ID), Offset: uint64(at.Offset),
	}
	if r.Kind != record.Other {
		out.Kind = s.words.Kind(r.Kind)
	}

	if r.Open {
		out.Open = 1
	}

	return out
}

// owner is whose raw rows are, as identity lines say.
type owner struct {
	job, node   record.Word
	incarnation uint64
}

// owner returns whose the rows of inc are.
func (s *Stream) owner(inc *incarnation) owner {
	return owner{s.words.Add(s.job(inc)), s.words.Add(s.node(inc)), uint64(inc.ID)}
}

// giveRaw gives a raw row out. A bundle begins with room for an eighth more than the one before.
func (s *Stream) giveRaw(of owner, r *row.Raw, kind record.Kind, number int64, repeat uint16) {
	s.counts.count(stored, kind, s.wordOf(kind, r))
	if n := len(s.raws); n == cap(s.raws) {
		s.raws = slices.Grow(s.raws, max(n, s.before+s.before/8, 64)) // a large slice would grow by a quarter only
	}

	s.raws = append(s.raws, *r)
	out := &s.raws[len(s.raws)-1]
	out.Job, out.Node, out.Incarnation = of.job, of.node, of.incarnation
	out.Step, out.Repeat = number, repeat
}

// takeRaws gives the raw rows out. Their words go along as a list that others hold, too: nothing is
// copied, and each bundle is charged with the words that are new in it.
func (s *Stream) takeRaws(dst *row.Rows) {
	if n := len(s.raws); n > 0 {
		s.before = n
	}

	given := row.Raws{Rows: s.raws, Words: s.words.List(), Bytes: s.words.Bytes() - s.given}
	if len(dst.Raws.Rows) == 0 {
		s.raws, dst.Raws = dst.Raws.Rows, given
		s.given += given.Bytes
	} else {
		dst.Raws.Append(&given)
		s.raws = s.raws[:0]
	}

	if s.words.Full() {
		s.renumber()
		s.given = 0
	}
}

// renumber begins a new list of words with those that are needed.
func (s *Stream) renumber() {
	for _, i := range s.spare {
		s.kept[i] = row.Raw{} // nobody asks for it, so its words go
	}

	kept := row.Raws{Rows: s.kept, Words: s.words.List()}
	s.words = record.Words{}
	kept.Renumber(&s.words)
	for _, inc := range s.incarnations {
		inc.Window.renumber(&s.words)
	}

	s.words.Needed()
}
