package parquet

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"unsafe"

	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"

	layout "github.com/laggard-dev/laggard/schemas/parquet"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/ship"
)

// pageRows is the number of rows of a page: as many as stay in the L2 cache while their
// columns are made.
const pageRows = 16 << 10

// rawWriter writes packed rows of the table records as a Parquet file, a column at a
// time: taking rows apart one by one, as parquet-go's writer must, is most of what a
// file costs. The schema is the one that parquet-go makes of layout.Record, and the
// encodings and the footer's structures are parquet-go's. Its memory is used again.
type rawWriter struct {
	columns []rawColumn
	sorted  []format.SortingColumn
	zstd    *zstd.Encoder
	at      int64
	out     io.Writer
}

// rawSchema is the footer of a file of layout.Record without rows.
var rawSchema = sync.OnceValues(func() (*format.FileMetaData, error) {
	var empty bytes.Buffer
	w := parquet.NewGenericWriter[layout.Record](&empty, parquet.CreatedBy("laggard", layout.SchemaVersion, ""))
	if err := w.Close(); err != nil {
		return nil, err
	}
	file, err := parquet.OpenFile(bytes.NewReader(empty.Bytes()), int64(empty.Len()))
	if err != nil {
		return nil, err
	}
	return file.Metadata(), nil
})

func newRawWriter() (*rawWriter, error) {
	schema, err := rawSchema()
	if err != nil {
		return nil, fmt.Errorf("make schema of records: %w", err)
	}
	w := &rawWriter{}
	w.zstd, err = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
		zstd.WithEncoderCRC(false), zstd.WithWindowSize(pageRows*8), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return nil, err
	}
	source := ship.RawLayout().Columns
	if len(schema.Schema) != len(source)+1 {
		return nil, fmt.Errorf("BUG: %d columns of records, want %d", len(schema.Schema)-1, len(source))
	}
	for i, c := range source {
		column, err := newRawColumn(c, &schema.Schema[i+1])
		if err != nil {
			return nil, err
		}
		w.columns = append(w.columns, column)
	}
	for _, name := range recordOrder {
		i := slices.IndexFunc(source, func(c ship.Column) bool { return c.Name == name })
		w.sorted = append(w.sorted, format.SortingColumn{ColumnIdx: int32(i)})
	}
	return w, nil
}

// write writes a file of rows, sorted by rank, segment and offset, as each of the runs
// is.
func (w *rawWriter) write(out io.Writer, runs [][]row.Raw, words []string, meta map[string]string) error {
	schema, err := rawSchema()
	if err != nil {
		return err
	}
	rows := 0
	for _, run := range runs {
		rows += len(run)
	}
	footer := format.FileMetaData{
		Version: schema.Version, Schema: schema.Schema, ColumnOrders: schema.ColumnOrders, CreatedBy: schema.CreatedBy, NumRows: int64(rows),
	}
	for _, k := range slices.Sorted(maps.Keys(meta)) {
		footer.KeyValueMetadata = append(footer.KeyValueMetadata, format.KeyValue{Key: k, Value: meta[k]})
	}
	w.out, w.at = out, 0
	if err := w.put([]byte("PAR1")); err != nil {
		return err
	}
	runs = sortedRuns(runs)
	for n := rows; n > 0; n -= rowGroup {
		group, err := w.group(&runs, min(n, rowGroup), words)
		if err != nil {
			return err
		}
		group.Ordinal = int16(len(footer.RowGroups))
		footer.RowGroups = append(footer.RowGroups, group)
	}
	text, err := thrift.Marshal(new(thrift.CompactProtocol), &footer)
	if err != nil {
		return fmt.Errorf("encode footer: %w", err)
	}
	return w.put(append(binary.LittleEndian.AppendUint32(text, uint32(len(text))), "PAR1"...))
}

func (w *rawWriter) put(b []byte) error {
	n, err := w.out.Write(b)
	w.at += int64(n)
	return err
}

// group writes the next n rows as a row group.
func (w *rawWriter) group(rest *[][]row.Raw, n int, words []string) (format.RowGroup, error) {
	group := format.RowGroup{NumRows: int64(n), SortingColumns: w.sorted, FileOffset: w.at}
	for i := range w.columns {
		w.columns[i].begin(words)
	}
	for left := n; left > 0; left -= pageRows {
		for size := min(left, pageRows); size > 0; {
			run := (*rest)[0]
			run = run[:min(len(run), size, tileRows)]
			if (*rest)[0] = (*rest)[0][len(run):]; len((*rest)[0]) == 0 {
				*rest = (*rest)[1:]
			}
			for i := range w.columns {
				w.columns[i].gather(run)
			}
			size -= len(run)
		}
		for i := range w.columns {
			if err := w.columns[i].endPage(w.zstd); err != nil {
				return group, err
			}
		}
	}
	for i := range w.columns {
		chunk, err := w.columns[i].end(w)
		if err != nil {
			return group, err
		}
		group.Columns = append(group.Columns, chunk)
		group.TotalByteSize += chunk.MetaData.TotalUncompressedSize
		group.TotalCompressedSize += chunk.MetaData.TotalCompressedSize
	}
	return group, nil
}

// tileRows is how many rows are turned into columns at once.
const tileRows = 512

// recordOrder are the columns that files of records are sorted by.
var recordOrder = []string{"rank", "segment", "offset"}

func compareRaws(a, b *row.Raw) int {
	return cmp.Or(cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.Segment, b.Segment), cmp.Compare(a.Offset, b.Offset))
}

// sortedRuns returns runs in order. Rows come segment by segment and nearly in order
// within one, but the ids of segments follow no order.
func sortedRuns(runs [][]row.Raw) [][]row.Raw {
	slices.SortStableFunc(runs, func(a, b []row.Raw) int { return compareRaws(&a[0], &b[0]) })
	for i := 1; i < len(runs); i++ {
		if before := runs[i-1]; compareRaws(&before[len(before)-1], &runs[i][0]) > 0 {
			// Two runs overlap: a range was decided after later ones.
			all := slices.Concat(runs...)
			slices.SortStableFunc(all, func(a, b row.Raw) int { return compareRaws(&a, &b) })
			return [][]row.Raw{all}
		}
	}
	return runs
}

// address is that of a column's value in the first of rows.
func (c *rawColumn) address(rows []row.Raw) unsafe.Pointer {
	return unsafe.Add(unsafe.Pointer(unsafe.SliceData(rows)), c.source.Offset)
}
