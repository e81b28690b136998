package watch

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/laggard-dev/laggard/analyzer/detect"
	"github.com/laggard-dev/laggard/analyzer/feed"
	"github.com/laggard-dev/laggard/analyzer/simulate"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/schemas/topology"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// pieces is a source that gives one piece of a job's rows a look.
type pieces struct {
	job  string
	list []row.Rows
	topo *topology.File
	next int
}

func (s *pieces) Jobs(context.Context) ([]string, error)            { return []string{s.job}, nil }
func (s *pieces) Newest(context.Context, string) (time.Time, error) { return time.Time{}, nil }
func (s *pieces) Topology() *topology.File                          { return s.topo }
func (s *pieces) Damaged() []string                                 { return nil }
func (s *pieces) Cursor() []byte                                    { return strconv.AppendInt(nil, int64(s.next), 10) }
func (s *pieces) Read(_ context.Context, _ feed.Stage, take func(*row.Rows) error) (bool, error) {
	if s.next == len(s.list) {
		return false, nil
	}

	s.next++
	return false, take(&s.list[s.next-1])
}

func (s *pieces) Follow(_ context.Context, _ string, cursor []byte) (feed.Reader, error) {
	r := *s
	if cursor != nil {
		if err := json.Unmarshal(cursor, &r.next); err != nil {
			return nil, err
		}
	}

	return &r, nil
}

// simulated returns a job's rows as they are stored over time: ordered by start,
// with the disorder of ranks that ship at different moments.
func simulated(tb testing.TB, scenario string, seed uint64) (*pieces, row.Rows) {
	tb.Helper()
	cfg, err := simulate.Sized(scenario, seed, 24) // small jobs: it is the order of rows that is tested
	if err != nil {
		tb.Fatal(err)
	}

	rows, _, err := simulate.Rows(cfg)
	if err != nil {
		tb.Fatal(err)
	}

	return cut(rows, simulate.Topology(cfg), rand.New(rand.NewPCG(seed, 1))), rows
}

// cut deals rows out in pieces. A process's identity comes with its first step.
func cut(rows row.Rows, topo *topology.File, rng *rand.Rand) *pieces {
	s := &pieces{topo: topo}
	type arrival struct {
		at   int64
		kind int
		i    int
	}
	const jitter = int64(20e9)
	delay := map[uint32]int64{}
	lag := func(rank uint32) int64 {
		if _, ok := delay[rank]; !ok {
			delay[rank] = rng.Int64N(jitter)
		}

		return delay[rank]
	}
	var all []arrival
	first := map[uint64]int64{}
	for i := range rows.Steps {
		r := &rows.Steps[i]
		s.job = r.Job
		at := r.StartNs + r.StepNs + lag(r.Rank)
		key := r.Incarnation ^ uint64(r.Rank)<<40
		if f, ok := first[key]; !ok || at < f {
			first[key] = at
		}

		all = append(all, arrival{at, 1, i})
	}

	for i := range rows.Ranks {
		r := &rows.Ranks[i]
		all = append(all, arrival{first[r.Incarnation^uint64(r.Rank)<<40], 0, i})
	}

	for i := range rows.Communications {
		r := &rows.Communications[i]
		all = append(all, arrival{r.StartNs + lag(r.Rank), 2, i})
	}

	slices.SortStableFunc(all, func(a, b arrival) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.kind, b.kind))
	})
	for len(all) > 0 {
		n := min(len(all), 1+rng.IntN(len(rows.Steps)/8+50))
		var p row.Rows
		for _, a := range all[:n] {
			switch a.kind {
			case 0:
				p.Ranks = append(p.Ranks, rows.Ranks[a.i])
			case 1:
				p.Steps = append(p.Steps, rows.Steps[a.i])
			case 2:
				p.Communications = append(p.Communications, rows.Communications[a.i])
			}
		}

		s.list = append(s.list, p)
		all = all[n:]
	}

	return s
}

// analyzed is the verdict of `analyze` on all rows at once.
func analyzed(tb testing.TB, rows row.Rows, topo *topology.File) string {
	tb.Helper()
	b := &feed.History{}
	b.Add(&rows)
	f, err := b.Frame(topo)
	if err != nil {
		tb.Fatal(err)
	}

	return text(tb, detect.Analyze(f, detect.Default()))
}

