package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/laggard-dev/laggard/schemas/clickhouse/chtest"
)

// untilReady asks /readyz until its answer is of that status and says each of the words.
func (r *running) untilReady(status int, words ...string) {
	r.t.Helper()
	deadline := time.After(patience)
	for {
		got, text := r.get("/readyz")
		ok := got == status
		for _, w := range words {
			ok = ok && strings.Contains(text, w)
		}

		if ok {
			r.t.Logf("%d\n%s", got, text)
			return
		}

		select {
		case <-time.After(50 * time.Millisecond):
		case <-deadline:
			r.t.Fatalf("/readyz says %d\n%s\nwant %d and %q\n%s", got, text, status, words, r.words)
		}
	}
}

// TestReadyTellsTheStore: without a record to ship, /readyz knows that the store refuses
// this password, or takes no rows, and says so beside rings and disk; it is 200 when
// that has been put right. /healthz is 200 all the while.
func TestReadyTellsTheStore(t *testing.T) {
	t.Parallel()
	t.Run("password", func(t *testing.T) {
		server := chtest.StartWith(t, chtest.Options{Password: "right"})
		database := server.Database()
		file := filepath.Join(t.TempDir(), "password")
		if err := os.WriteFile(file, []byte("wrong\n"), 0o600); err != nil {
			t.Fatal(err)
		}

		s := newSite(t, server.Store(database)+"?password_file="+file)
		agent := s.agent()
		agent.untilReady(http.StatusServiceUnavailable, "rings: ok\n", "disk: ok\n", "store: refused since ", "password_file")
		for path, want := range map[string]int{"/healthz": 200, "/readyz/rings": 200, "/readyz/disk": 200, "/readyz/store": 503} {
			if status, text := agent.get(path); status != want {
				t.Errorf("%s: %d %s, want %d", path, status, text, want)
			}
		}

		if err := os.WriteFile(file, []byte("right\n"), 0o600); err != nil {
			t.Fatal(err)
		}

		agent.untilReady(http.StatusOK, "rings: ok\n", "disk: ok\n", "store: ok\n")
		if n := server.Count("SELECT count() FROM system.tables WHERE database = '" + database + "'"); n == 0 {
			t.Error("ready without tables")
		}
	})
	t.Run("readonly", func(t *testing.T) {
		server := chtest.StartWith(t, chtest.Options{Profile: "<readonly>1</readonly>"})
		agent := newSite(t, server.Store("default")).agent()
		agent.untilReady(http.StatusServiceUnavailable, "rings: ok\n", "disk: ok\n", "store: refused since ", "give the user INSERT")
	})
	t.Run("away", func(t *testing.T) {
		server := chtest.Start(t)
		database := server.Database()
		server.Kill()
		agent := newSite(t, server.Store(database)).agent()
		agent.untilReady(http.StatusServiceUnavailable, "store: transient since ", "start the server")
		server.Up()
		agent.untilReady(http.StatusOK)
	})
	t.Run("parquet", func(t *testing.T) {
		base := filepath.Join(t.TempDir(), "mount")
		if err := os.WriteFile(base, nil, 0o644); err != nil { // nothing can be made below it
			t.Fatal(err)
		}

		agent := newSite(t, "parquet:"+filepath.Join(base, "store")).agent()
		agent.untilReady(http.StatusServiceUnavailable, "store: refused since ", "must be a directory")
		if err := os.Remove(base); err != nil {
			t.Fatal(err)
		}

		agent.untilReady(http.StatusOK)
	})
}

// TestReadyTellsTheDisk: a profiling directory on a file system that is full, or one for
// the Parquet store, makes the agent not ready; room makes it ready again.
func TestReadyTellsTheDisk(t *testing.T) {
	t.Parallel()
	full := func(t *testing.T) (folder string, room func()) {
		t.Helper()
		dir := t.TempDir()
		if err := syscall.Mount("none", dir, "tmpfs", 0, "size=1m"); err != nil {
			t.Fatalf("mount a tmpfs: %v; run the tests as root", err)
		}

		t.Cleanup(func() {
			if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
				t.Errorf("unmount %s: %v", dir, err)
			}
		})
		if err := os.MkdirAll(filepath.Join(dir, "d", ".laggard"), 0o755); err != nil {
			t.Fatal(err)
		}

		filler := filepath.Join(dir, "filler")
		err := os.WriteFile(filler, make([]byte, 2<<20), 0o644)
		if err == nil {
			t.Fatal("the file system takes more than it has")
		}

		return filepath.Join(dir, "d"), func() {
			if err := os.Remove(filler); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Run("profiling", func(t *testing.T) {
		s := newSite(t, "")
		dir, room := full(t)
		s.dir = dir
		agent := s.agent()
		agent.untilReady(http.StatusServiceUnavailable, "rings: ok\n", "disk: write into "+dir, "no space left on device", "make room", "store: ok\n")
		if status, _ := agent.get("/healthz"); status != http.StatusOK {
			t.Errorf("/healthz: %d", status)
		}

		room()
		agent.untilReady(http.StatusOK, "disk: ok\n")
	})
	t.Run("store", func(t *testing.T) {
		dir, room := full(t)
		agent := newSite(t, "parquet:"+dir).agent()
		agent.untilReady(http.StatusServiceUnavailable, "rings: ok\n", "disk: ok\n", "store: transient since ", "no space left on device", "make room for the Parquet store")
		room()
		agent.untilReady(http.StatusOK, "store: ok\n")
	})
}
