package source

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding"

	"github.com/laggard-dev/laggard/schemas/clickhouse/native"
	layout "github.com/laggard-dev/laggard/schemas/parquet"
	"github.com/laggard-dev/laggard/schemas/row"
)

// column moves one column of a file or of a server's answer into rows of type T: set for
// integers, text for strings, list for lists, which only servers send so. missing is the
// value where the file is older than the column.
type column[T any] struct {
	name    string
	set     func(*T, int64)
	text    func(*T, string)
	list    func(*T, *native.Column, int)
	missing int64
}

const notRecorded = -1

// stepColumns are the columns of row.Step but the job.
var stepColumns = []column[row.Step]{
	{name: "rank", set: func(r *row.Step, v int64) { r.Rank = uint32(v) }},
	{name: "incarnation", set: func(r *row.Step, v int64) { r.Incarnation = uint64(v) }},
	{name: "node", text: func(r *row.Step, v string) { r.Node = v }},
	{name: "step", set: func(r *row.Step, v int64) { r.Step = uint64(v) }},
	{name: "repeat", set: func(r *row.Step, v int64) { r.Repeat = uint16(v) }},
	{name: "start_ns", set: func(r *row.Step, v int64) { r.StartNs = v }},
	{name: "step_ns", set: func(r *row.Step, v int64) { r.StepNs = v }, missing: notRecorded},
	{name: "fp_ns", set: func(r *row.Step, v int64) { r.FPNs = v }, missing: notRecorded},
	{name: "fp_count", set: func(r *row.Step, v int64) { r.FPCount = uint32(v) }},
	{name: "comm_ns", set: func(r *row.Step, v int64) { r.CommNs = v }, missing: notRecorded},
	{name: "exposed_ns", set: func(r *row.Step, v int64) { r.ExposedNs = v }, missing: notRecorded},
	{name: "comm_tp_ns", set: func(r *row.Step, v int64) { r.CommTPNs = v }, missing: notRecorded},
	{name: "comm_pp_ns", set: func(r *row.Step, v int64) { r.CommPPNs = v }, missing: notRecorded},
	{name: "comm_dp_ns", set: func(r *row.Step, v int64) { r.CommDPNs = v }, missing: notRecorded},
	{name: "comm_cp_ns", set: func(r *row.Step, v int64) { r.CommCPNs = v }, missing: notRecorded},
	{name: "comm_ep_ns", set: func(r *row.Step, v int64) { r.CommEPNs = v }, missing: notRecorded},
	{name: "comm_other_ns", set: func(r *row.Step, v int64) { r.CommOtherNs = v }, missing: notRecorded},
	{name: "dataloader_ns", set: func(r *row.Step, v int64) { r.DataLoaderNs = v }, missing: notRecorded},
	{name: "checkpoint_ns", set: func(r *row.Step, v int64) { r.CheckpointNs = v }, missing: notRecorded},
	{name: "checkpoint_count", set: func(r *row.Step, v int64) { r.CheckpointCount = uint32(v) }},
	{name: "self_ns", set: func(r *row.Step, v int64) { r.SelfNs = v }, missing: notRecorded},
	{name: "host_fp_ns", set: func(r *row.Step, v int64) { r.HostFPNs = v }, missing: notRecorded},
	{name: "tokens", set: func(r *row.Step, v int64) { r.Tokens = v }, missing: notRecorded},
	{name: "flags", set: func(r *row.Step, v int64) { r.Flags = uint32(v) }},
	{name: "backward_ns", set: func(r *row.Step, v int64) { r.BackwardNs = v }, missing: notRecorded},
}

