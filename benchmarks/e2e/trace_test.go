package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/laggard-dev/laggard/schemas/clickhouse/chtest"
	"github.com/laggard-dev/laggard/schemas/parquet"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// laggardResult is what one run of laggard printed and how it ended.
type laggardResult struct {
	out, err string
	code     int
}

// laggard runs the program as a process of its own.
func laggard(t *testing.T, args ...string) laggardResult {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c := exec.CommandContext(ctx, program, args...)
	c.Env = append(os.Environ(), "NO_COLOR=1")
	return resultOf(t, c)
}

// resultOf runs a command to its end, whatever its exit code.
func resultOf(t *testing.T, c *exec.Cmd) laggardResult {
	t.Helper()
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	if err := c.Run(); err != nil && c.ProcessState == nil {
		t.Fatalf("%v: %v", c.Args, err)
	}

	return laggardResult{out.String(), errs.String(), c.ProcessState.ExitCode()}
}

// decided runs analyze -o json and holds the exit code.
func decided(t *testing.T, code int, args ...string) *verdict.Verdict {
	t.Helper()
	return analyzed(t, []int{code}, args...)
}

// anyVerdict are the exit codes of an analyze that has a verdict.
var anyVerdict = []int{verdict.ExitHealthy, verdict.ExitDegraded, verdict.ExitUndecided}

// analyzed runs analyze -o json, which must end with one of the exit codes.
func analyzed(t *testing.T, codes []int, args ...string) *verdict.Verdict {
	t.Helper()
	r := laggard(t, append([]string{"analyze", "-o", "json"}, args...)...)
	if !slices.Contains(codes, r.code) {
		t.Fatalf("analyze %v: exit code %d, want one of %v\n%s%s", args, r.code, codes, r.out, r.err)
	}

	var v verdict.Verdict
	if err := json.Unmarshal([]byte(r.out), &v); err != nil {
		t.Fatalf("analyze %v: %v in\n%s", args, err, r.out)
	}

	return &v
}

// isAR1 holds a verdict on the trace AR-1 to its truth.
func isAR1(t *testing.T, v *verdict.Verdict) {
	t.Helper()
	if len(v.Nodes) != 1 || len(v.Links) != 0 {
		t.Fatalf("nodes %+v, links %+v, want rank 0's node alone", v.Nodes, v.Links)
	}

	n := v.Nodes[0]
	if n.Node != "node-0" || n.State != verdict.Degraded || n.Cause != verdict.Compute || !cmp.Equal(n.Ranks, []int{0}) {
		t.Errorf("named %s %s %s %v, want node-0 degraded compute [0]", n.Node, n.State, n.Cause, n.Ranks)
	}

	if n.Slowdown < 2.1 || n.Slowdown > 2.6 {
		t.Errorf("slowdown %.2f, want 2.1 to 2.6", n.Slowdown)
	}

	if n.JobImpact < 0.4 || n.JobImpact > 0.6 {
		t.Errorf("job impact %.2f, want about 0.49", n.JobImpact)
	}
}

func TestTraceAR1(t *testing.T) {
	t.Parallel()
	dir, ok := unpackTrace(t, "AR-1")
	if !ok {
		return
	}

	isAR1(t, decided(t, verdict.ExitDegraded, dir))
	isAR1(t, decided(t, verdict.ExitDegraded, filepath.Join(dir, "ar-job")))
}

func TestTraceST(t *testing.T) {
	t.Parallel()
	dir, ok := unpackTrace(t, "ST")
	if !ok {
		return
	}

	for _, source := range []string{dir, filepath.Join(dir, "st-job")} {
		v := decided(t, verdict.ExitHealthy, source)
		if len(v.Nodes)+len(v.Links) != 0 {
			t.Fatalf("%s: named %+v %+v, want nobody", source, v.Nodes, v.Links)
		}

		found := false
		for _, f := range v.Findings {
			found = found || f.Kind == verdict.StageImbalance && cmp.Equal(f.Stages, []int{3})
		}

		if !found {
			t.Errorf("%s: findings %+v, want stage-imbalance of stage 3", source, v.Findings)
		}
	}
}

