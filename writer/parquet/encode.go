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

// writers holds one encoder a table, so that their buffers are used again.
type writers struct {
	ranks          *parquet.GenericWriter[row.Rank]
	steps          *parquet.GenericWriter[row.Step]
	communications *parquet.GenericWriter[row.Communication]
	records        *parquet.GenericWriter[row.Record]
	verdicts       *parquet.GenericWriter[row.Verdict]
	ledger         *parquet.GenericWriter[row.Ledger]
}

// write encodes a batch. What readers ask for by rank and step, or by segment, is sorted by that,
// so that they can skip row groups and pages by their statistics; the small tables keep the order
// in which they were put.
func (w *writers) write(out io.Writer, b *ship.Batch, meta map[string]string) error {
	switch b.Table {
	case row.RanksTable:
		return encode(&w.ranks, out, run(b.Ranks), meta, "rank", "incarnation")
	case row.StepsTable:
		return encode(&w.steps, out, run(sorted(b.Steps, row.CompareSteps)), meta, "rank", "incarnation", "step", "repeat")
	case row.CommunicationsTable:
		return encode(&w.communications, out, run(sorted(b.Communications, row.CompareCommunications)), meta, "rank", "incarnation", "step_from", "repeat")
	case row.RecordsTable:
		return encode(&w.records, out, unpacked(b.Raws.Words, sorted(b.Raws.Rows, compareRaws)), meta, "rank", "segment", "offset")
	case row.VerdictsTable:
		return encode(&w.verdicts, out, run(b.Verdicts), meta)
	case row.LedgerTable:
		return encode(&w.ledger, out, run(b.Ledger), meta)
	}

	return fmt.Errorf("BUG: no table %s", b.Table)
}

// compression is one codec for the files of all tables: each of its encoders holds 8 MB.
var compression = parquet.Compression(&zstd.Codec{Level: zstd.SpeedFastest})

// encode writes rows as one file, in the order in which they come. slot is where the table's
// encoder waits between two files.
func encode[T any](slot **parquet.GenericWriter[T], out io.Writer, rows iter.Seq[[]T], meta map[string]string, sortedBy ...string) error {
	w := *slot
	if w == nil {
		w = newWriter[T](out, sortedBy...)
	} else {
		w.Reset(out)
	}

	*slot = nil // an encoder that failed is not used again
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

	*slot = w
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
	by := func(a, b T) int { return compare(&a, &b) }
	if !slices.IsSortedFunc(rows, by) {
		rows = slices.Clone(rows)
		slices.SortStableFunc(rows, by)
	}

	return rows
}

func compareRaws(a, b *row.Raw) int {
	return cmp.Or(cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.Segment, b.Segment), cmp.Compare(a.Offset, b.Offset))
}
