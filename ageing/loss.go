package ageing

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/segment"
)

// States of a ledger entry that ageing writes.
const (
	stateAged    = "aged"
	stateDropped = "dropped"
)

// loss counts what is lost with a segment: records by kind (state aged), what its loss
// lines tell (state dropped, with their reasons), and damaged lines (dropped,
// torn-line). There is always at least one entry of state aged, of Records 0 when
// nothing in the segment can be read. Of TaskD's lines it counts the ranges that
// begin. An error says that the file could not be read now, and how far the count went;
// what is damaged in it, or missing, is none.
func loss(dir segment.RankDir, s segment.Info) ([]row.Ledger, error) {
	t := tally{last: s.Size, count: make(map[lossKey]*row.Ledger)}
	err := t.read(dir, s)
	rows := make([]row.Ledger, 0, len(t.count)+1)
	for k, r := range t.count {
		r.State, r.Reason, r.Kind = k.state, k.reason, k.kind
		rows = append(rows, *r)
	}

	if !slices.ContainsFunc(rows, func(r row.Ledger) bool { return r.State == stateAged }) {
		rows = append(rows, row.Ledger{State: stateAged, Reason: record.Aged, Bytes: uint64(max(0, s.Size))})
	}

	for i := range rows {
		r := &rows[i]
		r.Job, r.Rank, r.Name = dir.Job, uint32(dir.Rank), s.Name
		r.Incarnation, r.Segment = uint64(t.meta.Incarnation), uint64(t.id)
		r.LastOffset = uint64(max(0, t.last))
	}

	slices.SortFunc(rows, func(a, b row.Ledger) int {
		return cmp.Or(cmp.Compare(a.State, b.State), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Kind, b.Kind))
	})
	return rows, err
}

// maxEntries bounds the entries of one segment: a file may hold a new kind in every
// line.
const maxEntries = 64

type lossKey struct{ state, reason, kind string }

// tally counts lines.
type tally struct {
	last   int64
	id     record.ID
	meta   record.Meta
	parser record.Parser
	count  map[lossKey]*row.Ledger
}

// read counts the lines.
func (t *tally) read(dir segment.RankDir, s segment.Info) error {
	t.id = segment.Identity(dir.Job, dir.Rank, s.Name, nil)
	r, err := segment.OpenReader(filepath.Join(dir.Path, s.Name))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, segment.ErrNotRegular) {
		return nil
	}

	if err != nil {
		return err
	}

	defer r.Close()
	for first := true; ; first = false {
		line, offset, err := r.Next()
		if err != nil {
			t.end(r, offset, err)
			return refused(err)
		}

		if first {
			t.begin(dir, s, line)
		}

		t.line(line)
	}
}

// begin takes who wrote the segment from its first line.
func (t *tally) begin(dir segment.RankDir, s segment.Info, line []byte) {
	t.id = segment.Identity(dir.Job, dir.Rank, s.Name, line)
	if typ, err := t.parser.Parse(line); err == nil && typ == record.LineMeta {
		t.meta = t.parser.Meta
	}
}

// end counts what is no line.
func (t *tally) end(r *segment.Reader, offset int64, err error) {
	t.last = offset
	if torn := r.Torn(); errors.Is(err, io.EOF) && torn > 0 {
		t.add(lossKey{stateDropped, record.TornLine, ""}, 1, uint64(torn), 0)
	}

	if n := r.Skipped(); n.Lines > 0 {
		t.add(lossKey{stateDropped, record.TornLine, ""}, uint64(n.Lines), uint64(n.Bytes), 0)
	}
}

// refused returns an error of the system's: another look may do better. The end of a
// file is none, nor what a decompressor says of its content.
func refused(err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return err
	}

	return nil
}

func (t *tally) line(line []byte) {
	n := uint64(len(line) + 1)
	switch typ, err := t.parser.Parse(line); {
	case err != nil:
		t.add(lossKey{stateDropped, record.TornLine, ""}, 1, n, 0)
	case typ == record.LineRecord:
		r := &t.parser.Record
		t.add(lossKey{stateAged, record.Aged, r.Word()}, 1, n, r.Start)
	case typ == record.LineLoss && !t.parser.Loss.Plausible():
		t.add(lossKey{stateDropped, record.Implausible, ""}, 1, n, 0)
	case typ == record.LineLoss:
		l := &t.parser.Loss
		t.add(lossKey{stateDropped, l.Reason, l.Kind}, l.Count, n, l.First)
	case typ == record.LineTaskD && begins(line):
		t.add(lossKey{stateAged, record.Aged, ""}, 1, n, 0)
	}
}

// begins reports whether a TaskD line is the host side of a range's start, which
// each range has once.
func begins(line []byte) bool {
	return bytes.Contains(line, []byte(`"SourceKind":0`)) &&
		(bytes.Contains(line, []byte(`"Flag":16,`)) || bytes.Contains(line, []byte(`"Flag":2,`)))
}

func (t *tally) add(k lossKey, records, bytes uint64, start int64) {
	k.kind, k.reason = record.Clip(k.kind, record.MaxWord), record.Clip(k.reason, record.MaxWord)
	r := t.count[k]
	if r == nil && len(t.count) >= maxEntries { // hostile lines: the sum counts
		k.kind, k.reason = "", record.Aged
		r = t.count[k]
	}

	if r == nil {
		r = &row.Ledger{AtNs: start}
		t.count[k] = r
	}

	r.Records += records
	r.Bytes += bytes
}
