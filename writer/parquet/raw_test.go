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

func packed(all []row.Record) row.Raws {
	var words row.Words
	words.Add("a word of other rows")
	raws := row.Raws{}
	for i := range all {
		raws.Rows = append(raws.Rows, words.Pack(&all[i]))
	}
	raws.Words = words.List()
	return raws
}

// readBack returns the records of a file.
func readBack(t *testing.T, file []byte) (got []row.Record) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.parquet")
	if err := os.WriteFile(path, file, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := layout.ReadRecords(path, func(rows []row.Record) error { got = append(got, rows...); return nil }); err != nil {
		t.Fatal(err)
	}
	return got
}

// TestRawFile: a file of packed rows holds those rows, sorted, in the schema of the
// table, with the smallest and largest value of each column of a row group.
func TestRawFile(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	w, err := newRawWriter()
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{1, 7, pageRows + 3, rowGroup + 1001} {
		want := randomRecords(r, n)
		var out bytes.Buffer
		b := ship.Cut(&row.Rows{Raws: packed(want)})[0]
		if err := w.write(&out, b.Runs(), b.Raws.Words, map[string]string{layout.SchemaKey: layout.SchemaVersion, "a": "b"}); err != nil {
			t.Fatal(err)
		}
		want = sorted(want, compareRecords)
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
		if v, _ := file.Lookup("a"); v != "b" || file.Schema().String() != parquet.SchemaOf(layout.Record{}).String() {
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

// TestOneOther: a value that differs from all others of its column is found wherever it
// stands, and whichever bits it shares with them.
func TestOneOther(t *testing.T) {
	w, err := newRawWriter()
	if err != nil {
		t.Fatal(err)
	}
	for n := range 11 {
		for at := range n {
			want := make([]row.Record, n)
			for i := range want {
				want[i] = row.Record{Offset: uint64(i), ExposedNs: -1, Peer: -1, Open: 1, Step: 5, Op: "a"}
			}
			other := &want[at]
			other.ExposedNs, other.Peer, other.Open, other.Step, other.Op = 40, 3, 0, 7, "b"
			raws := packed(want)
			var out bytes.Buffer
			if err := w.write(&out, [][]row.Raw{raws.Rows}, raws.Words, nil); err != nil {
				t.Fatal(err)
			}
			got := readBack(t, out.Bytes())
			if !slices.Equal(got, want) {
				t.Fatalf("row %d of %d is another: %+v, want %+v", at, n, got[at], want[at])
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
