package profiles

import (
	"fmt"
	"slices"
	"testing"
)

// Files that tell no rank are numbered as people count, and pods may be called worker-1.
func TestNames(t *testing.T) {
	names := []string{"trace_10.json", "trace_2.json", "b/1.json", "trace_02.json", "trace_1.json", "trace.json"}
	slices.SortFunc(names, compareNames)
	if want := []string{"b/1.json", "trace.json", "trace_1.json", "trace_02.json", "trace_2.json", "trace_10.json"}; !slices.Equal(names, want) {
		t.Errorf("%v, want %v", names, want)
	}

	for name, want := range map[string]string{
		"rank0.json":            "0  0",
		"rank-12.json.gz":       "12  0",
		"node0/gpu3.json":       "3  0",
		"gpu1_rank9/trace.json": "9  0",
		"dp0_pp0_tp3_dcp0_ep0_rank3.1754000000000.pt.trace.json.gz": "3  0",
		"worker0_step_12.1694128201545.pt.trace.json.gz":            "0  0",
		"job-worker-3_4711.1694128201545.pt.trace.json":             "-1 job-worker-3 4711",
		"gpu-07_4711.1694128201545123456.pt.trace.json":             "7  0",
		"h-1_77.1795379492263.pt.trace.json":                        "-1 h-1 77",
		"rank2/job-worker-3_4711.1694128201545.pt.trace.json":       "2 job-worker-3 4711",
		"1754000000.1-TP-3.trace.json.gz":                           "-1  0",
		"worker-1_ascend_pt/ASCEND_PROFILER_OUTPUT/trace_view.json": "1  0",
		"host_rank_5_epoch_3_1.1694128201545.pt.trace.json":         "5  0",
	} {
		host, pid := hostOf(name)
		if got := fmt.Sprint(rankOfName(name), " ", host, " ", pid); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// Without ranks in trace or name the twelfth file is not the third rank.
func TestRanksByOrderOfNames(t *testing.T) {
	files := map[string]string{}
	for i := range 12 {
		files[fmt.Sprintf("trace_%d.json", i)] = fmt.Sprintf(`[{"name": "ProfilerStep#%d", "ph": "X", "ts": 1000, "dur": 100, "tid": 1, "pid": "CPU functions", "args": {}}]`, 100+i)
	}

	got := open(t, folderOf(t, files), Options{})
	for _, s := range got.Steps {
		if s.Step != uint64(100+s.Rank) {
			t.Errorf("rank %d has step %d", s.Rank, s.Step)
		}
	}

	if len(got.Steps) != 12 {
		t.Errorf("%d steps", len(got.Steps))
	}
}
