package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/laggard-dev/laggard/schemas/marker"
	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/topology"
	"github.com/laggard-dev/laggard/schemas/verdict"
	"github.com/laggard-dev/laggard/writer/segment"
)

// taskdJob returns a profiling directory with one job as TaskD wrote it, with a
// slow rank: the real trace AR-1, without ../shared a simulated job.
func taskdJob(t *testing.T) (dir, job string) {
	t.Helper()
	if dir, ok := unpackTrace(t, "AR-1"); ok {
		return dir, "ar-job"
	}

	dir = t.TempDir()
	if r := laggard(t, "simulate", "--scenario", "compute-1.5", "--seed", "3", "--ranks", "16", "--steps", "160", "--format", "taskd", dir); r.code != 0 {
		t.Fatalf("simulate: %+v", r)
	}

	ranks, err := segment.Walk(dir)
	if err != nil || len(ranks) == 0 {
		t.Fatalf("simulated ranks: %v, %v", ranks, err)
	}

	return dir, ranks[0].Job
}

// files returns the rank directories of a job and the only segment of each.
func files(t *testing.T, dir, job string) map[int]string {
	t.Helper()
	ranks, err := segment.Walk(dir)
	if err != nil {
		t.Fatal(err)
	}

	out := map[int]string{}
	for _, r := range ranks {
		infos, err := segment.List(r.Path)
		if err != nil || len(infos) == 0 || r.Job != job {
			t.Fatalf("segments of %+v: %v, %v", r, infos, err)
		}

		out[r.Rank] = filepath.Join(r.Path, infos[0].Name)
	}

	return out
}

// rewrite puts what change makes of a file in its place.
func rewrite(t *testing.T, path string, change func([]byte) []byte) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, change(b), 0o644)
	}

	if err != nil {
		t.Fatal(err)
	}
}

// asOurs rewrites a file of TaskD's lines as a segment of ours with the same ranges.
func asOurs(t *testing.T, path, job string, rank int) {
	t.Helper()
	var records []record.Record
	rewrite(t, path, func(b []byte) []byte {
		var p marker.Parser
		var pairer marker.Pairer
		at := int64(0)
		for line := range bytes.Lines(b) {
			if err := p.Parse(line); err != nil {
				t.Fatalf("%s: %v", path, err)
			}

			at++
			if res := pairer.Add(&p.Marker, marker.Place{Offset: at}); res.Range != nil {
				records = append(records, res.Range.Record)
			}
		}

		for _, q := range pairer.Processes() {
			pairer.Drain(q, q.Now(), func(r *marker.Range) { records = append(records, r.Record) })
		}

		return nil
	})
	slices.SortFunc(records, func(a, b record.Record) int { return int(a.End() - b.End()) })
	groups, err := topology.ParallelGroup(filepath.Join(filepath.Dir(path), topology.ParallelGroupFile))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}

	meta := record.Meta{Format: record.Format, Job: job, Rank: rank, Incarnation: record.HashID(path), LocalRank: 0, PID: 1, Groups: groups, Writer: "test"}
	b := meta.AppendLine(nil)
	for i := range records {
		records[i].Ring, records[i].Seq = 1, uint64(i)
		b = records[i].AppendLine(b)
	}

	rewrite(t, path, func([]byte) []byte { return b })
}

// garbage are lines that are nobody's.
var garbage = []string{
	"not a line of anybody's\n", "\x00\x01\xff\xfe\n", "{\"level\":\"info\",\"msg\":\"saved\"}\n", "[1,2,3]\n",
	"{\"Kind\":1,\"Flag\":16,\"SourceKind\":0,\"Timest\n", "{\"Kind\":77,\"Flag\":3}\n", "{\"kind\":\"Step\",\"step\":1,\"start\":\n",
}

// soil mixes lines up as concurrent flushes do, puts garbage between them and
// tears the last one. It returns how many lines nobody can understand.
func soil(t *testing.T, chance *rand.Rand, path string) (spoilt int) {
	t.Helper()
	rewrite(t, path, func(b []byte) []byte {
		var lines []string
		for line := range bytes.Lines(b) {
			lines = append(lines, string(line))
		}

		last := lines[len(lines)-1]
		for from := 1; from+4 < len(lines); from += 4 { // the first may be an identity
			chance.Shuffle(4, func(i, j int) { lines[from+i], lines[from+j] = lines[from+j], lines[from+i] })
		}

		for _, g := range garbage {
			lines = slices.Insert(lines, 1+chance.IntN(len(lines)-1), g)
		}

		return []byte(strings.Join(append(lines, last[:len(last)/2]), ""))
	})
	return len(garbage)
}

