package parquet

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/laggard-dev/laggard/schemas/clickhouse/chtest"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/ship"
)

// engineRows is more rows than ClickHouse reads as one block (65,409): under a
// condition it seeks within pages only behind its first one.
const engineRows = 82_921

// TestRawFileCurrentEngine: another reader, the newest ClickHouse's own, finds the same
// cells in a file of packed rows, with and without a condition, and by conditions that
// it answers with the smallest and largest values of a row group, the same rows.
func TestRawFileCurrentEngine(t *testing.T) {
	engine := chtest.StartEngine(t)
	want := randomRecords(rand.New(rand.NewPCG(5, 6)), engineRows)
	b := ship.Cut(&row.Rows{Raws: row.Pack(want...)})[0]
	from := inFile(t, func(out io.Writer) error { return (&Sink{writers: map[string]any{}}).write(out, b, nil) })
	compareCells(t, engine, row.RecordsTable, from, want, "1", func(*row.Record) bool { return true })
	compareCells(t, engine, row.RecordsTable, from, want, "seq % 7 = 3", func(r *row.Record) bool { return r.Seq%7 == 3 })
	want = inOrder(want)
	for i := 0; i < len(want); i += len(want) / 2 {
		r := &want[i]
		for condition, holds := range map[string]func(*row.Record) bool{
			fmt.Sprintf("seq >= %d", r.Seq):                      func(o *row.Record) bool { return o.Seq >= r.Seq },
			fmt.Sprintf("ring <= %d", r.Ring):                    func(o *row.Record) bool { return o.Ring <= r.Ring },
			fmt.Sprintf("host_start_ns < %d", r.HostStartNs):     func(o *row.Record) bool { return o.HostStartNs < r.HostStartNs },
			fmt.Sprintf("peer > %d", r.Peer):                     func(o *row.Record) bool { return o.Peer > r.Peer },
			fmt.Sprintf("op = '%s'", r.Op):                       func(o *row.Record) bool { return o.Op == r.Op },
			fmt.Sprintf("start_ns = %d", r.StartNs):              func(o *row.Record) bool { return o.StartNs == r.StartNs },
			fmt.Sprintf("segment = %d", r.Segment):               func(o *row.Record) bool { return o.Segment == r.Segment },
			fmt.Sprintf("repeat >= %d AND thread > 0", r.Repeat): func(o *row.Record) bool { return o.Repeat >= r.Repeat && o.Thread > 0 },
		} {
			n := 0
			for k := range want {
				if holds(&want[k]) {
					n++
				}
			}

			got, err := engine.Query("SELECT count()" + from + " WHERE " + condition)
			if err != nil || strings.TrimSpace(got) != fmt.Sprint(n) {
				t.Errorf("%s: %s rows, want %d (%v)", condition, got, n, err)
			}
		}
	}
}

// TestFilesCurrentEngine is the same for the files of all tables, all columns of many values, read under a condition.
func TestFilesCurrentEngine(t *testing.T) {
	engine := chtest.StartEngine(t)
	r := rand.New(rand.NewPCG(7, 8))
	steps, communications := scatteredRows[row.Step](r), scatteredRows[row.Communication](r)
	records, verdicts, entries := scatteredRows[row.Record](r), scatteredRows[row.Verdict](r), scatteredRows[row.Ledger](r)
	read := func(b *ship.Batch) string {
		return inFile(t, func(out io.Writer) error { return (&Sink{writers: map[string]any{}}).write(out, b, nil) })
	}
	from := read(&ship.Batch{Table: row.StepsTable, Rows: row.Rows{Steps: steps}})
	compareCells(t, engine, row.StepsTable, from, steps, "rank % 7 = 3", func(r *row.Step) bool { return r.Rank%7 == 3 })
	from = read(&ship.Batch{Table: row.CommunicationsTable, Rows: row.Rows{Communications: communications}})
	compareCells(t, engine, row.CommunicationsTable, from, communications, "rank % 7 = 3", func(r *row.Communication) bool { return r.Rank%7 == 3 })
	from = read(&ship.Batch{Table: row.RecordsTable, Rows: row.Rows{Raws: row.Pack(records...)}})
	compareCells(t, engine, row.RecordsTable, from, records, "rank % 7 = 3", func(r *row.Record) bool { return r.Rank%7 == 3 })
	from = read(&ship.Batch{Table: row.VerdictsTable, Rows: row.Rows{Verdicts: verdicts}})
	compareCells(t, engine, row.VerdictsTable, from, verdicts, "step % 7 = 3", func(r *row.Verdict) bool { return r.Step%7 == 3 })
	from = read(&ship.Batch{Table: row.LedgerTable, Rows: row.Rows{Ledger: entries}})
	compareCells(t, engine, row.LedgerTable, from, entries, "rank % 7 = 3", func(r *row.Ledger) bool { return r.Rank%7 == 3 })
}

// scatteredRows makes rows whose numbers are of all values of their types.
func scatteredRows[T any](r *rand.Rand) []T {
	words := []string{"", "a", "a word", "another word"}
	all := make([]T, engineRows)
	for i := range all {
		v := reflect.ValueOf(&all[i]).Elem()
		for k := range v.NumField() {
			switch f := v.Field(k); {
			case f.CanInt():
				f.SetInt(int64(r.Uint64()) >> (64 - f.Type().Bits()))
			case f.CanUint():
				f.SetUint(r.Uint64() >> (64 - f.Type().Bits()))
			default:
				f.SetString(words[r.IntN(len(words))])
			}
		}
	}

	return all
}

// inFile writes a file and returns the engine's FROM of it.
func inFile(t *testing.T, write func(io.Writer) error) string {
	t.Helper()
	var out bytes.Buffer
	if err := write(&out); err != nil {
		t.Fatal(err)
	}

	path := filepath.Join(t.TempDir(), "x.parquet")
	if err := os.WriteFile(path, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}

	return " FROM file('" + path + "', 'Parquet')"
}

// compareCells compares what the engine finds by a condition with the rows that it
// holds for.
func compareCells[T any](t *testing.T, engine *chtest.Engine, table, from string, rows []T, condition string, holds func(*T) bool) {
	t.Helper()
	var columns, want []string
	for _, c := range ship.LayoutOf(table).Columns {
		columns = append(columns, "toString(`"+c.Name+"`)")
	}

	for i := range rows {
		if !holds(&rows[i]) {
			continue
		}

		v := reflect.ValueOf(rows[i])
		var cells []string
		for k := range v.NumField() {
			cell := v.Field(k).Interface()
			if v.Field(k).CanUint() { // a record.ID prints as hex
				cell = v.Field(k).Uint()
			}

			cells = append(cells, fmt.Sprint(cell))
		}

		want = append(want, fmt.Sprintf("%X", strings.Join(cells, "|"))) // a path is no UTF-8
	}

	text, err := engine.Query("SELECT hex(arrayStringConcat([" + strings.Join(columns, ", ") + "], '|'))" + from + " WHERE " + condition)
	if err != nil {
		t.Fatal(err)
	}

	got := strings.Fields(text)
	if len(got) != len(want) {
		t.Fatalf("%s WHERE %s: %d rows, want %d", table, condition, len(got), len(want))
	}

	slices.Sort(got)
	slices.Sort(want)
	for i := range want {
		if got[i] != want[i] {
			a, _ := hex.DecodeString(got[i])
			b, _ := hex.DecodeString(want[i])
			t.Errorf("%s WHERE %s: %q, want %q", table, condition, a, b)
			return
		}
	}
}
