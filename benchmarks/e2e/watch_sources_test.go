package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/laggard-dev/laggard/analyzer/simulate"
	"github.com/laggard-dev/laggard/analyzer/source"
	"github.com/laggard-dev/laggard/analyzer/watch"
	"github.com/laggard-dev/laggard/schemas/clickhouse/chtest"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/schemas/verdict"
	"github.com/laggard-dev/laggard/writer/clickhouse"
	"github.com/laggard-dev/laggard/writer/intake"
	"github.com/laggard-dev/laggard/writer/ship"
)

// watchedJob simulates a job as files and returns its directory and what analyze
// says of the whole.
func watchedJob(t *testing.T, scenario string, seed uint64) (dir string, cfg simulate.Config, want map[string]any) {
	t.Helper()
	cfg, err := simulate.Sized(scenario, seed, 8)
	if err != nil {
		t.Fatal(err)
	}

	dir = filepath.Join(t.TempDir(), "job")
	if _, err := simulate.Write(dir, cfg); err != nil {
		t.Fatal(err)
	}

	v := analyzed(t, anyVerdict, dir)
	v.Source = ""
	return dir, cfg, generic(t, v)
}

// generic is a value as JSON has it.
func generic(t *testing.T, v any) map[string]any {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}

	var m map[string]any
	if err := json.Unmarshal(b, &m); err != nil {
		t.Fatal(err)
	}

	return m
}

// growth copies a tree of files piece by piece, as if they were being written:
// cut anywhere, in the middle of a line too.
type growth struct {
	from, to string
	files    map[string][]byte // what is left of each
	rng      *rand.Rand
	share    int // of what each file had at first, percent a piece
	sizes    map[string]int
}

func newGrowth(t *testing.T, from string, seed uint64, share int) *growth {
	t.Helper()
	g := &growth{from: from, to: filepath.Join(t.TempDir(), "job"), files: map[string][]byte{}, sizes: map[string]int{}, rng: rand.New(rand.NewPCG(seed, 9)), share: share}
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}

		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}

		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}

		if name := filepath.Base(rel); strings.Trim(name, "0123456789") != "" { // topology.json and the like are there from the start
			to := filepath.Join(g.to, rel)
			if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
				return err
			}

			return os.WriteFile(to, b, 0o644)
		}

		g.files[rel], g.sizes[rel] = b, len(b)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}

	return g
}