// TestTraceStores sends AR-1 through both stores: the verdict is that of the files,
// and a second pass stores nothing.
func TestTraceStores(t *testing.T) {
	t.Parallel()
	dir, ok := unpackTrace(t, "AR-1")
	if !ok {
		return
	}

	want := decided(t, verdict.ExitDegraded, dir)
	server := chtest.Start(t)
	stores := map[string]string{"parquet": "parquet:" + filepath.Join(t.TempDir(), "store"), "clickhouse": server.Store(server.Database())}
	for name, store := range stores {
		t.Run(name, func(t *testing.T) {
			if r := laggard(t, "ingest", dir, "--to", store); r.code != 0 || !strings.Contains(r.out, "stored ") {
				t.Fatalf("ingest: %+v", r)
			}

			if r := laggard(t, "ingest", dir, "--to", store); r.code != 0 || !strings.Contains(r.out, "nothing to store") {
				t.Fatalf("second ingest: %+v", r)
			}

			got := decided(t, verdict.ExitDegraded, store)
			got.Source = want.Source
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("verdict from %s differs (-files +store):\n%s", name, d)
			}
		})
	}
}

// contract are the columns that every store must have, for they are its contract with other readers.
var contract = map[string]string{
	"ranks":          "job rank incarnation world_size local_rank node device pod pid boot_id started_ns ended_ns groups group_ranks writer",
	"steps":          "job rank incarnation node step repeat start_ns step_ns fp_ns fp_count comm_ns exposed_ns comm_tp_ns comm_pp_ns comm_dp_ns comm_cp_ns comm_ep_ns comm_other_ns dataloader_ns checkpoint_ns checkpoint_count self_ns host_fp_ns tokens flags",
	"communications": "step_from step_to group dim op calls total_ns min_ns max_ns bytes",
	"records":        "job rank incarnation kind step start_ns dur_ns side host_start_ns host_dur_ns ring seq thread op op_raw group peer count dtype bytes tokens path open segment offset",
}

// TestStoredColumns looks at what is really there after an ingest.
func TestStoredColumns(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	job := filepath.Join(dir, "sim")
	if r := laggard(t, "simulate", "--scenario", "healthy", "--seed", "5", "--ranks", "8", "--steps", "20", job); r.code != 0 {
		t.Fatalf("simulate: %+v", r)
	}

	server := chtest.Start(t)
	database := server.Database()
	store := filepath.Join(dir, "store")
	for _, to := range []string{"parquet:" + store, server.Store(database)} {
		if r := laggard(t, "ingest", job, "--to", to, "--records", "all"); r.code != 0 {
			t.Fatalf("ingest: %+v", r)
		}
	}

	for table, columns := range contract {
		files, err := filepath.Glob(filepath.Join(store, table, "job=*", "*.parquet"))
		if err != nil || len(files) == 0 {
			t.Fatalf("Parquet files of %s: %v, %v", table, files, err)
		}

		f, closer, err := parquet.Open(files[0])
		if err != nil {
			t.Fatal(err)
		}

		for _, column := range strings.Fields(columns) {
			if _, ok := f.Schema().Lookup(column); !ok && !listColumn(f.Schema().String(), column) {
				t.Errorf("Parquet %s has no column %s", table, column)
			}

			if server.Count("SELECT count() FROM system.columns WHERE database = '"+database+"' AND table = '"+table+"' AND name = '"+column+"'") != 1 {
				t.Errorf("ClickHouse %s has no column %s", table, column)
			}
		}

		closer.Close()
	}
}

// listColumn finds a column that is a group (a list) in a schema's text.
func listColumn(schema, column string) bool { return strings.Contains(schema, " "+column+" ") }
