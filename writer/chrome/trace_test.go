package chrome

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/chrome/perfetto"
)

// TestPerfetto: ranges of one thread that overlap as they please (collectives that
// nobody waits for, device records that come late, several that begin at once) are all
// in the viewer, each with its times to the nanosecond, on lines of their rank and kind.
func TestPerfetto(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	const base, ranges = int64(1_700_000_000_000_000_000), 3000
	path := filepath.Join(t.TempDir(), "trace.json")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := NewWriter(f, base)
	type shown struct {
		rank       uint32
		kind       string
		start, dur int64
	}
	var want []shown
	for part := range int64(30) {
		records := make([]row.Record, ranges/30)
		for i := range records {
			s := shown{random.Uint32N(3), "Communication", part*1000 + random.Int64N(1200), random.Int64N(100)}
			if random.IntN(2) == 0 {
				s.kind = "FP"
			}

			want = append(want, s)
			records[i] = row.Record{Rank: s.rank, Kind: s.kind, Op: "allreduce", StartNs: base + s.start, DurNs: s.dur, Thread: 7}
		}

		w.Records(records)
	}

	if err := w.Close(); err != nil {
		t.Fatal(err)
	}

	answers := perfetto.Query(t, path, perfetto.Complaints,
		"SELECT pid, category, ts, dur, thread.name FROM slice JOIN thread_track ON track_id = thread_track.id JOIN thread USING (utid) JOIN process USING (upid)")
	if len(answers[0]) != 0 {
		t.Errorf("Perfetto complains: %v", answers[0])
	}

	var got []shown
	for _, r := range answers[1] {
		s := shown{uint32(r[0].(float64)), r[1].(string), int64(r[2].(float64)), int64(r[3].(float64))}
		if name := r[4].(string); len(name) < len(s.kind) || name[:len(s.kind)] != s.kind {
			t.Errorf("a range of kind %s is on the line %q", s.kind, name)
		}

		got = append(got, s)
	}

	order := func(a, b shown) int {
		for _, c := range []int64{int64(a.rank) - int64(b.rank), a.start - b.start, a.dur - b.dur, int64(len(a.kind) - len(b.kind))} {
			if c != 0 {
				return int(c)
			}
		}

		return 0
	}
	slices.SortFunc(want, order)
	slices.SortFunc(got, order)
	if !slices.Equal(got, want) {
		t.Errorf("Perfetto shows %d ranges, %d were written, or others", len(got), len(want))
	}
}