// communicationColumns are the columns of row.Communication but the job.
var communicationColumns = []column[row.Communication]{
	{name: "rank", set: func(r *row.Communication, v int64) { r.Rank = uint32(v) }},
	{name: "incarnation", set: func(r *row.Communication, v int64) { r.Incarnation = uint64(v) }},
	{name: "node", text: func(r *row.Communication, v string) { r.Node = v }},
	{name: "step_from", set: func(r *row.Communication, v int64) { r.StepFrom = uint64(v) }},
	{name: "step_to", set: func(r *row.Communication, v int64) { r.StepTo = uint64(v) }},
	{name: "repeat", set: func(r *row.Communication, v int64) { r.Repeat = uint16(v) }},
	{name: "start_ns", set: func(r *row.Communication, v int64) { r.StartNs = v }},
	{name: "group", text: func(r *row.Communication, v string) { r.Group = v }},
	{name: "dim", text: func(r *row.Communication, v string) { r.Dim = v }},
	{name: "op", text: func(r *row.Communication, v string) { r.Op = v }},
	{name: "steps", set: func(r *row.Communication, v int64) { r.Steps = uint32(v) }},
	{name: "calls", set: func(r *row.Communication, v int64) { r.Calls = uint32(v) }},
	{name: "total_ns", set: func(r *row.Communication, v int64) { r.TotalNs = v }},
	{name: "min_ns", set: func(r *row.Communication, v int64) { r.MinNs = v }},
	{name: "max_ns", set: func(r *row.Communication, v int64) { r.MaxNs = v }},
	{name: "bytes", set: func(r *row.Communication, v int64) { r.Bytes = v }},
}

// span is a range of rows of one row group of a file: what one worker reads at
// a time.
type span struct {
	path     string
	group    int   // row group; -1 is the whole of a small file
	from, to int64 // rows of the group
}

// spanRows bounds the rows that a worker holds, smallFile the bytes of a file
// that is read without asking first how many rows it has.
const (
	spanRows  = 128 << 10
	smallFile = 64 << 10
	// mostRows bounds what a small file may unfold to.
	mostRows = 4 << 20
)

// readSpan reads the rows of a span, column by column, into buffer, which it
// overwrites and may replace.
func readSpan[T any](s span, columns []column[T], job string, buffer []T) (rows []T, err error) {
	rows = buffer[:0]
	p, f, err := layout.Open(s.path)
	if err != nil {
		return nil, err
	}

	defer func() { err = errors.Join(err, f.Close()) }()
	groups := p.RowGroups()
	if s.group >= 0 {
		if s.group >= len(groups) {
			return nil, errors.New("the file changed while it was read")
		}

		return readGroup(p, groups[s.group], s.from, s.to, columns, job, rows)
	}

	if p.NumRows() > mostRows {
		return nil, fmt.Errorf("%d rows in a file of %d bytes", p.NumRows(), p.Size())
	}

	for _, g := range groups {
		if rows, err = readGroup(p, g, 0, g.NumRows(), columns, job, rows); err != nil {
			return nil, err
		}
	}

	return rows, nil
}

// readGroup appends rows from…to of a row group to rows.
func readGroup[T any](p *parquet.File, g parquet.RowGroup, from, to int64, columns []column[T], job string, rows []T) ([]T, error) {
	if from < 0 || to < from || to > g.NumRows() || to-from > math.MaxInt32 {
		return nil, fmt.Errorf("a row group of %d rows where %d to %d were expected", g.NumRows(), from, to)
	}

	first := len(rows)
	rows = slices.Grow(rows, int(to-from))[:first+int(to-from)]
	for i := range rows[first:] {
		assignJob(&rows[first+i], job)
	}

	chunks := g.ColumnChunks()
	for _, c := range columns {
		leaf, ok := p.Schema().Lookup(c.name)
		if !ok {
			for i := range rows[first:] {
				if c.text != nil {
					c.text(&rows[first+i], "")
				} else {
					c.set(&rows[first+i], c.missing)
				}
			}

			continue
		}

		if leaf.MaxRepetitionLevel != 0 || leaf.MaxDefinitionLevel != 0 {
			return nil, fmt.Errorf("column %s is optional or repeated; laggard's are not", c.name)
		}

		if err := readColumn(chunks[leaf.ColumnIndex], from, c, rows[first:]); err != nil {
			return nil, fmt.Errorf("column %s: %w", c.name, err)
		}
	}

	return rows, nil
}

func assignJob[T any](r *T, job string) {
	switch r := any(r).(type) {
	case *row.Rank:
		r.Job = job
	case *row.Step:
		r.Job = job
	case *row.Communication:
		r.Job = job
	}
}