// grow appends a piece to every rank's oldest unfinished file; false when all is there.
func (g *growth) grow(t *testing.T) bool {
	t.Helper()
	dirs := map[string]string{}
	for rel := range g.files {
		d := filepath.Dir(rel)
		if was, ok := dirs[d]; !ok || len(rel) < len(was) || len(rel) == len(was) && rel < was {
			dirs[d] = rel
		}
	}

	for d, rel := range dirs {
		if err := os.MkdirAll(filepath.Join(g.to, d), 0o755); err != nil {
			t.Fatal(err)
		}

		n := min(len(g.files[rel]), 1+g.sizes[rel]*g.share/100+g.rng.IntN(200))
		f, err := os.OpenFile(filepath.Join(g.to, rel), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
		if err != nil {
			t.Fatal(err)
		}

		if _, err := f.Write(g.files[rel][:n]); err != nil {
			t.Fatal(err)
		}

		if err := f.Close(); err != nil {
			t.Fatal(err)
		}

		if g.files[rel] = g.files[rel][n:]; len(g.files[rel]) == 0 {
			delete(g.files, rel)
		}
	}

	return len(g.files) > 0
}

// watched makes a watcher of a source, as the command does.
func watched(t *testing.T, spec, state, topology string) (*watch.Watcher, *source.Live) {
	t.Helper()
	live, err := source.OpenLive(spec, source.Options{Topology: topology})
	if err != nil {
		t.Fatal(err)
	}

	// Files grow here by bytes, not by time: ranks are further apart than real ones.
	w, err := watch.New(watch.Options{Source: live, StateDir: state, Lag: 20 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}

	return w, live
}

// last is the verdict on the only job after Finish; it closes the watcher.
func last(t *testing.T, w *watch.Watcher, live *source.Live) map[string]any {
	t.Helper()
	if err := w.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}

	s := w.Status()
	var v *verdict.Verdict
	for _, j := range s.Jobs {
		v = j.Verdict
		if j.Late > 0 {
			t.Logf("%d rows were late", j.Late)
		}
	}

	if len(s.Jobs) != 1 {
		t.Fatalf("%d jobs are followed, want 1", len(s.Jobs))
	}

	if err := w.Close(); err != nil {
		t.Fatal(err)
	}

	if err := live.Close(); err != nil {
		t.Fatal(err)
	}

	return generic(t, v)
}

// TestWatch_GrowingFiles looks while files grow, replaces the watcher now and
// then, and wants analyze's verdict on the whole.
// It is not parallel: a child that another test starts holds the state's lock until it
// has begun.
func TestWatch_GrowingFiles(t *testing.T) {
	for k, scenario := range []string{"compute-1.5", "dataloader", "slow-link", "restart", "transient", "missing-10"} {
		t.Run(scenario, func(t *testing.T) {
			dir, _, want := watchedJob(t, scenario, uint64(k)+1)
			g, state := newGrowth(t, dir, uint64(k), 6), t.TempDir()
			w, live := watched(t, g.to, state, "")
			for n := 0; g.grow(t); n++ {
				if err := w.Look(t.Context()); err != nil {
					t.Fatal(err)
				}

				if n%5 == 4 {
					if err := w.Close(); err != nil {
						t.Fatal(err)
					}

					w, live = watched(t, g.to, state, "")
				}
			}

			if diff := cmp.Diff(want, last(t, w, live)); diff != "" {
				t.Fatalf("watch differs from analyze (-analyze +watch):\n%s", diff)
			}
		})
	}
}

// TestWatch_GrowingStores does the same with a Parquet store and a real
// ClickHouse server, into which rows come in pieces.
func TestWatch_GrowingStores(t *testing.T) {
	server := chtest.Start(t)
	for kind, store := range map[string]string{"parquet": "parquet:" + t.TempDir(), "clickhouse": server.Store(server.Database())} {
		t.Run(kind, func(t *testing.T) {
			dir, cfg, want := watchedJob(t, "compute-1.5", 11)
			rows, _, err := simulate.Rows(cfg)
			if err != nil {
				t.Fatal(err)
			}

			sink, err := intake.OpenStore(store, clickhouse.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer sink.Close()
			if err := sink.Create(t.Context()); err != nil {
				t.Fatal(err)
			}

			state := t.TempDir()
			topology := filepath.Join(dir, "topology.json")
			w, live := watched(t, store, state, topology)
			slices.SortStableFunc(rows.Steps, func(a, b row.Step) int { return int(a.StartNs/1e9 - b.StartNs/1e9) })
			pieces := 8
			for n := range pieces {
				part := row.Rows{Steps: rows.Steps[len(rows.Steps)*n/pieces : len(rows.Steps)*(n+1)/pieces]}
				if n == 0 {
					part.Ranks = rows.Ranks
				}

				for _, b := range ship.Cut(&part) {
					if err := sink.Insert(t.Context(), b); err != nil {
						t.Fatal(err)
					}
				}

				if err := w.Look(t.Context()); err != nil {
					t.Fatal(err)
				}

				if n%3 == 2 {
					if err := errors.Join(w.Close(), live.Close()); err != nil {
						t.Fatal(err)
					}

					w, live = watched(t, store, state, topology)
				}
			}

			if diff := cmp.Diff(want, last(t, w, live)); diff != "" {
				t.Fatalf("watch differs from analyze (-analyze +watch):\n%s", diff)
			}
		})
	}
}

// TestWatch_Killed kills the real process at any moment while a fault develops,
// starts it again, and wants the verdict of analyze, and each change in the
// table of verdicts once.
func TestWatch_Killed(t *testing.T) {
	dir, _, want := watchedJob(t, "compute-1.5", 21)
	g, state, store := newGrowth(t, dir, 21, 7), t.TempDir(), t.TempDir()
	arguments := []string{"watch", g.to, "--state", state, "--every", "10ms", "--metrics", "", "--lag", "20m", "--to", "parquet:" + store}
	start := func() *exec.Cmd {
		c := exec.Command(program, arguments...)
		c.Stderr = &bytes.Buffer{}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}

		return c
	}
	kill := func(c *exec.Cmd) {
		if err := c.Process.Kill(); err != nil {
			t.Fatalf("kill: %v\n%s", err, c.Stderr)
		}

		_ = c.Wait() // it was killed
	}
	rng := rand.New(rand.NewPCG(21, 3))
	c := start()
	kills := 0
	for n := 0; g.grow(t); n++ {
		if rng.IntN(2) == 0 {
			awaitChange(t, state)
		}

		if rng.IntN(2) == 0 {
			kill(c)
			kills++
			c = start()
		}
	}

	awaitChange(t, state)
	kill(c)
	w, live := watched(t, g.to, state, "")
	if diff := cmp.Diff(want, last(t, w, live)); diff != "" {
		t.Fatalf("killed %d times: watch differs from analyze (-analyze +watch):\n%s", kills, diff)
	}

	t.Logf("killed %d times", kills)
	checkVerdictRows(t, store)
}

// awaitChange waits until a state file is there that is newer than those before.
func awaitChange(t *testing.T, state string) {
	t.Helper()
	newest := func() (at time.Time) {
		entries, err := os.ReadDir(state)
		if err != nil {
			t.Fatal(err)
		}

		for _, e := range entries {
			if info, err := e.Info(); err == nil && strings.HasSuffix(e.Name(), ".watch") && info.ModTime().After(at) {
				at = info.ModTime()
			}
		}

		return at
	}
	was := newest()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for newest().Equal(was) {
		select {
		case <-ctx.Done():
			return // nothing more to learn from what is there
		case <-tick.C:
		}
	}
}
