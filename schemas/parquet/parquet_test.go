package parquet

import (
	"bytes"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"

	"github.com/laggard-dev/laggard/schemas/row"
)

// TestColumnsAreThoseOfTheRows: a column has one name in all stores.
func TestColumnsAreThoseOfTheRows(t *testing.T) {
	for _, one := range []any{row.Rank{}, row.Step{}, row.Communication{}, row.Record{}, row.Verdict{}, row.Ledger{}} {
		of := reflect.TypeOf(one)
		for i := range of.NumField() {
			tags := of.Field(i).Tag
			if name, _, _ := strings.Cut(tags.Get("parquet"), ","); name != tags.Get("col") {
				t.Errorf("%s.%s is column %q, want %q", of, of.Field(i).Name, name, tags.Get("col"))
			}
		}
	}
}

func TestRowsComeBack(t *testing.T) {
	want := []row.Rank{
		{Job: "j", Rank: 1<<32 - 1, Incarnation: 1<<64 - 1, LocalRank: 1<<16 - 1, StartedNs: -1, Groups: []string{"dp:a:0:2", ""}, GroupRanks: [][]uint32{{0, 1<<32 - 1}, {}, {7}}, Writer: "w", Off: []string{"1:2", "3:"}},
		{Job: "\xff\x00", Groups: []string{}, GroupRanks: [][]uint32{}, Off: []string{}},
	}
	var b bytes.Buffer
	w := parquet.NewGenericWriter[row.Rank](&b, parquet.Compression(&parquet.Zstd))
	if _, err := w.Write(want); err != nil {
		t.Fatal(err)
	}

	if err := w.Close(); err != nil {
		t.Fatal(err)
	}

	got := make([]row.Rank, 2)
	if n, err := parquet.NewGenericReader[row.Rank](bytes.NewReader(b.Bytes())).Read(got); n != 2 {
		t.Fatalf("read %d rows: %v", n, err)
	}

	if d := cmp.Diff(want, got); d != "" {
		t.Fatal(d)
	}
}

func TestEscape(t *testing.T) {
	for job, want := range map[string]string{
		"": "__HIVE_DEFAULT_PARTITION__", "j-1_x.y": "j-1_x.y", "..": "%2E.", "a/b": "a%2Fb",
		"ü=": "%C3%BC%3D", ".hidden": "%2Ehidden", "a%2Fb": "a%252Fb", "a\x00b": "a%00b",
	} {
		if got := Escape(job); got != want {
			t.Errorf("Escape(%q) = %q, want %q", job, got, want)
		}
	}

	a, b := Folder("s", "steps", strings.Repeat("ä", 300)+"1"), Folder("s", "steps", strings.Repeat("ä", 300)+"2")
	if a == b || len(a) > 255 {
		t.Fatalf("long jobs share a folder or pass the limit: %s", a)
	}
}

// TestRead: every row is read once, however many there are beside the rows handed out
// at a time and those of a row group.
func TestRead(t *testing.T) {
	for _, n := range []int{0, 1, 2, 999, 1000, 1001, batch - 1, batch, batch + 1, 3*batch + 7} {
		path := filepath.Join(t.TempDir(), "steps.parquet")
		want := make([]row.Step, n)
		for i := range want {
			want[i].Step = uint64(i)
		}

		if err := parquet.WriteFile(path, want, parquet.MaxRowsPerRowGroup(1000)); err != nil {
			t.Fatal(err)
		}

		var got []row.Step
		if err := Read(path, func(r []row.Step) error { got = append(got, r...); return nil }); err != nil {
			t.Fatal(err)
		}

		if !slices.Equal(want, got) {
			t.Errorf("of %d rows %d are read", n, len(got))
		}
	}
}

// TestReadOfFewRows: a file of one row does not cost what a full portion of rows does.
func TestReadOfFewRows(t *testing.T) {
	path := filepath.Join(t.TempDir(), "steps.parquet")
	if err := parquet.WriteFile(path, []row.Step{{Step: 7}}); err != nil {
		t.Fatal(err)
	}

	n := testing.AllocsPerRun(3, func() {
		if err := Read(path, func([]row.Step) error { return nil }); err != nil {
			t.Fatal(err)
		}
	})
	if n > batch {
		t.Errorf("%.0f allocations, want some hundreds", n)
	}
}

// BenchmarkReadRank: a store has a file of one row for each rank.
func BenchmarkReadRank(b *testing.B) {
	path := filepath.Join(b.TempDir(), "rank.parquet")
	if err := parquet.WriteFile(path, []row.Rank{{Job: "j", Groups: []string{"dp:a:0:2"}, GroupRanks: [][]uint32{{0, 1}}}}); err != nil {
		b.Fatal(err)
	}

	b.ReportAllocs()
	for b.Loop() {
		n := 0
		if err := Read(path, func(r []row.Rank) error { n += len(r); return nil }); err != nil || n != 1 {
			b.Fatalf("%d rows: %v", n, err)
		}
	}
}
