package shiptest_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/clickhouse"
	"github.com/laggard-dev/laggard/writer/ship"
	"github.com/laggard-dev/laggard/writer/ship/shiptest"
)

// scale returns a number from the environment, for the long forms of tests.
func scale(t testing.TB, name string, short int) int {
	t.Helper()
	n := short
	if text := os.Getenv(name); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}

	t.Logf("scale: %d (%s)", n, name)
	return n
}

// random returns a generator whose seed is printed and can be set.
func random(t testing.TB) *rand.Rand {
	t.Helper()
	seed := scale(t, "LAGGARD_TEST_SEED", int(time.Now().UnixNano()&0xffffff))
	return rand.New(rand.NewPCG(uint64(seed), 1))
}

// hooked tells when an insert begins.
type hooked struct {
	*clickhouse.Sink
	begins chan struct{}
}

func (h *hooked) Insert(ctx context.Context, b *ship.Batch) error {
	select {
	case h.begins <- struct{}{}:
	default:
	}

	return h.Sink.Insert(ctx, b)
}

// shipping runs a shipper into sink while f feeds it.
func shipping(t *testing.T, sink ship.Sink, o ship.Options, f func(ctx context.Context, s *ship.Shipper)) *ship.Shipper {
	t.Helper()
	s, err := ship.New(sink, o)
	if err != nil {
		t.Fatal(err)
	}

	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	f(ctx, s)
	stop()
	if err := <-done; err != nil {
		t.Fatalf("Run: %v", err)
	}

	return s
}

// streamsOf are the streams of so many ranks.
func streamsOf(ranks int) []*ship.Stream {
	streams := make([]*ship.Stream, ranks)
	for r := range streams {
		streams[r] = ship.NewStream(strconv.Itoa(r))
	}

	return streams
}

// feed puts the steps from one up to another (and their records) of each rank, in portions.
func feed(t *testing.T, ctx context.Context, s *ship.Shipper, streams []*ship.Stream, from, to, portion int) {
	t.Helper()
	for i := from; i < to; i += portion {
		for r := range streams {
			if err := s.Put(ctx, streams[r], shiptest.Rows("j", uint32(r), i, min(portion, to-i)), i); err != nil {
				t.Fatalf("Put: %v", err)
			}
		}
	}

	flushing, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if err := s.Flush(flushing); err != nil {
		t.Fatalf("Flush: %v; %+v", err, s.Stats())
	}
}

// exactly checks by count and by sequence that each of the rows is stored once.
func exactly(t *testing.T, ask func(query string) uint64, db string, ranks, n int) {
	t.Helper()
	all := uint64(ranks * n)
	sum := uint64(ranks) * uint64(n) * uint64(n-1) / 2
	for query, want := range map[string]uint64{
		"SELECT count() FROM %s.records":                                         all,
		"SELECT uniqExact(segment, offset) FROM %s.records":                      all,
		"SELECT sum(seq) FROM %s.records":                                        sum,
		"SELECT count() FROM %s.steps":                                           all,
		"SELECT uniqExact(rank, incarnation, step) FROM %s.steps":                all,
		"SELECT sum(step) FROM %s.steps":                                         sum,
		"SELECT count() FROM %s.communications":                                  uint64(ranks * 2 * ((n + row.Window - 1) / row.Window)),
		"SELECT uniqExact(rank) FROM %s.ranks":                                   uint64(ranks),
		"SELECT toUInt64(uniqExact(rank, step_from, op)) FROM %s.communications": uint64(ranks * 2 * ((n + row.Window - 1) / row.Window)),
	} {
		query = fmt.Sprintf(query, db)
		if got := ask(query); got != want {
			t.Errorf("%s = %d, want %d", query, got, want)
		}
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t testing.TB, store string) *clickhouse.Sink {
	t.Helper()
	s, err := clickhouse.Open(store, clickhouse.Options{})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}