// readColumn fills one column of rows from the chunk, from its row `from` on.
func readColumn[T any](chunk parquet.ColumnChunk, from int64, c column[T], rows []T) (err error) {
	if from > 0 {
		if _, err := chunk.OffsetIndex(); err != nil && !errors.Is(err, parquet.ErrMissingOffsetIndex) {
			return err
		}
	}

	pages := chunk.Pages()
	defer func() { err = errors.Join(err, pages.Close()) }()
	if from > 0 {
		if err := pages.SeekToRow(from); err != nil {
			return err
		}
	}

	var words dictionary
	for done := 0; done < len(rows); {
		page, err := pages.ReadPage()
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("ends after %d of %d rows", done, len(rows))
		}

		if err != nil {
			return err
		}

		n, err := words.use(page, c.text != nil, len(rows)-done)
		if err == nil {
			into := rows[done : done+n]
			if c.text != nil {
				for i := range into {
					c.text(&into[i], words.texts[words.at(i)])
				}
			} else {
				for i := range into {
					c.set(&into[i], words.ints[words.at(i)])
				}
			}
		}

		parquet.Release(page)
		if err != nil {
			return err
		}

		done += n
	}

	return nil
}

// dictionary is the values of one page: by index into the chunk's dictionary
// where it has one, plain otherwise.
type dictionary struct {
	of      parquet.Dictionary // whose values ints and texts hold
	indexes []int32            // nil = plain
	ints    []int64
	texts   []string
}

func (d *dictionary) at(i int) int {
	if d.indexes == nil {
		return i
	}

	return int(d.indexes[i])
}

// use takes a page over and returns how many of its values to read, at most most.
func (d *dictionary) use(page parquet.Page, text bool, most int) (int, error) {
	n := int(min(page.NumValues(), int64(most)))
	if page.NumNulls() != 0 {
		return 0, errors.New("holds nulls; laggard's columns do not")
	}

	of := page.Dictionary()
	if of == nil {
		d.of, d.indexes = nil, nil
		return n, d.values(page.Data(), page.Type(), text, n)
	}

	data := page.Data()
	if data.Kind() != encoding.Int32 {
		return 0, errors.New("has a dictionary with indexes of an unknown type")
	}

	d.indexes = data.Int32()
	if len(d.indexes) < n {
		return 0, fmt.Errorf("a page of %d values holds %d", n, len(d.indexes))
	}

	if d.of != of {
		d.of = of
		if err := d.values(of.Page().Data(), of.Type(), text, of.Len()); err != nil {
			return 0, err
		}
	}

	for _, index := range d.indexes[:n] {
		if index < 0 || int(index) >= of.Len() {
			return 0, fmt.Errorf("index %d into a dictionary of %d", index, of.Len())
		}
	}

	return n, nil
}

// values decodes n plain values.
func (d *dictionary) values(v encoding.Values, typ parquet.Type, text bool, n int) error {
	have := 0
	switch kind := v.Kind(); {
	case text && kind == encoding.ByteArray:
		data, offsets := v.ByteArray()
		have = max(0, len(offsets)-1)
		d.texts = d.texts[:0]
		words := interner{}
		for i := 0; i < min(have, n); i++ {
			b := data[offsets[i]:offsets[i+1]]
			kept, ok := words[string(b)]
			if !ok {
				kept = words.intern(string(b))
			}

			d.texts = append(d.texts, kept)
		}
	case !text && kind == encoding.Int64:
		plain := v.Int64()
		have = len(plain)
		d.ints = append(d.ints[:0], plain[:min(have, n)]...)
	case !text && kind == encoding.Int32:
		plain := v.Int32()
		have = len(plain)
		d.ints = d.ints[:0]
		for _, x := range plain[:min(have, n)] {
			d.ints = append(d.ints, int64(x))
		}
	default:
		return fmt.Errorf("is of type %s", typ)
	}

	if have < n {
		return fmt.Errorf("a page of %d values holds %d", n, have)
	}

	return nil
}
