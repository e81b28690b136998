package source

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/laggard-dev/laggard/schemas/clickhouse/chtest"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/clickhouse"
	"github.com/laggard-dev/laggard/writer/intake"
	"github.com/laggard-dev/laggard/writer/ship"
)

// TestClickHouse_GroupsOfManyRanks: identities come back as they were stored, the highest
// version of each, and ranks of one group share one copy of its members.
func TestClickHouse_GroupsOfManyRanks(t *testing.T) {
	server := chtest.Start(t)
	spec := server.Store(server.Database())
	sink, err := intake.OpenStore(spec, clickhouse.Options{})
	if err != nil {
		t.Fatal(err)
	}

	if err := sink.Create(t.Context()); err != nil {
		t.Fatal(err)
	}

	const ranks = 3000 // several blocks
	var everybody []uint32
	for r := range uint32(ranks) {
		everybody = append(everybody, r)
	}

	var want []row.Rank
	for version := range uint32(2) {
		var rows row.Rows
		for r := range uint32(ranks) {
			one := row.Rank{Job: "j", Rank: r, Incarnation: uint64(r) + 1<<63, WorldSize: ranks, LocalRank: uint16(r % 8), Node: "n" + strconv.Itoa(int(r)/8), Device: "d", Pod: "p",
				PID: r + 7, BootID: "b", StartedNs: 5, EndedNs: int64(version), Groups: []string{}, GroupRanks: [][]uint32{}, Writer: "w", Version: version + 1, Off: []string{}}
			if r%3 != 0 {
				one.Groups, one.GroupRanks, one.Off = []string{"dp:all:0:3000", "tp:mine:0:1"}, [][]uint32{everybody, {r}}, []string{"1:2"}
			}

			rows.Ranks = append(rows.Ranks, one)
		}

		for _, batch := range ship.Cut(&rows) {
			if err := sink.Insert(t.Context(), batch); err != nil {
				t.Fatal(err)
			}
		}

		want = rows.Ranks
	}

	if err := sink.Close(); err != nil {
		t.Fatal(err)
	}

	got, _, err := load(t, spec, "j", Options{})
	if err != nil {
		t.Fatal(err)
	}

	if !reflect.DeepEqual(want, got.Ranks) { // a hundred times quicker than a Diff
		t.Fatalf("other identities than were stored:\n%.2000s", cmp.Diff(want, got.Ranks))
	}

	for i := range got.Ranks {
		if g := got.Ranks[i].GroupRanks; i%3 != 0 && &g[0][0] != &got.Ranks[1].GroupRanks[0][0] {
			t.Fatalf("rank %d has a copy of its own of a group's members", i)
		}
	}
}

// TestClickHouse_ColumnOfAnotherType: a table that somebody has changed is an error that names the column.
func TestClickHouse_ColumnOfAnotherType(t *testing.T) {
	server := chtest.Start(t)
	database := server.Database()
	spec := server.Store(database)
	sink, err := intake.OpenStore(spec, clickhouse.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer sink.Close()
	if err := sink.Create(t.Context()); err != nil {
		t.Fatal(err)
	}

	rows := row.Rows{Ranks: []row.Rank{{Job: "j", Groups: []string{}, GroupRanks: [][]uint32{}, Off: []string{"1:2"}, Version: 1}}}
	for _, batch := range ship.Cut(&rows) {
		if err := sink.Insert(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
	}

	for _, c := range []struct{ column, changed, ours string }{{"off", "String", "Array(String)"}, {"pid", "String", "UInt32"}} {
		become := func(kind string) {
			server.Exec("ALTER TABLE " + database + ".ranks DROP COLUMN " + c.column + ", ADD COLUMN " + c.column + " " + kind)
		}
		become(c.changed)
		if _, _, err := load(t, spec, "j", Options{}); err == nil || !strings.Contains(err.Error(), "column "+c.column+": is of another type") {
			t.Errorf("column %s of type %s: error %v", c.column, c.changed, err)
		}

		become(c.ours)
	}
}

// TestByKey puts stretches that rise into one, with keys in several of them.
func TestByKey(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for n := range 200 {
		var rows []row.Step
		for range n % 9 {
			var part []row.Step
			for range random.IntN(20) {
				part = append(part, row.Step{Rank: random.Uint32N(3), Incarnation: random.Uint64N(2), Step: random.Uint64N(4), Repeat: uint16(random.UintN(2))})
			}

			slices.SortFunc(part, func(a, b row.Step) int { return row.CompareSteps(&a, &b) })
			rows = append(rows, part...)
		}

		want := slices.Clone(rows)
		slices.SortFunc(want, func(a, b row.Step) int { return row.CompareSteps(&a, &b) })
		want = slices.Compact(want)
		got := byKey(rows, row.CompareSteps)
		if !slices.Equal(got, want) {
			t.Fatalf("%d rows: %d of %d keys, or another order", len(rows), len(got), len(want))
		}
	}
}
