package profiles

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/laggard-dev/laggard/schemas/row"
)

// A real capture of two processes on two GPUs: the sums are those that the sqlite3 shell tells. It
// marks no step, and nothing is said that it doesn't tell.
func TestNsight(t *testing.T) {
	paths := []string{"testdata/nsys/mfu_2gpu_before.sqlite"}
	if path, ok := sample(t, "nsys/mfu_2gpu_before.sqlite"); ok {
		paths = append(paths, path)
	}

	for _, path := range paths {
		got := open(t, path, Options{})
		if got.Format.Name != "nsight" || got.Profiles != 1 || got.Tree.Ranks != 2 || len(got.Steps) != 2 || len(got.Unread) > 0 {
			t.Fatalf("%s: %d ranks, %d steps, not read: %v", got.Format.Name, got.Tree.Ranks, len(got.Steps), got.Unread)
		}

		if len(got.Notes) != 1 || !strings.Contains(got.Notes[0].Cause, "marks no step") {
			t.Errorf("%v", got.Notes)
		}

		calls, launched, ns := [2]int{}, [2]int{}, [2]int64{}
		for _, r := range got.Raws.AppendTo(nil) {
			if r.Kind != "Communication" {
				continue
			}

			calls[r.Rank]++
			ns[r.Rank] += r.DurNs
			if r.HostStartNs > 0 {
				launched[r.Rank]++
			}

			if r.Op != "sendrecv" || r.OpRaw != "ncclDevKernel_SendRecv" || r.Side != "device" || r.HostStartNs > r.StartNs || r.StartNs/1e9 != 1779782390 {
				t.Fatalf("%+v", r)
			}
		}

		if calls != [2]int{33, 33} || launched != [2]int{32, 32} || ns != [2]int64{17172652, 8229100} {
			t.Errorf("%v kernels of NCCL, the launch of %v is known, %v ns", calls, launched, ns)
		}

		for i, r := range got.Rows.Ranks {
			if int(r.Rank) != i || r.WorldSize != 2 || r.Node != "modal" || int(r.LocalRank) != i || r.PID != []uint32{144, 145}[i] {
				t.Errorf("%+v", r)
			}
		}

		for _, s := range got.Steps {
			if s.Flags&row.FlagHostOnly != 0 || s.CommNs <= 0 || s.FPNs != -1 {
				t.Errorf("%+v", s)
			}
		}
	}
}

// A capture without a collective has steps at least, and no communication.
func TestNsightWithoutNCCL(t *testing.T) {
	got := open(t, "testdata/nsys/h100_2gpu_1s.sqlite", Options{})
	if len(got.Steps) != 2 || got.Steps[0].CommNs != -1 || got.Steps[0].StepNs < 900e6 {
		t.Errorf("%+v", got.Steps)
	}

	if words := strings.Join(Sentences(got.Notes), "\n"); !strings.Contains(words, "numbered by their devices") {
		t.Error(words)
	}
}

// nsightOf makes an export in Nsight's tables: for each process a GPU, two kernels and NVTX ranges.
func nsightOf(t *testing.T, processes int, ranges []string, more ...string) string {
	t.Helper()
	statements := []string{
		`CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)`,
		`INSERT INTO StringIds VALUES (1, 'ncclDevKernel_AllReduce_Sum_bf16_RING_LL'), (2, 'gemm'), (3, 'enumerate(DataLoader)')`,
		`CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER)`,
		`INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1700000000000000000)`,
		`CREATE TABLE META_DATA_CAPTURE (name TEXT, value TEXT)`,
		`CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, globalPid INTEGER, shortName INTEGER, correlationId INTEGER, streamId INTEGER)`,
		`CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT, textId INTEGER, globalTid INTEGER)`,
	}
	for p := range processes {
		pid := int64(100+p) << 24
		for i := range ranges {
			at := int64(i+1) * 1e6
			statements = append(statements,
				fmt.Sprintf(`INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (%d, %d, %d, %d, 2, 0, 7), (%d, %d, %d, %d, 1, 0, 7)`, at+100, at+500, p, pid, at+400, at+800, p, pid),
				fmt.Sprintf(`INSERT INTO NVTX_EVENTS VALUES (%d, %d, 59, '%s', NULL, %d), (%d, %d, 60, NULL, 3, %d)`, at, at+900, ranges[i], pid+5, at+1, at+50, pid+5))
		}
	}

	return databaseOf(t, append(statements, more...)...)
}

