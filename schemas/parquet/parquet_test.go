package parquet

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"

	"laggard/schemas/row"
)

func TestColumnsAreThoseOfTheRows(t *testing.T) {
	pairs := [][2]any{
		{Rank{}, row.Rank{}}, {Step{}, row.Step{}}, {Communication{}, row.Communication{}},
		{Record{}, row.Record{}}, {Verdict{}, row.Verdict{}}, {Ledger{}, row.Ledger{}},
	}
	for _, p := range pairs {
		got, want := reflect.TypeOf(p[0]), reflect.TypeOf(p[1])
		for i := range want.NumField() {
			name, _, _ := strings.Cut(got.Field(i).Tag.Get("parquet"), ",")
			if col := want.Field(i).Tag.Get("col"); name != col {
				t.Errorf("%s.%s is column %q, want %q", got, got.Field(i).Name, name, col)
			}
		}
	}
}

func TestRowsComeBack(t *testing.T) {
	want := []row.Rank{
		{Job: "j", Rank: 1<<32 - 1, Incarnation: 1<<64 - 1, LocalRank: 1<<16 - 1, StartedNs: -1, Groups: []string{"dp:a:0:2", ""}, GroupRanks: [][]uint32{{0, 1<<32 - 1}, {}, {7}}, Writer: "w"},
		{Job: "\xff\x00", Groups: []string{}, GroupRanks: [][]uint32{}},
	}
	var b bytes.Buffer
	w := parquet.NewGenericWriter[Rank](&b, parquet.Compression(&parquet.Zstd))
	if _, err := w.Write(Cast[Rank](want)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	got := make([]Rank, 2)
	if n, err := parquet.NewGenericReader[Rank](bytes.NewReader(b.Bytes())).Read(got); n != 2 {
		t.Fatalf("read %d rows: %v", n, err)
	}
	if d := cmp.Diff(want, Cast[row.Rank](got)); d != "" {
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