// foreign puts files and folders of others beside and into the ranks' directories:
// those that FaultDiag-online makes, and what should never be opened.
func foreign(t *testing.T, dir, job string, ranks map[int]string) {
	t.Helper()
	put := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}

		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	put(filepath.Join(dir, job, "parallel_group_global.json"), "{}")
	put(filepath.Join(dir, job, "NodeLevelDetectionResult", "10.0.0.1_Result.json"), "{}")
	put(filepath.Join(dir, job, "-1", "1753000000"), "not a rank\n")
	put(filepath.Join(dir, "lost+found", "x"), "x")
	for _, path := range ranks {
		d := filepath.Dir(path)
		for _, name := range []string{"database.db", "database.db-wal", "comm.csv", "steptime.csv", "notes.txt", "1753000000.bak", "core.3121"} {
			put(filepath.Join(d, name), "{\"Kind\":1}\n")
		}

		if err := os.Symlink("/etc/passwd", filepath.Join(d, "1799999999")); err != nil {
			t.Fatal(err)
		}

		if err := syscall.Mkfifo(filepath.Join(d, "1799999998"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTaskdMixed: a directory with TaskD's lines, ours, garbage, torn lines and
// foreign files gives the verdict of the clean one, and the counts of what was not
// understood.
func TestTaskdMixed(t *testing.T) {
	t.Parallel()
	dir, job := taskdJob(t)
	clean := decided(t, verdict.ExitDegraded, dir)
	if clean.Unread != nil {
		t.Errorf("unread in the clean directory: %+v", clean.Unread)
	}

	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	chance := rand.New(rand.NewPCG(seed, 0))
	ranks := files(t, dir, job)
	want := verdict.Unread{}
	for rank, path := range ranks {
		if rank/4%2 == 1 { // an own node
			asOurs(t, path, job, rank)
		}

		if rank%3 != 2 {
			want.Lines += soil(t, chance, path)
			want.Torn++
		}

		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}

		want.Of += bytes.Count(b, []byte("\n"))
	}

	foreign(t, dir, job, ranks)
	got := decided(t, verdict.ExitDegraded, dir)
	if d := cmp.Diff(&want, got.Unread); d != "" {
		t.Errorf("unread (-want +got):\n%s", d)
	}

	if d := cmp.Diff(clean, got, cmpopts.IgnoreFields(verdict.Verdict{}, "Unread")); d != "" {
		t.Errorf("verdict (-clean +mixed):\n%s", d)
	}

	r := laggard(t, "analyze", dir)
	for _, words := range []string{
		fmt.Sprintf("%d of %d lines were not understood", want.Lines, want.Of), fmt.Sprintf("files with a line that a crash or damage cut short: %d", want.Torn),
	} {
		if !strings.Contains(r.err, words) {
			t.Errorf("analyze does not say %q: %s", words, r.err)
		}
	}

	t.Logf("%s job: %+v; named %s (%s)", job, want, got.Nodes[0].Node, got.Nodes[0].Cause)
}

// TestTaskdScattered: a job without a name, each rank in a directory of its own,
// is one job for analyze and for ingest, which say so.
func TestTaskdScattered(t *testing.T) {
	t.Parallel()
	dir, job := taskdJob(t)
	clean := decided(t, verdict.ExitDegraded, dir)
	scattered := t.TempDir()
	first := int64(1753000004)
	for rank := range files(t, dir, job) {
		to := filepath.Join(scattered, fmt.Sprint("default_task_id_", first+int64(rank%7)))
		if err := os.MkdirAll(to, 0o755); err != nil {
			t.Fatal(err)
		}

		if err := os.Rename(filepath.Join(dir, job, strconv.Itoa(rank)), filepath.Join(to, strconv.Itoa(rank))); err != nil {
			t.Fatal(err)
		}
	}

	if b, err := os.ReadFile(filepath.Join(dir, "topology.json")); err == nil {
		if err := os.WriteFile(filepath.Join(scattered, "topology.json"), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}

	name := fmt.Sprint("default_task_id_", first)
	same := cmpopts.IgnoreFields(verdict.Verdict{}, "Source", "Job")
	got := decided(t, verdict.ExitDegraded, scattered)
	if d := cmp.Diff(clean, got, same); d != "" || got.Job != name {
		t.Errorf("job %s, want %s; verdict (-clean +scattered):\n%s", got.Job, name, d)
	}

	const said = "directories default_task_id_… are one job of"
	if r := laggard(t, "analyze", scattered); !strings.Contains(r.err, said) {
		t.Errorf("analyze does not say what it did: %s", r.err)
	}

	store := "parquet:" + filepath.Join(t.TempDir(), "store")
	if r := laggard(t, "ingest", scattered, "--to", store); r.code != 0 || !strings.Contains(r.out, said) {
		t.Fatalf("ingest: %+v", r)
	}

	if r := laggard(t, "ingest", scattered, "--to", store); r.code != 0 || !strings.Contains(r.out, "nothing to store") {
		t.Fatalf("second ingest: %+v", r)
	}

	if d := cmp.Diff(clean, decided(t, verdict.ExitDegraded, store, "--job", name), same); d != "" {
		t.Errorf("verdict from the store (-clean +scattered):\n%s", d)
	}
}

// TestTaskdFaultDiag: FaultDiag-online's result from a store says what the verdict
// says: every slow rank, also above 31, under its own node's name.
func TestTaskdFaultDiag(t *testing.T) {
	t.Parallel()
	type entry struct {
		IsSlow                   int
		DegradationLevel         string
		JobID, NodeRank          string
		SlowCalculateRanks       []int
		SlowCommunicationDomains [][]int
		SlowSendRanks            []int
		SlowHostNodes            []string
		SlowIORanks              []int
		SlowCommunicationRanks   []int
	}
	for scenario, job := range map[string]struct{ seed, cause string }{
		"compute-1.5": {"11", verdict.Compute}, "dataloader": {"11", verdict.DataLoader}, "slow-link": {"4", ""}, // the slow group has ranks 20 to 39
	} {
		t.Run(scenario, func(t *testing.T) {
			dir := t.TempDir()
			if r := laggard(t, "simulate", "--scenario", scenario, "--seed", job.seed, "--ranks", "40", "--steps", "220", "--format", "taskd", dir); r.code != 0 {
				t.Fatalf("simulate: %+v", r)
			}

			store := "parquet:" + filepath.Join(dir, "store")
			if r := laggard(t, "ingest", dir, "--to", store); r.code != 0 {
				t.Fatalf("ingest: %+v", r)
			}

			v := decided(t, verdict.ExitDegraded, store)
			r := laggard(t, "analyze", store, "-o", "faultdiag")
			var got map[string]map[string]entry
			if err := json.Unmarshal([]byte(r.out), &got); err != nil || r.code != verdict.ExitDegraded {
				t.Fatalf("faultdiag: %v, %+v", err, r)
			}

			nodes := got["slownode_"+v.Job]
			slow := map[string]bool{}
			for _, n := range v.Nodes {
				slow[n.Node] = true
				e := nodes[n.Node]
				ranks := map[string][]int{verdict.Compute: e.SlowCalculateRanks, verdict.DataLoader: e.SlowIORanks, verdict.Communication: e.SlowCommunicationRanks}[n.Cause]
				if job.cause != "" && n.Cause != job.cause {
					t.Errorf("%s: cause %s, want %s", n.Node, n.Cause, job.cause)
				}

				if e.IsSlow != 1 || e.NodeRank != n.Node || e.JobID != v.Job || e.DegradationLevel == "0.00%" {
					t.Errorf("%s: %+v", n.Node, e)
				}

				for _, rank := range n.Ranks {
					if !slices.Contains(ranks, rank) {
						t.Errorf("%s: rank %d (%s) is not in %+v", n.Node, rank, n.Cause, e)
					}
				}
			}

			for _, l := range v.Links {
				for _, node := range l.Nodes {
					slow[node] = true
					if e := nodes[node]; len(e.SlowSendRanks)+len(e.SlowCommunicationDomains) == 0 {
						t.Errorf("link %+v: nothing at %s: %+v", l, node, e)
					}
				}
			}

			for name, e := range nodes {
				if (e.IsSlow == 1) != slow[name] {
					t.Errorf("%s: %+v, slow %v", name, e, slow[name])
				}
			}

			t.Logf("%d nodes, slow %v, links %d", len(nodes), slow, len(v.Links))
		})
	}
}

// TestTaskdJobsUnderOneCap: jobs beside each other in one directory share its cap:
// the oldest segments of both go, neither's newest, and what aged is in the account
// of each.
func TestTaskdJobsUnderOneCap(t *testing.T) {
	t.Parallel()
	const limit, steps = 2_500_000, 160
	s := newSite(t, "")
	agent := s.agent("--format", "taskd", "--cap", fmt.Sprint(limit), "--segment-size", "256KiB", "--records", "none")
	jobs := []string{"uid-1", "uid-2"}
	var emitters []*running
	for _, job := range jobs {
		emitters = append(emitters, s.trainer(
			emitterSteps+"="+strconv.Itoa(steps), "RANK=0", "LOCAL_RANK=0", "WORLD_SIZE=1", "MINDX_TASK_ID="+job, "NODE_NAME=node-0"))
	}

	for _, e := range emitters {
		e.wait()
	}

	m := agent.until("everything drained, and the tree under the cap", func(m map[string]float64) bool {
		return m["laggard_recorders"] == 0 && m["laggard_tree_bytes"] <= limit &&
			m[`laggard_segments_aged_total{shipped="true"}`]+m[`laggard_segments_aged_total{shipped="false"}`] > 0
	})
	if err := agent.command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}

	agent.wait()
	for _, job := range jobs {
		infos, err := segment.List(filepath.Join(s.dir, job, "0"))
		if err != nil || len(infos) == 0 {
			t.Errorf("job %s has no segment left: %v", job, err)
			continue
		}

		if r := laggard(t, "audit", s.dir, s.store, "--job", job); r.code != 0 || !strings.Contains(r.out, "equal") {
			t.Errorf("the account of job %s does not close: %+v", job, r)
		} else {
			t.Logf("%s", strings.ReplaceAll(r.out, "\n", " "))
		}
	}

	if r := laggard(t, "analyze", s.store); r.code == 0 || !strings.Contains(r.err, "uid-1, uid-2") {
		t.Errorf("analyze of two jobs without --job: %+v", r)
	}

	t.Logf("tree %v bytes of %d, aged %v", m["laggard_tree_bytes"], limit, m[`laggard_segments_aged_total{shipped="true"}`])
}
