package ship

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/laggard-dev/laggard/schemas/row"
)

func TestConflicts(t *testing.T) {
	of := func(job, table string, ranks ...uint32) *Batch {
		b := &Batch{Table: table, Job: job}
		for _, r := range ranks {
			if table == row.StepsTable {
				b.Steps = append(b.Steps, row.Step{Job: job, Rank: r})
			} else {
				one := row.Pack(row.Record{Job: job, Rank: r})
				b.Raws.Append(&one)
			}
		}

		b.seal()
		return b
	}
	many := []uint32{0, 2, 4, 6, 8, 10, 12, 14, 16, 18}
	b := of("j", row.StepsTable, 0, 1, 2, 3)
	for other, want := range map[*Batch]bool{
		of("j", row.StepsTable, 3):               true,
		of("j", row.StepsTable, 4, 9):            false,
		of("j", row.StepsTable, 7, 2):            true,
		of("j", row.StepsTable, many...):         true,
		of("j", row.RecordsTable, 3):             false,
		of("k", row.StepsTable, 3):               false,
		{Query: "SELECT 1"}:                      false,
		{Query: "laggard-odd"}:                   false,
		{Query: of("j", "steps", 3).Query + "x"}: true,
	} {
		if got := b.Conflicts(other.Query); got != want {
			t.Errorf("Conflicts(%q) = %t, want %t", other.Query, got, want)
		}
	}
}

// TestAccounts: a batch of raw rows has one entry for each process and segment, wherever their rows lie,
// and one of steps has one for each process.
func TestAccounts(t *testing.T) {
	raws := row.Pack(
		row.Record{Job: "j", Segment: 1, Offset: 500, StartNs: 7}, row.Record{Job: "j", Segment: 1, Offset: 300},
		row.Record{Job: "j", Segment: 2, Offset: 10}, row.Record{Job: "j", Segment: 1, Offset: 900},
		row.Record{Job: "j", Rank: 3, Segment: 1, Offset: 400},
	)
	steps := []row.Step{{Job: "j", Step: 4, StartNs: 9}, {Job: "j", Rank: 2, Step: 1}, {Job: "j", Step: 5}}
	var got []string
	for _, b := range []*Batch{{Table: row.RecordsTable, Rows: row.Rows{Raws: raws}}, {Table: row.StepsTable, Rows: row.Rows{Steps: steps}}} {
		b.seal()
		for _, e := range appendAccounts(nil, b) {
			got = append(got, fmt.Sprintf("%s %d/%d: %d rows, %d to %d, at %d", e.Table, e.Rank, e.Segment, e.Records, e.FirstOffset, e.LastOffset, e.AtNs))
		}
	}

	want := []string{
		"records 0/1: 3 rows, 300 to 900, at 7", "records 0/2: 1 rows, 10 to 10, at 0", "records 3/1: 1 rows, 400 to 400, at 0",
		"steps 0/0: 2 rows, 0 to 0, at 9", "steps 2/0: 1 rows, 0 to 0, at 0",
	}
	if !slices.Equal(got, want) {
		t.Errorf("accounts\n%q\nwant\n%q", got, want)
	}
}

// TestIdIsContent: the same rows make the same id in every batch, others another.
func TestIdIsContent(t *testing.T) {
	ids := map[string]string{}
	for i := range 100 {
		b := Cut(records(1, i, i+1))[0]
		again := Cut(records(1, i, i+1))[0]
		if b.ID != again.ID || b.Query != again.Query {
			t.Fatal("the same rows have two ids")
		}

		if other, ok := ids[b.ID.String()]; ok {
			t.Fatalf("rows %s and %d share an id", other, i)
		}

		ids[b.ID.String()] = fmt.Sprint(i)
	}
}

func TestRowJSON(t *testing.T) {
	b := Cut(&row.Rows{Ranks: []row.Rank{{Job: "j", Groups: []string{"a"}, GroupRanks: [][]uint32{{1}}, Incarnation: 1<<64 - 1}}})[0]
	var object map[string]any
	if err := json.Unmarshal(b.rowJSON(0), &object); err != nil {
		t.Fatal(err)
	}

	if keys := len(slices.Collect(maps.Keys(object))); keys != 17 || object["job"] != "j" {
		t.Fatalf("rowJSON() = %s", b.rowJSON(0))
	}
}
