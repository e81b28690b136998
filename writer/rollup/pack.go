package rollup

import (
	"slices"

	"github.com/laggard-dev/laggard/schemas/marker"
	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/row"
)

// words numbers the words of raw rows. Those of the known kinds and of the sides, which
// every record has, are not looked for each time.
type words struct {
	row.Words
	kinds [record.KindCount]row.Word // 0 = not numbered yet
	sides [record.Device + 1]row.Word
}

func (w *words) kind(r *record.Record) row.Word {
	if r.Kind == record.Other {
		return w.Add(r.Name)
	}

	n := &w.kinds[r.Kind]
	if *n == 0 {
		*n = w.Add(r.Kind.String())
	}

	return *n
}

func (w *words) side(s record.Side) row.Word {
	n := &w.sides[s]
	if *n == 0 {
		*n = w.Add(s.String())
	}

	return *n
}

// keep stores the raw row of r until its step is known.
func (s *Stream) keep(r *record.Record, at marker.Place) int32 {
	i := len(s.kept)
	if n := len(s.spare); n > 0 {
		i = int(s.spare[n-1])
		s.spare = s.spare[:n-1]
	} else {
		s.kept = append(s.kept, row.Raw{})
	}

	s.pack(&s.kept[i], r, at)
	return int32(i)
}

// pack makes the raw row of r, but for its step and what identity lines say.
func (s *Stream) pack(out *row.Raw, r *record.Record, at marker.Place) {
	w := &s.words
	// Field by field: a composite would be made aside and copied.
	out.Job, out.Node, out.Incarnation, out.Step, out.Repeat = 0, 0, 0, 0, 0
	out.Rank, out.Kind, out.Side = uint32(s.o.Rank), w.kind(r), w.side(r.Side)
	out.StartNs, out.DurNs = r.Start, r.Dur
	out.HostStartNs, out.HostDurNs, out.ExposedNs = r.HostStart, r.HostDur, r.Exposed
	out.Ring, out.Seq, out.Thread = r.Ring, r.Seq, r.Thread
	out.Op, out.OpRaw, out.Group, out.Dtype, out.Path = w.Add(r.Op), w.Add(r.OpRaw), w.Add(r.Group), w.Add(r.Dtype), w.Add(r.Path)
	out.Peer, out.Count, out.Bytes, out.Tokens = r.Peer, r.Count, r.Bytes, r.Tokens
	out.Segment, out.Offset = uint64(s.idOf(at.Segment)), uint64(at.Offset)
	out.Open = 0
	if r.Open {
		out.Open = 1
	}
}

// idOf returns the id of a segment.
func (s *Stream) idOf(segment uint32) record.ID {
	if s.at.segment != segment || s.at.source == nil {
		s.at.segment, s.at.source = segment, s.segments[segment]
	}

	if s.at.source == nil {
		return 0
	}

	return s.at.source.id
}

// giveRaw gives a raw row out.
func (s *Stream) giveRaw(inc *incarnation, r *row.Raw, kind record.Kind, number int64, repeat uint16) {
	s.counts.kind(kind, s.wordOf(kind, r)).Stored++
	if n := len(s.raws); n == cap(s.raws) {
		s.raws = slices.Grow(s.raws, max(n, 64)) // a large slice would grow by a quarter only
	}

	s.raws = append(s.raws, *r)
	out := &s.raws[len(s.raws)-1]
	out.Job, out.Node, out.Incarnation = s.words.Add(s.job(inc)), s.words.Add(s.node(inc)), uint64(inc.id)
	out.Step, out.Repeat = number, repeat
	s.taken = false
}

// takeRaws gives the raw rows out.
func (s *Stream) takeRaws(dst *row.Rows) {
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
	old := row.Raws{Rows: s.kept, Words: s.words.List()}
	s.words = words{}
	free := make(map[int32]bool, len(s.spare))
	for _, i := range s.spare {
		free[i] = true
	}

	for i := range s.kept {
		if !free[int32(i)] {
			r := old.Record(i)
			s.kept[i] = s.words.Pack(&r)
		}
	}

	s.words.Needed()
}
