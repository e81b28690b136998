package e2e

import (
	"strings"
	"testing"

	"github.com/laggard-dev/laggard/schemas/clickhouse/chtest"
)

// TestAsyncInsert: with --async-insert a current server has each row once, also after a second
// pass from elsewhere without it, and the audit closes. A server that is too old is named by
// ingest, which ends, and by the agent, which keeps the rows.
func TestAsyncInsert(t *testing.T) {
	t.Parallel()
	dir, _, _ := watchedJob(t, "compute-1.5", 31)
	engine := chtest.StartEngine(t)
	store := "clickhouse://" + engine.Native + "/default"
	first := laggard(t, "ingest", dir, "--to", store, "--state", t.TempDir(), "--records", "all", "--async-insert")
	if first.code != 0 || !strings.Contains(first.out, "stored") {
		t.Fatalf("ingest: %+v", first)
	}

	count := func() string {
		t.Helper()
		text, err := engine.Query("SELECT * FROM (SELECT count() AS n, sum(step_ns) AS s FROM steps UNION ALL SELECT count() AS n, sum(seq) AS s FROM records) ORDER BY n")
		if err != nil {
			t.Fatal(err)
		}

		return text
	}
	want := count()
	for _, more := range [][]string{{"--async-insert"}, nil} {
		if r := laggard(t, append([]string{"ingest", dir, "--to", store, "--state", t.TempDir(), "--records", "all"}, more...)...); r.code != 0 {
			t.Fatalf("ingest again: %+v", r)
		}

		if got := count(); got != want {
			t.Fatalf("rows after another pass %q: %s, want %s", more, got, want)
		}
	}

	if r := laggard(t, "audit", dir, store); r.code != 0 {
		t.Fatalf("audit: %+v", r)
	}

	server := chtest.Start(t)
	old := server.Store(server.Database())
	words := []string{"--async-insert", server.Addr(), "ClickHouse 18.16.1", "leave --async-insert out, or bring the server to 26.2"}
	r := laggard(t, "ingest", dir, "--to", old, "--state", t.TempDir(), "--async-insert")
	s := newSite(t, old)
	s.dir = dir
	agent := s.agent("--async-insert")
	agent.says("(the store refuses)")
	if r.code != 1 {
		t.Errorf("ingest: %+v, want exit code 1", r)
	}

	for _, word := range words {
		if !strings.Contains(r.err, word) {
			t.Errorf("ingest: no %q in %s", word, r.err)
		}

		if !strings.Contains(agent.words.String(), word) {
			t.Errorf("agent: no %q in %s", word, agent.words)
		}
	}
}
