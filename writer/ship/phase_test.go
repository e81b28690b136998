package ship

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laggard-dev/laggard/schemas/row"
)

// TestPhase: the first flush comes at a random part of Flush, the others at fixed distances
// from it, however the rows come; no row waits longer than Flush.
func TestPhase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Duration
		begun := time.Now()
		m := newMemory()
		m.fail = func(b *Batch, _ int) (error, bool) {
			if b.Table == row.RecordsTable && (len(at) == 0 || at[len(at)-1] != time.Since(begun)) { // a flush may be several batches
				at = append(at, time.Since(begun))
			}

			return nil, false
		}
		ship(t, m, Options{Flush: 30 * time.Second, Jitter: func() float64 { return 0.4 }}, func(ctx context.Context, s *Shipper) {
			st := NewStream("a")
			for i, pause := range []time.Duration{0, 20 * time.Second, 50 * time.Second, 5 * time.Second} {
				time.Sleep(pause)
				put(t, ctx, s, st, records(1, 10*i, 10*i+10), i)
			}

			time.Sleep(time.Minute)
			synctest.Wait()
		})
		m.once(t, 1, 40)
		want := []time.Duration{12 * time.Second, 42 * time.Second, 72 * time.Second, 102 * time.Second}
		for i, w := range want {
			if i >= len(at) || at[i] != w {
				t.Fatalf("flushes at %v, want %v first", at, want)
			}
		}
	})
}

// TestLedgerPhase: the account of what was stored is written with every fourth flush at
// most, and leaves nothing out: it ends with a flush.
func TestLedgerPhase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		ship(t, m, Options{Flush: 30 * time.Second}, func(ctx context.Context, s *Shipper) {
			st := NewStream("a")
			for i := range 40 {
				put(t, ctx, s, st, records(1, 10*i, 10*i+10), i)
				time.Sleep(30 * time.Second)
			}

			flush(t, ctx, s)
		})
		m.once(t, 1, 400)
		sum := uint64(0)
		for _, n := range m.accounts {
			sum += n
		}

		if len(m.accounts) > 12 || sum != 400 {
			t.Errorf("accounts of %d records written %d times in 40 flushes, want 400 and at most 12", sum, len(m.accounts))
		}
	})
}

// TestBusyBackoff: a store with too much to do is left alone for seconds from the first
// failure on, never for less than half of what the back-off allows.
func TestBusyBackoff(t *testing.T) {
	var r failing
	r.failures, r.busy = 1, true
	if d := r.backoff(0); d != busyBackoff/2 {
		t.Errorf("first wait %s, want %s", d, busyBackoff/2)
	}

	r.failures = 20
	if d := r.backoff(0); d != lastBackoff/2 {
		t.Errorf("last wait %s, want %s", d, lastBackoff/2)
	}

	r.busy = false
	if d := r.backoff(0); d != time.Millisecond {
		t.Errorf("wait of another failure %s, want %s", d, time.Millisecond)
	}

	if e := classify(&Error{Busy: true, Err: errors.New("too many parts")}); !e.Busy {
		t.Errorf("classify() = %+v", e)
	}
}
