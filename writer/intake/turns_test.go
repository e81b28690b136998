package intake

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/rollup"
	"github.com/laggard-dev/laggard/writer/tail"
)

// oddLines are lines that no record is simply made of.
var oddLines = []string{
	`{"loss":{"kind":"Communication","reason":"ring-full","count":7}}`,
	`{"loss":{"kind":"Step","reason":"ring-full","count":1}}`,
	`{"switch":{"at":1753000000100000000,"default":true,"communication":true}}`,
	`{"kind":"FP","step":1,"start":5000000000000000000,"dur":5}`,
	`{"kind":"FP","step":1,"start":1753000000000000000,"dur":"long"}`,
	`{"kind":"FP","st{"kind":"FP","step":3,"start":1753000000300000000,"dur":7}`,
	`{ "kind" : "Checkpoint\u0041", "start":1753000000000000000, "dur":1 }`,
	`{"Kind":2,"Name":"x"}`, `{"later":{}}`, `garbage`, ``, string(make([]byte, 100)),
}

// fed is what a rank directory became.
type fed struct {
	Rows    row.Rows
	Counts  rollup.Counts
	Entries []row.Ledger
	Losses  []row.Ledger
	Refused []string
}

// feedAll reads the rank directories under root to their ends, in turns of the engine's.
func feedAll(t *testing.T, root string, e *engine) []fed {
	t.Helper()
	tree := tail.New(root, tail.Options{})
	defer tree.Close()
	streams, err := tree.Scan()
	if err != nil || len(streams) == 0 {
		t.Fatalf("%d streams, %v", len(streams), err)
	}

	all, members := make([]fed, len(streams)), make([]*member, len(streams))
	bytes := int64(0)
	for i, s := range streams {
		if err := s.Refresh(); err != nil {
			t.Fatal(err)
		}

		m := &member{stream: s}
		m.refuse = func(id record.ID, line []byte, _, reason string) {
			all[i].Refused = append(all[i].Refused, id.String()+reason+string(line))
		}
		m.roller = rollup.New(rollup.Options{Job: "j", Rank: s.Dir.Rank, Records: rollup.All, Refused: m.refuseLine})
		members[i] = m
	}

	for busy := true; busy; {
		busy = false
		for i, m := range members {
			n, more, err := m.stream.Read(e.o.Quantum, m)
			if err != nil {
				t.Fatal(err)
			}

			busy, bytes = busy || more, bytes+n
			m.roller.Take(&all[i].Rows)
		}
	}

	for i, m := range members {
		f := &all[i]
		m.roller.End()
		m.closeSegment()
		m.roller.Take(&f.Rows)
		f.Counts, f.Entries, f.Losses = m.roller.Counts(), m.entries, m.stream.Losses()
	}

	for i := range all {
		raws := &all[i].Rows.Raws
		*raws = row.Pack(raws.AppendTo(nil)...) // turns number words otherwise
	}

	if _, read := tree.Counts(); read != uint64(bytes) {
		t.Errorf("%d bytes in turns, %d read", bytes, read)
	}

	return all
}

// oddRank writes five segments of a rank with odd lines among their records, named from
// first on.
func oddRank(t *testing.T, dir string, seed uint64, first int) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}

	r := rand.New(rand.NewPCG(seed, 4))
	at, seq := int64(1_753_000_000_000_000_000), uint64(0)
	for i := range 5 {
		name := fmt.Sprint(first + i)
		m := record.Meta{Format: record.Format, Segment: fmt.Sprintf("%08x%08x", seed, i+1), Job: "j", Incarnation: 7, WorldSize: 1, StartedNs: at}
		b := m.AppendLine(nil)
		for n := range 3000 {
			kind := record.Communication
			if n%100 == 99 {
				kind = record.Step
			}

			c := record.New(kind)
			c.Step, c.Start, c.Dur, c.Ring, c.Seq = int64(seq/100), at, 1000+r.Int64N(1000), 1, seq
			if kind == record.Step {
				c.Start, c.Dur = at-99*30_000, 100*30_000
			} else {
				c.Op, c.Group, c.Bytes = "allreduce", "dp0", r.Int64N(3)
			}

			b = c.AppendLine(b)
			at, seq = at+30_000, seq+1
			if r.IntN(50) == 0 {
				b = append(append(b, oddLines[r.IntN(len(oddLines))]...), '\n')
			}
		}

		if i == 2 {
			b = append(b, `{"kind":"FP","st`...) // torn
		}

		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTurnsChangeNothing: what comes of files that are read in turns of any size, of one
// rank or three, is what comes of them read one after the other. The third rank's
// segments have names of another time: its records are out of their bounds.
func TestTurnsChangeNothing(t *testing.T) {
	for _, ranks := range []int{1, 3} {
		root := t.TempDir()
		for rank := range ranks {
			oddRank(t, filepath.Join(root, "j", fmt.Sprint(rank)), uint64(3+rank), []int{1_753_000_000, 1_753_000_001, 1_153_000_000}[rank])
		}

		want := feedAll(t, root, &engine{o: Options{Quantum: 1 << 30}})
		for rank, f := range want {
			if len(f.Rows.Raws.Rows) < 14_000 != (rank == 2) || f.Counts.Garbage == 0 || f.Counts.Torn == 0 || len(f.Refused) == 0 || len(f.Losses) == 0 || len(f.Entries) == 0 {
				t.Fatalf("rank %d: %d rows, counts %+v, %d refused, losses %+v", rank, len(f.Rows.Raws.Rows), f.Counts, len(f.Refused), f.Losses)
			}
		}

		if !strings.Contains(want[0].Refused[0], "5000000000000000000") {
			t.Fatalf("refused: %q", want[0].Refused[0])
		}

		for _, quantum := range []int64{1 << 10, 4 << 10, 64 << 10} {
			got := feedAll(t, root, &engine{o: Options{Quantum: quantum}})
			if !reflect.DeepEqual(want, got) { // a hundred times quicker than a Diff
				diff := cmp.Diff(want, got)
				t.Fatalf("%d ranks in turns of %d bytes: (-want +got)\n%s", ranks, quantum, diff[:min(len(diff), 2000)])
			}
		}
	}
}
