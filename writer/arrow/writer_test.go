package arrow

import (
	"bytes"
	"reflect"
	"slices"
	"testing"

	"github.com/apache/arrow/go/v15/arrow/array"
	"github.com/apache/arrow/go/v15/arrow/ipc"

	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/ship/shiptest"
)

// read returns the number of rows of a stream, and what f finds in its batches.
func read(t *testing.T, b []byte, f func(*ipc.Reader)) int64 {
	t.Helper()
	r, err := ipc.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Release()
	var n int64
	for r.Next() {
		n += r.Record().NumRows()
		f(r)
	}

	if r.Err() != nil {
		t.Fatal(r.Err())
	}

	return n
}

func TestRowsComeBack(t *testing.T) {
	rows := shiptest.Rows("jöb", 3, 0, batchRows+100)
	var b bytes.Buffer
	w := NewWriter[row.Step](&b, row.StepsTable)
	for some := range slices.Chunk(rows.Steps, 1000) { // a batch is of several calls
		if err := w.Write(some); err != nil {
			t.Fatal(err)
		}
	}

	if err := w.Close(); err != nil {
		t.Fatal(err)
	}

	at, batches := 0, 0
	n := read(t, b.Bytes(), func(r *ipc.Reader) {
		steps := r.Record().Column(4).(*array.Uint64)
		fp := r.Record().Column(8).(*array.Int64)
		job := r.Record().Column(0).(*array.String)
		batches++
		for i := range steps.Len() {
			want := &rows.Steps[at]
			if steps.Value(i) != want.Step || fp.Value(i) != want.FPNs || job.Value(i) != want.Job {
				t.Fatalf("row %d: step %d, fp %d, job %q", at, steps.Value(i), fp.Value(i), job.Value(i))
			}

			at++
		}
	})
	if n != int64(len(rows.Steps)) || batches != 2 {
		t.Fatalf("%d rows in %d batches, want %d in 2", n, batches, len(rows.Steps))
	}
}

func TestLists(t *testing.T) {
	var b bytes.Buffer
	w := NewWriter[row.Rank](&b, row.RanksTable)
	rank := shiptest.Rank("j", 1, 2)
	if err := w.Write([]row.Rank{rank, {Job: "j"}, rank}); err != nil {
		t.Fatal(err)
	}

	if err := w.Close(); err != nil {
		t.Fatal(err)
	}

	read(t, b.Bytes(), func(r *ipc.Reader) {
		groups, ranks := r.Record().Column(12), r.Record().Column(13)
		if got := groups.ValueStr(2); got != `["dp:dp'0:0:2","tp:t:1:2"]` {
			t.Errorf("groups %s", got)
		}

		if got := ranks.ValueStr(2); got != `[[0,4],[0,1]]` {
			t.Errorf("group_ranks %s", got)
		}

		if got := ranks.ValueStr(1); got != `[]` {
			t.Errorf("group_ranks of a rank without groups %s", got)
		}
	})
}

func TestEveryTable(t *testing.T) {
	rows := shiptest.Rows("j", 0, 0, 40)
	written(t, row.RanksTable, rows.Ranks, 1)
	written(t, row.StepsTable, rows.Steps, 40)
	written(t, row.CommunicationsTable, rows.Communications, 6)
	written(t, row.RecordsTable, rows.Raws.AppendTo(nil), 40)
}

// written writes rows and compares their number and the columns' names.
func written[T any](t *testing.T, table string, rows []T, want int64) {
	t.Helper()
	var b bytes.Buffer
	w := NewWriter[T](&b, table)
	if err := w.Write(rows); err != nil {
		t.Fatal(err)
	}

	if err := w.Close(); err != nil {
		t.Fatal(err)
	}

	n := read(t, b.Bytes(), func(r *ipc.Reader) {
		for i, f := range r.Schema().Fields() {
			if f.Nullable || f.Name != reflect.TypeFor[T]().Field(i).Tag.Get("col") {
				t.Errorf("%s: column %d is %s", table, i, f)
			}
		}
	})
	if n != want {
		t.Errorf("%s: %d rows, want %d", table, n, want)
	}
}
