package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/laggard-dev/laggard/analyzer/watch"
	"github.com/laggard-dev/laggard/schemas/clickhouse/chtest"
)

// messages are the keys that watchers posted, by the watcher's name.
type messages struct {
	mu   sync.Mutex
	keys map[string][]string // guarded by mu
}

// ServeHTTP takes a message on the path of its watcher.
func (m *messages) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	who := strings.TrimPrefix(r.URL.Path, "/")
	m.keys[who] = append(m.keys[who], r.Header.Get("Laggard-Message"))
}

func (m *messages) of(who string) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]string(nil), m.keys[who]...)
}

// TestWatch_SharedMessages: a watcher says what is wrong with a job, which is its by the job's
// hash, and is killed. Another that shares the store takes the job over, and a third, that knows
// of neither, follows it too: each message has the key of the first, and the one that took over
// repeats at most one.
func TestWatch_SharedMessages(t *testing.T) {
	t.Parallel()
	const lease = watch.DefaultLease / 3 // 200 looks, so that no watcher on a busy machine loses its jobs
	dir, _, _ := watchedJob(t, "compute-1.5", 31)
	server := chtest.Start(t)
	database := server.Database()
	store := server.Store(database)
	if r := laggard(t, "ingest", dir, "--to", store, "--state", t.TempDir()); r.code != 0 {
		t.Fatalf("ingest: %s%s", r.out, r.err)
	}

	heard := &messages{keys: map[string][]string{}}
	receiver := httptest.NewServer(heard)
	defer receiver.Close()
	start := func(name string, more ...string) *running {
		return (&site{t: t}).start(append([]string{"watch", store, "--every", "100ms", "--metrics", "127.0.0.1:0", "--forget", "999999h",
			"--webhook", receiver.URL + "/" + name}, more...)...)
	}
	a := start("a", "--to", store, "--share", "a", "--lease", lease.String())
	chtest.Eventually(t, "the first has posted and stored what it says", patience, func() error {
		var stored uint64
		err := server.Row("SELECT count() FROM "+database+".verdicts WHERE job != ''", &stored)
		if err != nil || stored == 0 || len(heard.of("a")) == 0 {
			return fmt.Errorf("%d rows (%v), a said:\n%s", stored, err, a.words)
		}

		return nil
	})
	b := start("b", "--to", store, "--share", "b", "--lease", lease.String())
	chtest.Eventually(t, "the second knows of both", patience, func() error {
		if !strings.Contains(b.words.String(), `watchers="[a b]"`) {
			return fmt.Errorf("b said:\n%s", b.words)
		}

		return nil
	})
	if strings.Contains(metricsOf(t, b.words.String()), "laggard_job_impact{") {
		t.Fatal("the job is b's: choose names by which it is a's")
	}

	if err := a.command.Process.Kill(); err != nil {
		t.Fatal(err)
	}

	<-a.done
	start("c")
	chtest.Eventually(t, "the third has posted", patience, func() error {
		if len(heard.of("c")) == 0 {
			return fmt.Errorf("nothing")
		}

		return nil
	})
	chtest.Eventually(t, "the job is taken over", lease+patience, func() error {
		if text := metricsOf(t, b.words.String()); !strings.Contains(text, "laggard_watch_jobs_taken_total 1") || !strings.Contains(text, "laggard_job_impact{") {
			return fmt.Errorf("b said:\n%s", b.words)
		}

		return nil
	})
	key := heard.of("a")[0]
	if key == "" {
		t.Error("a message without a key")
	}

	for _, who := range []string{"a", "b", "c"} {
		keys := heard.of(who)
		if len(keys) > 1 {
			t.Errorf("%s posted %d times: %s", who, len(keys), keys)
		}

		for _, k := range keys {
			if k != key {
				t.Errorf("%s posted the key %s, the first was %s", who, k, key)
			}
		}
	}
}

// metricsOf asks the metrics of a watcher by the address that its log names, "" before.
func metricsOf(t *testing.T, log string) string {
	t.Helper()
	_, rest, found := strings.Cut(log, "serving metrics")
	_, rest, _ = strings.Cut(rest, "address=")
	if !found {
		return ""
	}

	client := http.Client{Timeout: 5 * time.Second}
	answer, err := client.Get("http://" + strings.Trim(strings.Fields(rest)[0], `"`) + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}

	return string(text)
}
