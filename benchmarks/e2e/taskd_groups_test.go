package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/laggard-dev/laggard/analyzer/source"
	"github.com/laggard-dev/laggard/schemas/clickhouse/chtest"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/schemas/topology"
	"github.com/laggard-dev/laggard/schemas/verdict"
	"github.com/laggard-dev/laggard/writer/rollup"
)

// answer is what a source says of a job, in one order.
type answer struct{ row.Rows }

// Add keeps rows, identities without their version and their end.
func (a *answer) Add(rows *row.Rows) {
	from := len(a.Ranks)
	a.Rows.Add(rows)
	for i := from; i < len(a.Ranks); i++ {
		k := &a.Ranks[i]
		k.Groups, k.GroupRanks, k.Version, k.EndedNs = slices.Clone(k.Groups), slices.Clone(k.GroupRanks), 0, 0
	}
}

// answerOf reads all of the only job, on a machine of that name.
func answerOf(t *testing.T, from, node string) *answer {
	t.Helper()
	o := source.Options{Node: node}
	s, err := source.Open(t.Context(), from, o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	a := &answer{}
	if _, err := s.Load(t.Context(), "", a.Add, o); err != nil {
		t.Fatal(err)
	}

	return a
}

// inOrder ignores the order of rows, and how a window's sums are cut into rows.
var inOrder = cmp.Options{
	cmpopts.SortSlices(func(a, b row.Rank) bool { return a.Rank < b.Rank }),
	cmpopts.SortSlices(func(a, b row.Step) bool { return a.Rank < b.Rank || a.Rank == b.Rank && a.Step < b.Step }),
	cmpopts.SortSlices(func(a, b row.Communication) bool {
		return slices.Compare([]string{strconv.Itoa(int(a.Rank)), strconv.Itoa(int(a.StepFrom)), a.Group, a.Op}, []string{strconv.Itoa(int(b.Rank)), strconv.Itoa(int(b.StepFrom)), b.Group, b.Op}) < 0
	}),
}

// lateJob is a job of TaskD's that grows before the test's eyes.
type lateJob struct {
	t      *testing.T
	dir    string
	groups map[string][]byte   // parallel_group.json, by rank directory
	lines  map[string][][]byte // of each segment
	at     map[string]int
}

// newLateJob makes a job of which nothing is written yet in dir, but for the nodes.
func newLateJob(t *testing.T, dir string) *lateJob {
	t.Helper()
	whole := t.TempDir()
	if r := laggard(t, "simulate", "--scenario", "compute-1.5", "--seed", "3", "--ranks", "8", "--steps", "160", "--format", "taskd", whole); r.code != 0 {
		t.Fatalf("simulate: %+v", r)
	}

	j := &lateJob{t, dir, map[string][]byte{}, map[string][][]byte{}, map[string]int{}}
	paths, err := filepath.Glob(filepath.Join(whole, "*", "*", "*"))
	if err != nil || len(paths) != 16 {
		t.Fatalf("%v, %v", paths, err)
	}

	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}

		to := filepath.Join(dir, strings.TrimPrefix(path, whole))
		if filepath.Base(path) == topology.ParallelGroupFile {
			j.groups[to] = b
			continue
		}

		j.lines[to] = bytes.SplitAfter(b, []byte("\n"))
	}

	nodes, err := topology.Load(filepath.Join(whole, topology.FileName))
	if err != nil {
		t.Fatal(err)
	}

	b, err := json.Marshal(topology.File{WorldSize: nodes.WorldSize, Nodes: nodes.Nodes})
	if err != nil {
		t.Fatal(err)
	}

	j.put(filepath.Join(dir, topology.FileName), b)
	return j
}

func (j *lateJob) put(path string, b []byte) {
	j.t.Helper()
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, b, 0o644)
	}

	if err != nil {
		j.t.Fatal(err)
	}
}

// write appends the lines of each rank before those of a step itself. It returns how many
// there are now.
func (j *lateJob) write(before int) (all float64) {
	j.t.Helper()
	for path, lines := range j.lines {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			j.t.Fatal(err)
		}

		f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			j.t.Fatal(err)
		}

		word := `"step ` + strconv.Itoa(before) + `"`
		for j.at[path] < len(lines) && !strings.Contains(string(lines[j.at[path]]), word) {
			if _, err := f.Write(lines[j.at[path]]); err != nil {
				j.t.Fatal(err)
			}

			j.at[path]++
		}

		all += float64(bytes.Count(bytes.Join(lines[:j.at[path]], nil), []byte("\n")))
		if err := f.Close(); err != nil {
			j.t.Fatal(err)
		}
	}

	return all
}

