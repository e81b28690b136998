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
	t := tally{last: s.Size, count: make(map[row.Ledger]row.Ledger)}
	err := t.read(dir, s)
	rows := make([]row.Ledger, 0, len(t.count)+1)
	for _, r := range t.count {
		rows = append(rows, r)
	}

	if !slices.ContainsFunc(rows, func(r row.Ledger) bool { return r.State == stateAged }) {
		rows = append(rows, row.Ledger{State: stateAged, Reason: record.Aged, Bytes: uint64(max(0, s.Size))})
	}

	for i := range rows {
		r := &rows[i]
		r.Job, r.Rank, r.Name = dir.Job, uint32(dir.Rank), s.Name
		r.Incarnation, r.Segment = t.meta.Incarnation, t.id
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

// tally counts the lines of a segment that is to be deleted: last is the offset behind the last of them, id the
// segment, meta who wrote it.
type tally struct {
	last   int64
	id     record.ID
	meta   record.Meta
	parser record.Parser
	count  map[row.Ledger]row.Ledger // by state, reason and kind
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
		t.add(row.Ledger{State: stateDropped, Reason: record.TornLine, Records: 1, Bytes: uint64(torn)})
	}

	if lines, size := r.Skipped(); lines > 0 {
		t.add(row.Ledger{State: stateDropped, Reason: record.TornLine, Records: uint64(lines), Bytes: uint64(size)})
	}
}

// refused returns an error of the system's: another look may do better. The end of a
// file is none, nor what a decompressor says of its content.
func refused(err error) error {
	if _, ok := errors.AsType[syscall.Errno](err); ok {
		return err
	}

	return nil
}

// line counts one line of a segment that is to be deleted. What no reader would have counted as stored either
// is dropped, not aged: torn lines, and losses that can't be true. A TaskD range has up to four lines and counts
// once, by its start on the host.
func (t *tally) line(line []byte) {
	n := uint64(len(line) + 1)
	switch typ, err := t.parser.Parse(line); {
	case err != nil:
		t.add(row.Ledger{State: stateDropped, Reason: record.TornLine, Records: 1, Bytes: n})
	case typ == record.LineRecord:
		r := &t.parser.Record
		t.add(row.Ledger{State: stateAged, Reason: record.Aged, Kind: r.Word(), Records: 1, Bytes: n, AtNs: r.Start})
	case typ == record.LineLoss && !t.parser.Loss.Plausible():
		t.add(row.Ledger{State: stateDropped, Reason: record.Implausible, Records: 1, Bytes: n})
	case typ == record.LineLoss:
		l := &t.parser.Loss
		t.add(row.Ledger{State: stateDropped, Reason: l.Reason, Kind: l.Kind, Records: l.Count, Bytes: n, AtNs: l.First})
	case typ == record.LineTaskD && begins(line):
		t.add(row.Ledger{State: stateAged, Reason: record.Aged, Records: 1, Bytes: n})
	}
}

// begins reports whether a TaskD line is the host side of a range's start, which
// each range has once.
func begins(line []byte) bool {
	return bytes.Contains(line, []byte(`"SourceKind":0`)) &&
		(bytes.Contains(line, []byte(`"Flag":16,`)) || bytes.Contains(line, []byte(`"Flag":2,`)))
}

// add counts one more line under its state, reason and kind. The time is that of the first.
func (t *tally) add(line row.Ledger) {
	key := row.Ledger{State: line.State, Reason: record.Clip(line.Reason, record.MaxWord), Kind: record.Clip(line.Kind, record.MaxWord)}
	sum, known := t.count[key]
	if !known && len(t.count) >= maxEntries { // hostile lines: the sum counts
		key.Kind, key.Reason = "", record.Aged
		sum, known = t.count[key]
	}

	if !known {
		sum = key
		sum.AtNs = line.AtNs
	}

	sum.Records += line.Records
	sum.Bytes += line.Bytes
	t.count[key] = sum
}
