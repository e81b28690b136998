package shiptest_test

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"laggard/writer/clickhouse/chtest"
	"laggard/writer/ship"
	"laggard/writer/ship/shiptest"
)

// TestPassword: a wrong one is said with what to do, a corrected one is taken
// without a restart. R11.
func TestPassword(t *testing.T) {
	server := chtest.StartWith(t, chtest.Options{Password: "right"})
	db := server.Database()
	file := filepath.Join(t.TempDir(), "password")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("wrong-secret")
	var log bytes.Buffer
	sink := open(t, server.Store(db)+"?password_file="+file)
	err := sink.Ping(t.Context())
	if err == nil || !strings.Contains(err.Error(), "password_file") || strings.Contains(err.Error(), "wrong-secret") {
		t.Fatalf("Ping() = %v", err)
	}
	shipping(t, sink, ship.Options{Flush: time.Millisecond, Logger: slog.New(slog.NewTextHandler(&log, nil)), Jitter: func() float64 { return 0.1 }}, func(ctx context.Context, s *ship.Shipper) {
		st := ship.NewStream("0")
		if err := s.Put(ctx, st, shiptest.Rows("j", 0, 0, 100), 1); err != nil {
			t.Fatal(err)
		}
		for s.Stats().Failing != "refused" {
			<-time.After(5 * time.Millisecond)
		}
		write("right")
		if err := s.Flush(ctx); err != nil {
			t.Fatal(err)
		}
	})
	if text := log.String(); !strings.Contains(text, "refuses") || !strings.Contains(text, "recovered") || strings.Contains(text, "wrong-secret") {
		t.Fatalf("log:\n%s", text)
	}
	if got := server.Count("SELECT count() FROM " + db + ".steps"); got != 100 {
		t.Fatalf("%d steps", got)
	}
}

// TestSchemaBroken drops a column under the shipper: nothing is lost, and the
// column is made again by itself. R12.
func TestSchemaBroken(t *testing.T) {
	server := chtest.Start(t)
	db := server.Database()
	shipping(t, open(t, server.Store(db)), ship.Options{Flush: 5 * time.Millisecond, Jitter: func() float64 { return 0.1 }}, func(ctx context.Context, s *ship.Shipper) {
		st := ship.NewStream("0")
		for i := range 4 {
			if err := s.Put(ctx, st, shiptest.Rows("j", 0, 500*i, 500), i); err != nil {
				t.Fatal(err)
			}
			if err := s.Flush(ctx); err != nil {
				t.Fatal(err)
			}
			server.Exec("ALTER TABLE " + db + ".records DROP COLUMN tokens")
		}
	})
	exactly(t, server.Count, db, 1, 2000)
}
