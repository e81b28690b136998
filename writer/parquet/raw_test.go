package parquet

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/parquet-go/parquet-go"

	layout "github.com/laggard-dev/laggard/schemas/parquet"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/ship"
)

// randomRecords makes rows with columns of every sort: constant, of few values, of
// many, few at first and many later, at the ends of their types.
func randomRecords(r *rand.Rand, n int) []row.Record {
	all := make([]row.Record, n)
	segment := r.Uint64()
	for i := range all {
		if r.IntN(40_000) == 0 {
			segment = r.Uint64()
		}

		all[i] = row.Record{
			Job: "j", Rank: math.MaxUint32, Incarnation: 1 << 63, Node: []string{"", "node-0"}[i*2/n], Kind: "Communication",
			Step: int64(i/1000) - 1, Repeat: uint16(r.IntN(1 << 16)), StartNs: 1_753_000_000_000_000_000 + int64(i)*30_000 + r.Int64N(1000),
			DurNs: []int64{0, math.MaxInt64, math.MinInt64, 5}[r.IntN(4)], Side: "host", HostStartNs: r.Int64() - r.Int64(), ExposedNs: -1,
			Ring: r.Uint32(), Seq: r.Uint64(), Thread: uint64(r.IntN(3)) << 62, Op: fmt.Sprint("op", r.IntN(300)), Group: "dp0",
			Peer: int32(r.Uint32()), Count: int64(r.IntN(250)), Dtype: "bf16", Segment: segment, Offset: uint64(i) * 190, Open: uint16(i % 2),
		}
		if i > n/2 {
			all[i].Count = r.Int64()
			if i%64 == 0 {
				all[i].Path = fmt.Sprint("/checkpoint/", i, "\x00\xff")
			}
		}
	}

	return all
}

// inOrder returns records in the order of their file.
func inOrder(all []row.Record) []row.Record {
	raws := row.Pack(all...)
	raws.Rows = sorted(raws.Rows, compareRaws)
	return raws.AppendTo(nil)
}

// readBack returns the records of a file.
func readBack(t *testing.T, file []byte) (got []row.Record) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.parquet")
	if err := os.WriteFile(path, file, 0o644); err != nil {
		t.Fatal(err)
	}

	if err := layout.Read(path, func(rows []row.Record) error { got = append(got, rows...); return nil }); err != nil {
		t.Fatal(err)
	}

	return got
}

// TestRawFile: a file of packed rows holds those rows, sorted, in the schema of the
// table, with the smallest and largest value of each column of a row group.
func TestRawFile(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	w := &Sink{writers: map[string]any{}}
	for _, n := range []int{1, 7, tileRows, 32*tileRows + 3, rowGroup + 1001} {
		want := randomRecords(r, n)
		var out bytes.Buffer
		b := ship.Cut(&row.Rows{Raws: row.Pack(want...)})[0]
		if err := w.write(&out, b, map[string]string{layout.SchemaKey: layout.SchemaVersion, "a": "b"}); err != nil {
			t.Fatal(err)
		}

		want = inOrder(want)
		got := readBack(t, out.Bytes())
		if len(got) != n {
			t.Fatalf("%d rows, want %d", len(got), n)
		}

		for i := range got {
			if got[i] != want[i] {
				t.Fatalf("row %d of %d: %+v, want %+v", i, n, got[i], want[i])
			}
		}

		file, err := parquet.OpenFile(bytes.NewReader(out.Bytes()), int64(out.Len()))
		if err != nil {
			t.Fatal(err)
		}

		if v, _ := file.Lookup("a"); v != "b" || file.Schema().String() != parquet.SchemaOf(row.Record{}).String() {
			t.Fatalf("metadata %q, schema %s", v, file.Schema())
		}

		for i, group := range file.RowGroups() {
			rows := want[i*rowGroup : min(n, (i+1)*rowGroup)]
			bounds(t, file, group, "count", rows, func(r *row.Record) int64 { return r.Count })
			bounds(t, file, group, "dur_ns", rows, func(r *row.Record) int64 { return r.DurNs })
			bounds(t, file, group, "seq", rows, func(r *row.Record) uint64 { return r.Seq })
			bounds(t, file, group, "ring", rows, func(r *row.Record) uint32 { return r.Ring })
			bounds(t, file, group, "op", rows, func(r *row.Record) string { return r.Op })
			for _, c := range file.Metadata().RowGroups[i].Columns { // DuckDB finds nothing by a condition where they are too few
				if c.MetaData.NumValues != int64(len(rows)) {
					t.Fatalf("%v has %d values, want %d", c.MetaData.PathInSchema, c.MetaData.NumValues, len(rows))
				}
			}

			if got := fmt.Sprint(group.SortingColumns()); len(group.SortingColumns()) != 3 {
				t.Fatalf("sorted by %s", got)
			}
		}
	}
}

// TestSorted: rows are put in order, whether they come in order, in runs that are, in
// runs that overlap, or in none.
func TestSorted(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	raw := func(rank, segment, offset int) row.Raw {
		return row.Raw{Rank: uint32(rank), Segment: uint64(segment), Offset: uint64(offset)}
	}
	for name, build := range map[string]func(i int) row.Raw{
		"in order":  func(i int) row.Raw { return raw(0, 1, i) },
		"in runs":   func(i int) row.Raw { return raw(7-i/100, 1, i) },
		"overlap":   func(i int) row.Raw { return raw(0, 1, i%100*9+i/100) },
		"in none":   func(int) row.Raw { return raw(r.IntN(3), r.IntN(3), r.IntN(1<<40)) },
		"backwards": func(i int) row.Raw { return raw(0, 1, 1000-i) },
	} {
		for _, n := range []int{0, 1, 2, 800} {
			var rows []row.Raw
			for i := range n {
				rows = append(rows, build(i))
			}

			before := slices.Clone(rows)
			got := sorted(rows, compareRaws)
			if !slices.Equal(rows, before) {
				t.Errorf("%s: the rows of the caller were moved", name)
			}

			slices.SortFunc(before, func(a, b row.Raw) int { return compareRaws(&a, &b) })
			if !slices.Equal(got, before) {
				t.Errorf("%s: %d rows are not in order", name, n)
			}
		}
	}
}

func bounds[T int64 | uint64 | uint32 | string](t *testing.T, file *parquet.File, group parquet.RowGroup, name string, rows []row.Record, of func(*row.Record) T) {
	t.Helper()
	var all []T
	for i := range rows {
		all = append(all, of(&rows[i]))
	}

	leaf, _ := file.Schema().Lookup(name)
	low, high, ok := group.ColumnChunks()[leaf.ColumnIndex].(*parquet.FileColumnChunk).Bounds()
	if !ok {
		t.Fatalf("%s has no bounds", name)
	}

	want := fmt.Sprint(slices.Min(all), slices.Max(all))
	if got := fmt.Sprint(valueOf(low, all[0]), valueOf(high, all[0])); got != want {
		t.Errorf("%s lies between %s, want %s", name, got, want)
	}
}

func valueOf(v parquet.Value, like any) any {
	switch like.(type) {
	case int64:
		return v.Int64()
	case uint64:
		return v.Uint64()
	case uint32:
		return v.Uint32()
	}

	return string(v.ByteArray())
}
