package parquet

import (
	"cmp"
	"fmt"
	"io"
	"iter"
	"slices"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/zstd"

	layout "github.com/laggard-dev/laggard/schemas/parquet"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/ship"
)

// write encodes a batch. What readers ask for by rank and step, or by segment, is sorted by that,
// so that they can skip row groups and pages by their statistics; the small tables keep the order
// in which they were put.
func (s *Sink) write(out io.Writer, b *ship.Batch, meta map[string]string) error {
	switch b.Table {
	case row.RanksTable:
		return encode(s, out, b.Table, run(b.Ranks), meta, "rank", "incarnation")
	case row.StepsTable:
		return encode(s, out, b.Table, run(sorted(b.Steps, row.CompareSteps)), meta, "rank", "incarnation", "step", "repeat")
	case row.CommunicationsTable:
		return encode(s, out, b.Table, run(sorted(b.Communications, row.CompareCommunications)), meta, "rank", "incarnation", "step_from", "repeat")
	case row.RecordsTable:
		return encode(s, out, b.Table, unpacked(b.Raws.Words, sorted(b.Raws.Rows, compareRaws)), meta, "rank", "segment", "offset")
	case row.VerdictsTable:
		return encode(s, out, b.Table, run(b.Verdicts), meta)
	case row.LedgerTable:
		return encode(s, out, b.Table, run(b.Ledger), meta)
	}

	return fmt.Errorf("BUG: no table %s", b.Table)
}

// compression is one codec for the files of all tables: each of its encoders holds 8 MB.
var compression = parquet.Compression(&zstd.Codec{Level: zstd.SpeedFastest})

// encode writes rows of a table as one file, in the order in which they come.
func encode[T any](s *Sink, out io.Writer, table string, rows iter.Seq[[]T], meta map[string]string, sortedBy ...string) error {
	w, ok := s.writers[table].(*parquet.GenericWriter[T])
	if ok {
		w.Reset(out)
	} else {
		w = newWriter[T](out, sortedBy...)
	}

	delete(s.writers, table) // an encoder that failed is not used again
	for k, v := range meta {
		w.SetKeyValueMetadata(k, v)
	}

	for some := range rows {
		if _, err := w.Write(some); err != nil {
			return err
		}
	}

	if err := w.Close(); err != nil {
		return err
	}

	s.writers[table] = w
	return nil
}

// newWriter begins a file of rows, which say in its footer by which columns they are sorted.
func newWriter[T any](out io.Writer, sortedBy ...string) *parquet.GenericWriter[T] {
	var columns []parquet.SortingColumn
	for _, c := range sortedBy {
		columns = append(columns, parquet.Ascending(c))
	}

	return parquet.NewGenericWriter[T](out,
		compression, parquet.MaxRowsPerRowGroup(rowGroup),
		parquet.SortingWriterConfig(parquet.SortingColumns(columns...)), parquet.CreatedBy("laggard", layout.SchemaVersion, ""))
}

// run yields rows as one run.
func run[T any](rows []T) iter.Seq[[]T] { return slices.Values([][]T{rows}) }

// tileRows is how many raw rows are unpacked at once: 150 KiB, which stay in the L2
// cache until they are encoded.
const tileRows = 512

// unpacked yields raw rows with their words.
func unpacked(words []string, all []row.Raw) iter.Seq[[]row.Record] {
	return func(yield func([]row.Record) bool) {
		var tile []row.Record
		for rows := range slices.Chunk(all, tileRows) {
			some := row.Raws{Rows: rows, Words: words}
			tile = some.AppendTo(tile[:0])
			if !yield(tile) {
				return
			}
		}
	}
}

// sorted returns rows in order. Mostly they come so; the batch keeps its own.
func sorted[T any](rows []T, compare func(*T, *T) int) []T {
	ordered := 1
	for ordered < len(rows) && compare(&rows[ordered-1], &rows[ordered]) <= 0 {
		ordered++
	}

	if ordered >= len(rows) {
		return rows
	}

	places := make([]*T, len(rows)) // a row is wide: it would be copied for each comparison
	for i := range rows {
		places[i] = &rows[i]
	}

	slices.SortStableFunc(places, compare)
	inOrder := make([]T, len(rows))
	for i, p := range places {
		inOrder[i] = *p
	}

	return inOrder
}

func compareRaws(a, b *row.Raw) int {
	return cmp.Or(cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.Segment, b.Segment), cmp.Compare(a.Offset, b.Offset))
}
