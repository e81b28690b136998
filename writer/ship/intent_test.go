package ship

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laggard-dev/laggard/schemas/clickhouse"
	"github.com/laggard-dev/laggard/schemas/row"
)

// sent is what a sink was asked to insert.
type sent struct {
	query, id string
	offsets   []uint64
}

// witness is a memory sink that remembers what it was sent, and breaks off the n-th
// insert as a kill of the process would.
type witness struct {
	*memory
	sent   []sent
	kill   int  // the insert in which the process dies; 0 never
	stores bool // the server carries it out all the same
	dead   context.CancelFunc
}

func (w *witness) Insert(ctx context.Context, b *Batch) error {
	if b.Table != row.RecordsTable {
		return w.memory.Insert(ctx, b)
	}
	one := sent{query: b.Query, id: b.ID.String()}
	for _, r := range b.Raws.Rows {
		one.offsets = append(one.offsets, r.Segment<<32|r.Offset)
	}
	slices.Sort(one.offsets)
	w.sent = append(w.sent, one)
	if len(w.sent) == w.kill {
		if w.stores {
			w.store(b)
		}
		w.dead()
		return errors.New("killed")
	}
	return w.memory.Insert(ctx, b)
}

// process ships n records of two streams from the first on, until it is killed.
func process(t *testing.T, w *witness, o Options, n, portion int) {
	t.Helper()
	s, err := New(w, o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	w.dead = cancel
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	a, b := NewStream("a"), NewStream("b")
	for i := 0; i < n; i += portion {
		if s.Put(ctx, a, oneDay(1, i, min(i+portion, n)), i) != nil || s.Put(ctx, b, oneDay(2, i, min(i+portion, n)), i) != nil {
			break
		}
		time.Sleep(10 * time.Millisecond) // virtual: rounds are cut by time, too
	}
	if ctx.Err() == nil {
		time.Sleep(time.Minute)
		_ = s.Flush(ctx)
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatalf("Run: %v", err)
	}
}

// oneDay is records of one partition but for every hundredth, which is the day after.
func oneDay(segment uint64, from, to int) *row.Rows {
	r := records(segment, from, to)
	for i := range r.Raws.Rows {
		one := &r.Raws.Rows[i]
		if one.StartNs = int64(one.Offset); one.Offset%100 == 99 {
			one.StartNs += clickhouse.DayNs
		}
	}
	return r
}

// TestIntentOutlivesTheProcess: a process is killed in its n-th insert, carried out
// by the server or not. The next one has other flags, so it would cut other batches;
// under the id of the insert that was broken off it sends the same rows, with the
// same id, and each row is stored once.
func TestIntentOutlivesTheProcess(t *testing.T) {
	for kill := 1; kill <= 12; kill++ {
		for _, stores := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				file := filepath.Join(t.TempDir(), "intents")
				w := &witness{memory: newMemory(), kill: kill, stores: stores}
				process(t, w, Options{Intents: file, BatchRows: 64, Flush: 25 * time.Millisecond}, 400, 9)
				broken := w.sent[len(w.sent)-1]
				if len(w.sent) != kill {
					t.Fatalf("%d inserts, want the kill in the %d. one", len(w.sent), kill)
				}
				had := len(w.rows)
				next := &witness{memory: w.memory}
				process(t, next, Options{Intents: file, BatchRows: 17, Flush: 7 * time.Millisecond}, 400, 31)
				w.once(t, 2, 400)
				again := slices.IndexFunc(next.sent, func(s sent) bool { return s.query == broken.query })
				switch {
				case stores && again >= 0:
					t.Fatalf("kill %d: what was stored is sent again: %+v", kill, next.sent[again])
				case !stores && again < 0:
					t.Fatalf("kill %d: no insert has the id of the one that was broken off, %s", kill, broken.query)
				case !stores && (next.sent[again].id != broken.id || !slices.Equal(next.sent[again].offsets, broken.offsets)):
					t.Fatalf("kill %d: under one id first\n%+v\nthen\n%+v", kill, broken, next.sent[again])
				}
				if info, err := os.Stat(file); err != nil || info.Size() != 0 {
					t.Fatalf("after a quiet end the intent is still there: %v, %v", info, err)
				}
				if had == 0 && kill > 2 {
					t.Fatal("the test shows nothing: nothing was stored before the kill")
				}
			})
		}
	}
}

// TestIntentRowsAreOthers: rows of the intent never come (a flag was changed), or
// more of them than its round holds. Nothing waits for good, nothing is lost.
func TestIntentRowsAreOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "intents")
		w := &witness{memory: newMemory(), kill: 1}
		process(t, w, Options{Intents: file, BatchRows: 64, Flush: time.Second}, 400, 40)
		next := &witness{memory: w.memory}
		s := ship(t, next, Options{Intents: file, Flush: 10 * time.Millisecond}, func(ctx context.Context, s *Shipper) {
			a := NewStream("a")
			r := oneDay(1, 0, 400)
			r.Raws.Rows = slices.DeleteFunc(r.Raws.Rows, func(x row.Raw) bool { return x.Offset%2 == 1 })
			put(t, ctx, s, a, r, 1)
			began := time.Now()
			for a.Acked() == nil {
				time.Sleep(10 * time.Millisecond)
			}
			if waited := time.Since(began); waited > 2*intentPatience {
				t.Errorf("rows waited %s for those that never come", waited)
			}
		})
		if len(w.rows) != 200 {
			t.Fatalf("%d rows stored, want 200", len(w.rows))
		}
		w.once(t, 1, 200)
		if s.Stats().Retries != 0 {
			t.Fatalf("Stats() = %+v", s.Stats())
		}
	})
}

// TestIntentTorn: a file that is cut or changed anywhere is no intent.
func TestIntentTorn(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state", "intents")
	in, err := loadIntents(file)
	if err != nil {
		t.Fatal(err)
	}
	one := &intent{Table: row.StepsTable, Job: "j", Day: 3, ID: 7, Claims: []claim{{Stream: "j/0", First: 5, Rows: 9}}}
	long := &intent{Table: row.StepsTable, Job: "a job with a longer name", Claims: one.Claims}
	for _, n := range []*intent{one, long, one} { // shorter over longer
		if err := in.write(n); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	got := parseIntents(b)
	if len(got) != 1 || got[0].ID != 7 || got[0].left() != 9 || got[0].Claims[0] != one.Claims[0] {
		t.Fatalf("read back %+v", got)
	}
	whole := intentHead + 1
	for parseIntents(b[:whole]) == nil {
		whole++
	}
	for i := range whole {
		if i < whole-1 && parseIntents(b[:i]) != nil {
			t.Fatalf("cut at byte %d of %d it is believed", i, whole)
		}
		flipped := slices.Clone(b)
		flipped[i] ^= 0x10
		if n := parseIntents(flipped); n != nil && n[0].left() != 9 {
			t.Fatalf("with byte %d changed it is read as %+v", i, n[0])
		}
	}
	if err := in.close(); err != nil {
		t.Fatal(err)
	}
	// Nowhere to write: shipping goes on.
	m := newMemory()
	ship(t, m, Options{Intents: "/proc/laggard-intents"}, func(ctx context.Context, s *Shipper) {
		put(t, ctx, s, NewStream("a"), records(1, 0, 10), 1)
		flush(t, ctx, s)
	})
	m.once(t, 1, 10)
}

func FuzzIntents(f *testing.F) {
	f.Add([]byte("0000000002 00000000\n[]"))
	f.Fuzz(func(t *testing.T, b []byte) { _ = parseIntents(b) })
}
