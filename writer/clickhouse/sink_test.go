package clickhouse_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/laggard-dev/laggard/writer/clickhouse"
	"github.com/laggard-dev/laggard/writer/clickhouse/chtest"
	"github.com/laggard-dev/laggard/writer/ship"
	"github.com/laggard-dev/laggard/writer/ship/shiptest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t testing.TB, store string) *clickhouse.Sink {
	t.Helper()
	s, err := clickhouse.Open(t.Context(), store, clickhouse.Options{})
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

func TestConformance(t *testing.T) {
	server := chtest.Start(t)
	store := server.Store(server.Database())
	shiptest.Conform(t, func(t *testing.T) ship.Sink { return open(t, store) })
}