// read waits until the agent has read so many lines.
func (r *running) read(lines float64) {
	r.t.Helper()
	r.until("all lines read", func(m map[string]float64) bool { return m["laggard_lines_read_total"] == lines })
}

// dump writes each rank's parallel_group.json, as dump_group_info does.
func (j *lateJob) dump() {
	for path, b := range j.groups {
		j.put(path, b)
	}
}

// TestTaskdGroupsLate: TaskD writes parallel_group.json some steps into a job. The agent
// that ships the job learns it, and its store, a later ingest's, and the files give one
// answer, row by row.
func TestTaskdGroupsLate(t *testing.T) {
	t.Parallel()
	server := chtest.Start(t)
	for name, store := range map[string]string{"parquet": "", "clickhouse": server.Store(server.Database())} {
		for _, how := range []string{"at step 5", "while the agent is dead", "with all other lines"} {
			t.Run(name+" "+how, func(t *testing.T) {
				if store != "" {
					store = server.Store(server.Database())
				}

				s := newSite(t, store)
				j := newLateJob(t, s.dir)
				agent := s.agent()
				known := 5
				if how == "with all other lines" {
					known = 0 // a flush brings 160 steps at once, and the file stands beside it
				}

				if known > 0 {
					agent.read(j.write(known))
				}

				if how == "while the agent is dead" {
					agent.until("the ranks stored", func(m map[string]float64) bool { return m[`laggard_rows_stored_total{table="ranks"}`] >= 8 })
					if err := agent.command.Process.Signal(syscall.SIGKILL); err != nil {
						t.Fatal(err)
					}

					<-agent.done
					audited(t, 0, s.dir, s.store) // what is held for the groups is on its way, not missing
					j.dump()
					agent = s.agent()
				}

				j.dump()
				j.write(1 << 30)
				agent.until("all steps but the last stored", func(m map[string]float64) bool {
					return m[`laggard_rows_stored_total{table="steps"}`] == 8*159
				})
				if err := agent.command.Process.Signal(syscall.SIGTERM); err != nil {
					t.Fatal(err)
				}

				agent.wait()
				j.same(s.store)
			})
		}
	}
}

// same holds the store that an agent filled, completed by a later ingest, to one that an
// ingest alone filled, and to the files.
func (j *lateJob) same(store string) {
	t := j.t
	t.Helper()
	if got := answerOf(t, store, ""); len(got.Steps) < 8*158 || len(got.Ranks) != 8 {
		t.Fatalf("the agent stored %d steps of %d ranks", len(got.Steps), len(got.Ranks))
	}

	alone := "parquet:" + filepath.Join(t.TempDir(), "alone")
	for _, to := range []string{store, alone} {
		if r := laggard(t, "ingest", j.dir, "--to", to); r.code != 0 {
			t.Fatalf("ingest: %+v", r)
		}

		audited(t, 0, j.dir, to)
	}

	want := answerOf(t, j.dir, "")
	for _, s := range want.Steps {
		if s.CommOtherNs > 0 && s.CommTPNs+s.CommPPNs+s.CommDPNs < 0 {
			t.Fatalf("step %d of rank %d, read from the files: no dimension", s.Step, s.Rank)
		}
	}

	for from, name := range map[string]string{store: "agent and ingest", alone: "ingest alone"} {
		if d := cmp.Diff(want, answerOf(t, from, ""), inOrder); d != "" {
			t.Errorf("%s (-files +store):\n%.4000s", name, d)
		}

		if d := cmp.Diff(decided(t, verdict.ExitDegraded, j.dir), decided(t, verdict.ExitDegraded, from), cmpopts.IgnoreFields(verdict.Verdict{}, "Source")); d != "" {
			t.Errorf("%s: verdict (-files +store):\n%s", name, d)
		}
	}
}

