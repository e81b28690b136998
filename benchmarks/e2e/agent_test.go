package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/laggard-dev/laggard/schemas/clickhouse/chtest"
	"github.com/laggard-dev/laggard/writer/segment"
)

// TestAgentMillionRecords: emitted = stored for a million records through ring,
// segments and the real server, by count and by sequence number.
func TestAgentMillionRecords(t *testing.T) {
	t.Parallel()
	const ranks, steps = 4, 2500 // × 100 records
	server := chtest.Start(t)
	database := server.Database()
	s := newSite(t, server.Store(database))
	agent := s.agent("--records", "all", "--until-idle", "1s")
	for rank := range ranks {
		defer s.emitter(rank, ranks, steps).wait()
	}

	agent.wait()
	table := database + ".records"
	const emitted = ranks * steps * perStep
	if got := server.Count("SELECT count() FROM " + table); got != emitted {
		t.Errorf("stored %d records, emitted %d", got, emitted)
	}

	if got := server.Count("SELECT uniqExact(segment, offset) FROM " + table); got != emitted {
		t.Errorf("%d distinct rows, want %d", got, emitted)
	}

	// Each ring's sequence numbers are 0 … n-1, each once.
	bad := server.Count("SELECT count() FROM (SELECT rank, ring, count() AS n, uniqExact(seq) AS u, min(seq) AS a, max(seq) AS b FROM " + table +
		" GROUP BY rank, ring HAVING n != u OR a != 0 OR b != n - 1)")
	if bad != 0 {
		t.Errorf("%d rings with gaps or repetitions in their sequence", bad)
	}

	if got := server.Count("SELECT count() FROM " + database + ".steps"); got != ranks*steps {
		t.Errorf("%d steps stored, want %d", got, ranks*steps)
	}

	if got := server.Count("SELECT sum(calls) FROM " + database + ".communications"); got != ranks*steps*emitterCalls {
		t.Errorf("communications count %d calls, want %d", got, ranks*steps*emitterCalls)
	}
}

// TestAgentLeavesWithEverythingShipped: SIGTERM to trainers and agent together.
func TestAgentLeavesWithEverythingShipped(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	agent := s.agent("--records", "all", "--grace", "20s")
	s.emitter(0, 1, 300).wait()
	if err := agent.command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}

	agent.wait()
	r := laggard(t, "ingest", s.dir, "--to", s.store, "--records", "all")
	if r.code != 0 || !strings.Contains(r.out, fmt.Sprintf("records        0 stored, %d found", 300*perStep)) {
		t.Fatalf("after the agent left, ingest says: %+v", r)
	}
}

// TestAgentCap: under load no segment is above its size, the tree stays under the
// cap, other files are untouched, and what aged is counted.
func TestAgentCap(t *testing.T) {
	t.Parallel()
	const limit, size = 12_000_000, 1 << 20
	s := newSite(t, "")
	notes := filepath.Join(s.dir, "j1", "0", "notes.txt")
	if err := os.MkdirAll(filepath.Dir(notes), 0o755); err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(notes, []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}

	agent := s.agent("--cap", "12MB", "--segment-size", "1MiB")
	const ranks, steps = 2, 1500
	var emitters []*running
	for rank := range ranks {
		emitters = append(emitters, s.emitter(rank, ranks, steps))
	}

	seen := map[string]int64{} // segment → its size when it was last seen
	look := func() (total int64) {
		for rank := range ranks {
			infos, err := segment.List(filepath.Join(s.dir, "j1", strconv.Itoa(rank)))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}

			for _, i := range infos {
				if i.Size > size {
					t.Errorf("segment %s has %d bytes, limit %d", i.Name, i.Size, size)
				}

				seen[fmt.Sprint(rank, "/", i.Name)] = i.Size
				total += i.Size
			}
		}

		return total
	}
	for _, e := range emitters {
		for running := true; running; {
			select {
			case err := <-e.done:
				if err != nil {
					t.Fatalf("emitter: %v\n%s", err, e.words)
				}

				running = false
			case <-time.After(20 * time.Millisecond):
			}

			if total := look(); total > limit {
				t.Errorf("the tree has %d bytes, cap %d", total, limit)
			}
		}
	}

	m := agent.until("aged segments and everything drained", func(m map[string]float64) bool {
		return m["laggard_recorders"] == 0 && m[`laggard_segments_aged_total{shipped="true"}`]+m[`laggard_segments_aged_total{shipped="false"}`] > 0
	})
	if m["laggard_tree_bytes"] > limit {
		t.Errorf("laggard_tree_bytes %v, cap %d", m["laggard_tree_bytes"], limit)
	}

	if b, err := os.ReadFile(notes); err != nil || string(b) != "mine" {
		t.Errorf("a file that isn't ours: %q, %v", b, err)
	}

	if err := agent.command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}

	agent.wait()
}

// TestAgentTaskdFormat: the files hold TaskD's lines and nothing else, and the store
// gets every step from them.
func TestAgentTaskdFormat(t *testing.T) {
	t.Parallel()
	const steps = 50
	s := newSite(t, "")
	agent := s.agent("--format", "taskd", "--records", "all", "--until-idle", "1s")
	s.emitter(0, 1, steps).wait()
	agent.wait()
	dir := filepath.Join(s.dir, "j1", "0")
	infos, err := segment.List(dir)
	if err != nil || len(infos) == 0 {
		t.Fatalf("segments %v, %v", infos, err)
	}

	for _, i := range infos {
		b, err := os.ReadFile(filepath.Join(dir, i.Name))
		if err != nil {
			t.Fatal(err)
		}

		for line := range bytes.Lines(b) {
			if !bytes.HasPrefix(line, []byte(`{"Kind":1,"Flag":`)) {
				t.Fatalf("line that isn't TaskD's: %s", line)
			}
		}
	}

	r := laggard(t, "ingest", s.dir, "--to", s.store, "--records", "all")
	var stored, found int
	m := regexp.MustCompile(`records +(\d+) stored, (\d+) found`).FindStringSubmatch(r.out)
	if r.code != 0 || m == nil {
		t.Fatalf("ingest after the agent: %+v", r)
	}

	stored, _ = strconv.Atoi(m[1])
	found, _ = strconv.Atoi(m[2])
	if stored+found != steps*perStep || found < (steps-2)*perStep {
		t.Errorf("%d records found and %d added after the agent left, want %d in all, most of them found", found, stored, steps*perStep)
	}
}
