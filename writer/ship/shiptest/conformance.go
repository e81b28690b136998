// Package shiptest is the conformance test of sinks: what every store must do,
// in one place. It also makes rows for other tests.
package shiptest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/laggard-dev/laggard/schemas/clickhouse"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/ship"
)

// Base is the start of the rows that this package makes: half an hour before a
// midnight (UTC), so that a few thousand of them cross a partition.
const Base int64 = 1_753_000_000_000_000_000/clickhouse.DayNs*clickhouse.DayNs + clickhouse.DayNs - 1_800_000_000_000

// Rows returns n steps of one rank, one communication row for each 16, and a
// record for each step, all with text that is hard to quote.
func Rows(job string, rank uint32, first, n int) *row.Rows {
	r := &row.Rows{}
	var records []row.Record
	if first == 0 {
		r.Ranks = append(r.Ranks, Rank(job, rank, 1))
	}

	for i := first; i < first+n; i++ {
		start := Base + int64(i)*1_000_000_000
		r.Steps = append(r.Steps, row.Step{
			Job: job, Rank: rank, Incarnation: incarnation(rank), Node: "node-0", Step: uint64(i), StartNs: start,
			StepNs: 900_000_000, FPNs: 300_000_000 + int64(i), FPCount: 1, CommNs: 100, ExposedNs: 50, CommTPNs: -1, CommPPNs: -1,
			CommDPNs: 100, CommCPNs: -1, CommEPNs: -1, CommOtherNs: -1, DataLoaderNs: 5, CheckpointNs: -1, SelfNs: 899_999_945,
			HostFPNs: -1, Tokens: -1, Flags: row.FlagHostOnly, BackwardNs: -1,
		})
		records = append(records, row.Record{
			Job: job, Rank: rank, Incarnation: incarnation(rank), Node: "node-0", Kind: "FP", Step: int64(i), StartNs: start,
			DurNs: 300, Side: "host", ExposedNs: -1, Ring: 1, Seq: uint64(i), Op: "", OpRaw: "a'b\\c", Group: "g`\"\t\x00é\xff",
			Peer: -1, Path: "/x\ny", Segment: segment(rank), Offset: uint64(100 * i),
		})
		if i%row.Window == 0 {
			for _, op := range []string{"allreduce", "all'gather"} {
				r.Communications = append(r.Communications, row.Communication{
					Job: job, Rank: rank, Incarnation: incarnation(rank), Node: "node-0", StepFrom: uint64(i), StepTo: uint64(i + row.Window - 1),
					StartNs: start, Group: "dp'0", Dim: "dp", Op: op, Steps: 16, Calls: 32, TotalNs: 5, MinNs: 1, MaxNs: 3, Bytes: 1 << 40,
				})
			}
		}
	}

	r.Raws = row.Pack(records...)

	return r
}

func incarnation(rank uint32) uint64 { return 0xF000000000000000 + uint64(rank) }
func segment(rank uint32) uint64     { return 0xE000000000000000 + uint64(rank) }

// Rank returns the identity of a rank at a version.
func Rank(job string, rank, version uint32) row.Rank {
	return row.Rank{
		Job: job, Rank: rank, Incarnation: incarnation(rank), WorldSize: 8, LocalRank: uint16(rank), Node: "node-0", Device: "cuda:0",
		PID: 7, BootID: "boot", StartedNs: Base, Groups: []string{"dp:dp'0:0:2", "tp:t:1:2"},
		GroupRanks: [][]uint32{{0, 4}, {0, 1}}, Writer: "go/1", Version: version, Off: []string{"1753000000000000001:1753000000000000002", "1753000000000000003:"},
	}
}

// Conform checks that a sink is one. open returns a new handle on the same empty
// store each time it is called.
func Conform(t *testing.T, open func(t *testing.T) ship.Sink) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	sink := open(t)
	for range 2 {
		if err := sink.Create(ctx); err != nil {
			t.Fatalf("Create: %v", err)
		}
	}

	job := "job 'ü/..\\" + t.Name()
	batches := ship.Cut(Rows(job, 3, 0, 3000))
	days := map[int64]bool{}
	for _, b := range batches {
		days[b.Day] = true
		want(t, ctx, sink, b, none(b))
	}

	if len(days) < 3 { // ranks have one of their own
		t.Fatalf("batches of %d partitions, want rows on both sides of a midnight", len(days))
	}

	t.Run("InsertedIsStored", func(t *testing.T) {
		for _, b := range batches {
			insert(t, ctx, sink, b)
			want(t, ctx, sink, b, all(b))
		}
	})
	t.Run("SeenByAnotherHandle", func(t *testing.T) {
		other := open(t)
		if err := other.Create(ctx); err != nil {
			t.Fatalf("Create: %v", err)
		}

		for _, b := range batches {
			want(t, ctx, other, b, all(b))
		}
	})
	t.Run("OtherRowsAreNot", func(t *testing.T) {
		for _, b := range append(ship.Cut(Rows(job, 4, 0, 100)), ship.Cut(Rows(job+"x", 3, 0, 100))...) {
			want(t, ctx, sink, b, none(b))
		}
	})
	t.Run("PartStored", func(t *testing.T) { part(t, ctx, sink, job) })
	t.Run("RankVersions", func(t *testing.T) { ranks(t, ctx, sink, job) })
	t.Run("LedgerAndVerdicts", func(t *testing.T) { others(t, ctx, sink, job) })
	t.Run("EndedContext", func(t *testing.T) { ended(t, ctx, sink, job) })
	if err := sink.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
}