// TestTaskdGroupsTooLate: a file that comes after rollup.GroupPatience steps counts from
// there on, whoever learns it, the agent or a later ingest. The ranks' rows and the
// verdict are those of the files; the steps that were stored before keep their
// communication without a dimension.
func TestTaskdGroupsTooLate(t *testing.T) {
	t.Parallel()
	const known = 3 * rollup.GroupPatience
	for _, learns := range []string{"agent", "ingest"} {
		t.Run(learns, func(t *testing.T) {
			s := newSite(t, "")
			j := newLateJob(t, s.dir)
			agent := s.agent()
			agent.read(j.write(known))
			ungrouped := 0.0
			if learns == "agent" {
				j.dump()
				agent.read(j.write(1 << 30))
				ungrouped = agent.metrics()[`laggard_records_altered_total{reason="`+rollup.NoGroups+`"}`]
			}

			if err := agent.command.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}

			agent.wait()
			if learns == "ingest" {
				for _, r := range answerOf(t, s.store, "").Ranks {
					if len(r.Groups) != 0 {
						t.Fatalf("the agent knows %v", r.Groups)
					}
				}

				j.dump()
				j.write(1 << 30)
			}

			if r := laggard(t, "ingest", j.dir, "--to", s.store); r.code != 0 {
				t.Fatalf("ingest: %+v", r)
			}

			want, got := answerOf(t, j.dir, ""), answerOf(t, s.store, "")
			if d := cmp.Diff(want.Ranks, got.Ranks, inOrder); d != "" {
				t.Errorf("ranks (-files +store):\n%s", d)
			}

			if learns == "agent" {
				if n := len(differing(want.Steps, got.Steps)); float64(n) != ungrouped || n == 0 {
					t.Errorf("%d steps differ from the files', %v are counted", n, ungrouped)
				}
			}

			early := func(s row.Step) bool { return s.Step < known }
			if d := cmp.Diff(slices.DeleteFunc(want.Steps, early), slices.DeleteFunc(got.Steps, early), inOrder); d != "" {
				t.Errorf("steps from %d on (-files +store):\n%.4000s", known, d)
			}

			if d := cmp.Diff(decided(t, verdict.ExitDegraded, j.dir), decided(t, verdict.ExitDegraded, s.store), cmpopts.IgnoreFields(verdict.Verdict{}, "Source")); d != "" {
				t.Errorf("verdict (-files +store):\n%s", d)
			}
		})
	}
}

// differing returns the steps that are not the same in two answers.
func differing(a, b []row.Step) (keys []string) {
	seen := map[row.Step]bool{}
	for _, s := range a {
		seen[s] = true
	}

	for _, s := range b {
		if !seen[s] {
			keys = append(keys, strconv.Itoa(int(s.Rank))+"/"+strconv.Itoa(int(s.Step)))
		}
	}

	return keys
}

// TestTermBeforeTheGroups: an agent that is asked to leave while steps wait for their groups
// says so and leaves them; the next one, or a later ingest, stores them with their groups.
func TestTermBeforeTheGroups(t *testing.T) {
	t.Parallel()
	for _, next := range []string{"agent", "ingest"} {
		t.Run(next, func(t *testing.T) {
			s := newSite(t, "")
			j := newLateJob(t, s.dir)
			leave := func(agent *running) {
				t.Helper()
				if err := agent.command.Process.Signal(syscall.SIGTERM); err != nil {
					t.Fatal(err)
				}

				agent.wait()
			}
			agent := s.agent()
			agent.read(j.write(rollup.GroupPatience / 2))
			leave(agent)
			if !strings.Contains(agent.words.String(), "the first steps of ranks that have no parallel_group.json yet\" ranks=8") {
				t.Errorf("it did not say what it leaves:\n%s", agent.words)
			}

			if steps, _ := stepsAndCalls(t, s.store); steps != 0 {
				t.Errorf("%d steps stored without their groups", steps)
			}

			audited(t, 0, s.dir, s.store)
			j.dump()
			j.write(1 << 30)
			if next == "agent" {
				agent = s.agent()
				agent.until("all steps but the last stored", func(m map[string]float64) bool {
					return m[`laggard_rows_stored_total{table="steps"}`] >= 8*158
				})
				leave(agent)
			} else if r := laggard(t, "ingest", j.dir, "--to", s.store); r.code != 0 {
				t.Fatalf("ingest: %+v", r)
			}

			j.same(s.store)
		})
	}
}

// TestWatch_GroupsLate: watch follows TaskD's files while the groups come late, and says
// in the end what analyze says.
func TestWatch_GroupsLate(t *testing.T) {
	t.Parallel()
	j := newLateJob(t, filepath.Join(t.TempDir(), "profiling"))
	j.write(5)
	w, live := watched(t, j.dir, t.TempDir(), "")
	if err := w.Look(t.Context()); err != nil {
		t.Fatal(err)
	}

	j.dump()
	j.write(60)
	if err := w.Look(t.Context()); err != nil {
		t.Fatal(err)
	}

	j.write(1 << 30)
	got := last(t, w, live)
	v := analyzed(t, anyVerdict, j.dir)
	v.Source = ""
	if d := cmp.Diff(generic(t, v), got); d != "" {
		t.Errorf("watch differs from analyze (-analyze +watch):\n%s", d)
	}
}