// Steps are NVTX ranges that are called so; ranks and their number come from what was launched.
func TestNsightSteps(t *testing.T) {
	const arguments = `INSERT INTO META_DATA_CAPTURE VALUES ('PROCESS_0:ARGUMENT_0', '--nnodes'), ('PROCESS_0:ARGUMENT_1', '2'), ('PROCESS_0:ARGUMENT_2', '--node-rank=1')`
	for _, c := range []struct {
		name      string
		processes int
		ranges    []string
		more      []string
		want      string // rank of world: steps
	}{
		{"numbered", 1, []string{"step 12", "step 13"}, nil, "0 of 0: 12 13"},
		{"megatron", 1, []string{"iteration7", "iteration8"}, nil, "0 of 0: 7 8"},
		{"without numbers", 1, []string{"Train_Step", "Train_Step", "Train_Step"}, nil, "0 of 0: 0 1 2"},
		{"one within another", 1, []string{"iteration 3", "iteration 4"}, []string{`INSERT INTO NVTX_EVENTS VALUES (1000100, 1000200, 59, 'step 900', NULL, 1677721605)`}, "0 of 0: 3 4"},
		{"rank by environment", 1, []string{"step 1"}, []string{`INSERT INTO META_DATA_CAPTURE VALUES ('PROCESS_0:ENVIRONMENT_VARIABLE', 'RANK="5"'), ('PROCESS_0:ENVIRONMENT_VARIABLE', 'WORLD_SIZE="8"')`}, "5 of 8: 1"},
		{"ranks by arguments", 2, []string{"step 1"}, []string{arguments}, "2 of 4: 1 3 of 4: 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := open(t, nsightOf(t, c.processes, c.ranges, c.more...), Options{})
			var said []string
			for _, r := range got.Rows.Ranks {
				line := fmt.Sprintf("%d of %d:", r.Rank, r.WorldSize)
				for _, s := range got.Steps {
					if s.Rank == r.Rank {
						line += fmt.Sprint(" ", s.Step)
						if s.StepNs != 900 || s.CommNs != 400 || s.ExposedNs != 300 || s.DataLoaderNs != 49 || s.StartNs < 17e17 {
							t.Errorf("%+v", s)
						}
					}
				}

				said = append(said, line)
			}

			if words := strings.Join(said, " "); words != c.want || len(got.Unread) > 0 {
				t.Errorf("%s, want %s; not read: %v", words, c.want, got.Unread)
			}
		})
	}
}

// Files of several nodes that tell no rank are numbered one behind the other.
func TestNsightOfTwoNodes(t *testing.T) {
	dir := t.TempDir()
	for i := range 2 {
		from := nsightOf(t, 2, []string{"step 1"}, fmt.Sprintf(`INSERT INTO StringIds VALUES (9, 'node %d')`, i))
		if err := os.Rename(from, filepath.Join(dir, fmt.Sprintf("host%c.sqlite", 'a'+i))); err != nil {
			t.Fatal(err)
		}
	}

	if got := open(t, dir, Options{}); got.Tree.Ranks != 4 || len(got.Steps) != 4 || got.Steps[3].Rank != 3 {
		t.Errorf("%d ranks, %+v", got.Tree.Ranks, got.Steps)
	}
}

// A capture that was not exported yet is told how to be, unless its export lies beside.
func TestNsightNotExported(t *testing.T) {
	dir := folderOf(t, map[string]string{"run.nsys-rep": "x"})
	_, err := Open(t.Context(), dir, Options{})
	if err == nil || !strings.Contains(err.Error(), "run.nsys-rep: it is not exported yet: nsys export --type sqlite run.nsys-rep") {
		t.Errorf("%v", err)
	}

	if err := os.Rename(nsightOf(t, 1, []string{"step 1"}), filepath.Join(dir, "run.sqlite")); err != nil {
		t.Fatal(err)
	}

	if got := open(t, dir, Options{}); len(got.Unread) > 0 {
		t.Errorf("%v", got.Unread)
	}
}
