package intake

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"laggard/schemas/record"
	"laggard/schemas/row"
	"laggard/writer/rollup"
	"laggard/writer/tail"
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
	Losses  []tail.Loss
	Refused []string
	Bytes   int64
}

// feedAll reads a rank directory to its end by read.
func feedAll(t *testing.T, root string, read func(*member) (int64, bool, error)) fed {
	t.Helper()
	tree := tail.New(root, tail.Options{})
	defer tree.Close()
	streams, err := tree.Scan()
	if err != nil || len(streams) != 1 {
		t.Fatalf("%d streams, %v", len(streams), err)
	}
	if _, err := streams[0].Refresh(); err != nil {
		t.Fatal(err)
	}
	var f fed
	m := &member{stream: streams[0]}
	m.refuse = func(id record.ID, line []byte, reason string) {
		f.Refused = append(f.Refused, id.String()+reason+string(line))
	}
	m.roller = rollup.New(rollup.Options{Job: "j", Records: rollup.All, Refused: m.insane})
	for more := true; more; {
		var n int64
		if n, more, err = read(m); err != nil {
			t.Fatal(err)
		}
		f.Bytes += n
		m.roller.Take(&f.Rows)
	}
	m.roller.End()
	m.closeSegment()
	m.roller.Take(&f.Rows)
	f.Counts, f.Entries, f.Losses = m.roller.Counts(), m.entries, m.stream.Losses()
	return f
}

// TestAheadChangesNothing: what comes of files that are parsed ahead, in turns of any
// size, is what comes of their lines one after the other.
func TestAheadChangesNothing(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "j", "0")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(3, 4))
	at, seq := int64(1_753_000_000_000_000_000), uint64(0)
	for i := range 5 {
		name := fmt.Sprint(1_753_000_000 + i)
		m := record.Meta{Format: record.Format, Segment: fmt.Sprintf("%016x", i+1), Job: "j", Incarnation: 7, WorldSize: 1, StartedNs: at}
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
	want := feedAll(t, root, func(m *member) (int64, bool, error) { return m.stream.Read(1<<30, m) })
	if len(want.Rows.Records) < 14_000 || want.Counts.Garbage == 0 || want.Counts.Torn == 0 || len(want.Refused) == 0 || len(want.Losses) == 0 || len(want.Entries) == 0 {
		t.Fatalf("%d rows, counts %+v, %d refused, losses %+v", len(want.Rows.Records), want.Counts, len(want.Refused), want.Losses)
	}
	for _, enough := range []int{1, 1000, 1 << 30} {
		a := newAhead()
		got := feedAll(t, root, func(m *member) (int64, bool, error) { return a.read(m, enough) })
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("in turns of %d rows: (-want +got)\n%s", enough, diff[:min(len(diff), 2000)])
		}
	}
	if !bytes.Contains([]byte(want.Refused[0]), []byte("5000000000000000000")) {
		t.Fatalf("refused: %q", want.Refused[0])
	}
}
