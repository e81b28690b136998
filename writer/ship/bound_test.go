package ship

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestFlushIntervalStoresAFewRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		ship(t, m, Options{Flush: 5 * time.Second, Jitter: func() float64 { return 1 }}, func(ctx context.Context, s *Shipper) {
			st := NewStream("a")
			put(t, ctx, s, st, records(1, 0, 3), 1)
			time.Sleep(4900 * time.Millisecond)
			if st.Acked() != nil {
				t.Fatal("stored before the flush interval")
			}

			time.Sleep(200 * time.Millisecond)
			synctest.Wait()
			if st.Acked() != 1 {
				t.Fatal("not stored after the flush interval")
			}
		})
	})
}

// TestMemoryIsBounded: with the store standing still, Put takes no more than the
// bound, and goes on when it moves again.
func TestMemoryIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		m.gate = make(chan struct{})
		rows := records(1, 0, 100)
		one := room(rows) + int64(rows.Raws.Bytes)
		ship(t, m, Options{Memory: 5 * one, BatchRows: 100}, func(ctx context.Context, s *Shipper) {
			st := NewStream("a")
			var taken int
			done := make(chan struct{})
			go func() {
				defer close(done)
				for i := range 20 {
					if s.Put(ctx, st, records(1, 100*i, 100*i+100), i) != nil {
						return
					}

					taken++
				}
			}()
			synctest.Wait()
			if taken != 5 {
				t.Errorf("%d puts taken, want 5", taken)
			}

			close(m.gate)
			<-done
			flush(t, ctx, s)
		})
		m.once(t, 1, 2000)
	})
}

func TestPutGivesUpWithItsContext(t *testing.T) {
	s, err := New(newMemory(), Options{Memory: 1000})
	if err != nil {
		t.Fatal(err)
	}

	st := NewStream("a")
	if err := s.Put(t.Context(), st, records(1, 0, 100), 1); err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Put(ctx, st, records(1, 100, 200), 2); !errors.Is(err, context.Canceled) {
		t.Fatalf("Put() = %v", err)
	}

	if st.Pending() != 1 {
		t.Fatalf("%d puts pending", st.Pending())
	}
}