func text(tb testing.TB, v *verdict.Verdict) string {
	tb.Helper()
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		tb.Fatal(err)
	}

	return string(b)
}

// watchAll looks once a piece and then finishes; restart says before which looks
// the watcher is replaced by one that knows its saved state alone.
func watchAll(tb testing.TB, s *pieces, dir string, restart func(look int) bool) (string, Status) {
	tb.Helper()
	return watchLogged(tb, s, dir, nil, restart)
}

// watchLogged is watchAll with a log.
func watchLogged(tb testing.TB, s *pieces, dir string, log *slog.Logger, restart func(look int) bool) (string, Status) {
	tb.Helper()
	o := Options{Source: s, StateDir: dir, Log: log}
	w, err := New(o)
	if err != nil {
		tb.Fatal(err)
	}

	for look := range len(s.list) + 3 { // a few more, for those that begin anew
		if restart != nil && restart(look) {
			if err := w.Close(); err != nil {
				tb.Fatal(err)
			}

			if w, err = New(o); err != nil {
				tb.Fatal(err)
			}
		}

		if err := w.Look(tb.Context()); err != nil {
			tb.Fatal(err)
		}
	}

	if err := w.Finish(tb.Context()); err != nil {
		tb.Fatal(err)
	}

	st := w.Status()
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}

	return text(tb, st.Jobs[s.job].Verdict), st
}

// TestWatch_NoJobYet says once that there is nothing to follow: a wrong path looks like a job that has
// not begun.
func TestWatch_NoJobYet(t *testing.T) {
	var log bytes.Buffer
	w, err := New(Options{Source: &pieces{job: "j"}, Jobs: []string{"another"}, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}

	for range 3 {
		if err := w.Look(t.Context()); err != nil {
			t.Fatal(err)
		}
	}

	if n := strings.Count(log.String(), "no job yet"); n != 1 || !strings.Contains(log.String(), "another") {
		t.Errorf("said %d times:\n%s", n, log.String())
	}
}

// TestWatchIsAnalyze gives every scenario's rows piece by piece, and wants the
// verdict that analyze gives on all of them at once. LAGGARD_SEEDS=all gives each twice.
func TestWatchIsAnalyze(t *testing.T) {
	for k, name := range append(simulate.Names(), simulate.Families()...) {
		seeds := uint64(1)
		if k < len(simulate.Names()) && os.Getenv("LAGGARD_SEEDS") == "all" {
			seeds = 2
		}

		for seed := range seeds {
			t.Run(fmt.Sprintf("%s/%d", name, seed), func(t *testing.T) {
				t.Parallel()
				s, rows := simulated(t, name, seed+100)
				want := analyzed(t, rows, s.topo)
				got, st := watchAll(t, s, "", nil)
				if got != want {
					t.Fatalf("watch differs from analyze (late %d):\n%s", st.Jobs[s.job].Late, difference(want, got))
				}
			})
		}
	}
}

// TestRestartChangesNothing replaces the watcher at random looks.
func TestRestartChangesNothing(t *testing.T) {
	for k, name := range simulate.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, rows := simulated(t, name, uint64(k)+200)
			rng := rand.New(rand.NewPCG(uint64(k), 2))
			got, _ := watchAll(t, s, t.TempDir(), func(int) bool { return rng.IntN(3) == 0 })
			if want := analyzed(t, rows, s.topo); got != want {
				t.Fatalf("watch with restarts differs from analyze:\n%s", difference(want, got))
			}
		})
	}
}

// difference shows the first lines that differ.
func difference(want, got string) string {
	a, b := lines(want), lines(got)
	for i := range max(len(a), len(b)) {
		x, y := "", ""
		if i < len(a) {
			x = a[i]
		}

		if i < len(b) {
			y = b[i]
		}

		if x != y {
			return fmt.Sprintf("line %d: analyze %q, watch %q", i+1, x, y)
		}
	}

	return ""
}

func lines(s string) []string {
	var out []string
	for len(s) > 0 {
		i := slices.Index([]byte(s), '\n')
		if i < 0 {
			return append(out, s)
		}

		out = append(out, s[:i])
		s = s[i+1:]
	}

	return out
}