// part asks for the last ten of the 3000 steps that are stored, and 22 behind them.
func part(t *testing.T, ctx context.Context, sink ship.Sink, job string) {
	for _, b := range ship.Cut(Rows(job, 3, 2990, 32)) {
		got := stored(t, ctx, sink, b)
		for i, g := range got {
			if had := known(b, i); g != had {
				t.Fatalf("%s row %d stored %t, want %t", b.Table, i, g, had)
			}
		}
	}
}

// known tells whether row i of b is one of the 3000 first steps' rows.
func known(b *ship.Batch, i int) bool { return b.Origin(i).StartNs < Base+3000*1_000_000_000 }

// ranks stores the second version of an identity beside the first: versions are different rows.
func ranks(t *testing.T, ctx context.Context, sink ship.Sink, job string) {
	second := &row.Rows{Ranks: []row.Rank{Rank(job, 3, 2)}}
	b := ship.Cut(second)[0]
	want(t, ctx, sink, b, none(b))
	insert(t, ctx, sink, b)
	want(t, ctx, sink, b, all(b))
	first := ship.Cut(&row.Rows{Ranks: []row.Rank{Rank(job, 3, 1), Rank(job, 3, 2), Rank(job, 3, 3)}})[0]
	want(t, ctx, sink, first, []bool{true, true, false})
}

// others stores an entry of the ledger, and a verdict, which may be stored twice.
func others(t *testing.T, ctx context.Context, sink ship.Sink, job string) {
	entry := row.Ledger{Job: job, Rank: 3, Segment: 5, Name: "1753000000", State: "emitted", Kind: "Step", Records: 7, AtNs: Base}
	second := entry
	second.State, second.Reason = "dropped", "ring-full"
	b := ship.Cut(&row.Rows{Ledger: []row.Ledger{entry, second}})[0]
	want(t, ctx, sink, b, none(b))
	insert(t, ctx, sink, b)
	want(t, ctx, sink, b, all(b))
	v := []row.Verdict{{Job: job, AtNs: Base, Step: 5, Node: "node-0", State: "degraded", Cause: "compute", Body: "{}", ImpactPPM: 9}}
	for range 2 { // the second stores nothing
		if err := ship.Verdicts(ctx, sink, v); err != nil {
			t.Fatalf("Verdicts: %v", err)
		}
	}
}

// ended inserts under a context that has ended. A client may have sent the block before it looked;
// where it says that it failed, nothing is stored.
func ended(t *testing.T, ctx context.Context, sink ship.Sink, job string) {
	over, cancel := context.WithCancel(ctx)
	cancel()
	for i := range 20 {
		b := ship.Cut(Rows(job, 9, 1+10*i, 5))[0]
		if err := sink.Insert(over, b); err != nil {
			want(t, ctx, sink, b, none(b))
		}
	}
}

// insert inserts a batch, or ends the test.
func insert(t *testing.T, ctx context.Context, sink ship.Sink, b *ship.Batch) {
	t.Helper()
	if err := sink.Insert(ctx, b); err != nil {
		t.Fatalf("Insert(%s, %d rows): %v", b.Table, b.Len(), err)
	}
}

// stored asks the sink which rows of a batch it has.
func stored(t *testing.T, ctx context.Context, sink ship.Sink, b *ship.Batch) []bool {
	t.Helper()
	got, err := sink.Stored(ctx, b)
	if err != nil {
		t.Fatalf("Stored(%s): %v", b.Table, err)
	}

	if len(got) != b.Len() {
		t.Fatalf("Stored(%s) answers for %d of %d rows", b.Table, len(got), b.Len())
	}

	return got
}

// want asks the same, and ends the test where the answer is another.
func want(t *testing.T, ctx context.Context, sink ship.Sink, b *ship.Batch, marks []bool) {
	t.Helper()
	if got := stored(t, ctx, sink, b); !slices.Equal(got, marks) {
		t.Fatalf("Stored(%s) = %s, want %s", b.Table, brief(got), brief(marks))
	}
}

// brief is how many of the marks are set: a batch has thousands.
func brief(marks []bool) string {
	n := 0
	for _, m := range marks {
		if m {
			n++
		}
	}

	return fmt.Sprintf("%d of %d", n, len(marks))
}

func none(b *ship.Batch) []bool { return make([]bool, b.Len()) }
func all(b *ship.Batch) []bool  { return slices.Repeat([]bool{true}, b.Len()) }
