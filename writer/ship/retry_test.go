package ship

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laggard-dev/laggard/schemas/row"
)

// TestRefusedPausesAndGoesOn: a schema error drops nothing, is said once in half a
// minute, and shipping goes on by itself.
func TestRefusedPausesAndGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		bad := true
		m.fail = func(*Batch, int) (error, bool) {
			if bad {
				return &Error{Class: Refused, Err: errors.New("no such table"), Hint: "make it"}, false
			}

			return nil, false
		}
		var log bytes.Buffer
		s := ship(t, m, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}, func(ctx context.Context, s *Shipper) {
			put(t, ctx, s, NewStream("a"), records(1, 0, 10), 1)
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			if st := s.Stats(); st.Failing != "refused" || !strings.Contains(st.LastError, "make it") {
				t.Fatalf("Stats() = %+v", st)
			}

			m.mu.Lock()
			bad = false
			m.mu.Unlock()
			time.Sleep(lastBackoff)
			flush(t, ctx, s)
		})
		m.once(t, 1, 10)
		if st := s.Stats(); st.Tables[row.RecordsTable].Poisoned != 0 {
			t.Fatalf("Stats() = %+v", st)
		}

		if lines := strings.Count(log.String(), "refuses"); lines < 10 || lines > 22 {
			t.Fatalf("%d lines in ten minutes:\n%s", lines, log.String())
		}

		if !strings.Contains(log.String(), "recovered") || m.created < 2 {
			t.Fatalf("no recovery said, or Create not tried again (%d):\n%s", m.created, log.String())
		}
	})
}

func TestGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		m.fail = func(*Batch, int) (error, bool) {
			return &Error{Class: Transient, Err: errors.New("away")}, false
		}
		s, err := New(m, Options{GiveUp: time.Minute})
		if err != nil {
			t.Fatal(err)
		}

		done := make(chan error, 1)
		go func() { done <- s.Run(t.Context()) }()
		put(t, t.Context(), s, NewStream("a"), records(1, 0, 10), 1)
		if err := <-done; err == nil || !strings.Contains(err.Error(), "away") {
			t.Fatalf("Run() = %v", err)
		}
	})
}

// TestGiveUp_StoreAnswersButTakesNothing: a full disk fails every insert, in doubt, and
// answers every look-up. It has not recovered by that: the pass ends in its time, and the
// waits grow meanwhile.
func TestGiveUp_StoreAnswersButTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		m.fail = func(*Batch, int) (error, bool) {
			return &Error{Class: Transient, Doubt: true, Err: errors.New("full"), Hint: "make room"}, false
		}
		var log bytes.Buffer
		s, err := New(m, Options{GiveUp: 5 * time.Minute, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}

		began, done := time.Now(), make(chan error, 1)
		go func() { done <- s.Run(t.Context()) }()
		put(t, t.Context(), s, NewStream("a"), records(1, 0, 10), 1)
		if err := <-done; err == nil || !strings.Contains(err.Error(), "full; make room") {
			t.Fatalf("Run() = %v", err)
		}

		if took := time.Since(began); took < 5*time.Minute || took > 6*time.Minute || m.inserts > 60 {
			t.Errorf("gave up after %v and %d inserts, want 5 to 6 minutes and at most 60", took, m.inserts)
		}

		if strings.Contains(log.String(), "recovered") {
			t.Errorf("a store that took nothing is said to have recovered:\n%s", log.String())
		}
	})
}

// TestStoppedForTenMinutes: the store is away for ten minutes while rows keep
// coming. Memory stays within its bound, the store is asked politely, and after it
// is back what waited in the segments follows, each row once. R9.
func TestStoppedForTenMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		away := errors.New("away")
		m.fail = func(*Batch, int) (error, bool) {
			if m.ping != nil {
				return &Error{Class: Transient, Err: away}, false
			}

			return nil, false
		}
		const perSecond, seconds = 100, 700
		bound := 5 * size(records(1, 0, perSecond))
		s := ship(t, m, Options{Memory: bound}, func(ctx context.Context, s *Shipper) {
			st := NewStream("a")
			var read atomic.Int64 // seconds of rows that were put
			go func() {
				began := time.Now()
				for i := range seconds {
					time.Sleep(time.Duration(i)*time.Second - time.Since(began)) // written by then
					if s.Put(ctx, st, records(1, perSecond*i, perSecond*(i+1)), i) != nil {
						return
					}

					read.Add(1)
				}
			}()
			wait := func(d time.Duration) { time.Sleep(d); synctest.Wait() }
			set := func(err error) {
				m.mu.Lock()
				defer m.mu.Unlock()
				m.ping = err
			}
			// looks at the sink's counts
			counts := func() (stored, inserts, pings int) {
				m.mu.Lock()
				defer m.mu.Unlock()
				return len(m.rows), m.inserts, m.pings
			}
			wait(30 * time.Second)
			set(away)
			_, before, _ := counts()
			for range 600 {
				wait(time.Second)
				stored, _, _ := counts()
				if taken := read.Load() - int64(stored/perSecond); taken > 6 {
					t.Fatalf("%d seconds of rows in memory, the bound is 5", taken)
				}
			}

			if st := s.Stats(); st.Failing != "transient" || time.Since(st.FailingAt) < 590*time.Second {
				t.Fatalf("no alarm: %+v", st)
			}

			if _, inserts, pings := counts(); inserts-before > openAfter || pings < 10 || pings > 200 {
				t.Fatalf("%d inserts, %d pings in ten minutes", inserts-before, pings)
			}

			set(nil)
			back := time.Now()
			for read.Load() < 630 {
				wait(100 * time.Millisecond)
			}

			t.Logf("caught up with ten minutes %s after the store was back", time.Since(back))
			if waited := time.Since(back); waited > lastBackoff+5*time.Second {
				t.Fatalf("caught up only after %s", waited)
			}

			wait(70 * time.Second)
			flush(t, ctx, s)
		})
		m.once(t, 1, perSecond*seconds)
		if s.Stats().Failing != "" {
			t.Fatalf("Stats() = %+v", s.Stats())
		}
	})
}
