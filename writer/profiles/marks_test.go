package profiles

import (
	"fmt"
	"strings"
	"testing"
)

// gpuTrace is a trace as Kineto writes it: the host's ranges of all steps, then its launches and the
// device's kernels, then the device's annotations. The kernels run one step behind the host.
func gpuTrace(steps int, host bool) (text string, steady []int) {
	var b strings.Builder
	b.WriteString(`{"schemaVersion": 1, "deviceProperties": [{"id": 0}], "distributedInfo": {"rank": 0, "world_size": 2}, "traceEvents": [`)
	add := func(cat, name string, ts, dur, tid, corr int) {
		fmt.Fprintf(&b, `{"ph": "X", "cat": "%s", "name": "%s", "pid": 0, "tid": %d, "ts": %d, "dur": %d, "args": {"correlation": %d, "stream": %d}},`+"\n", cat, name, tid, ts, dur, corr, tid)
	}
	for i := range steps {
		at := 10000 * (i + 1)
		if host {
			add("user_annotation", fmt.Sprintf("ProfilerStep#%d", i), at, 9000, 1, 0)
		}

		add("cpu_op", "aten::mm", at+100, 50, 1, 0)
	}

	for i := range steps {
		at := 10000 * (i + 1)
		add("cuda_runtime", "cudaLaunchKernel", at+110, 10, 1, 2*i+1)
		add("cuda_runtime", "cudaLaunchKernelExC", at+210, 10, 1, 2*i+2)
		add("kernel", "gemm", at+10000, 5000, 7, 2*i+1)
		add("kernel", "ncclSymkDevKernel_AllReduce_AGxLL_R_sum_float(ncclSymkArgs)", at+15000, 2000, 20, 2*i+2)
		steady = append(steady, b.Len())
	}

	for i := range steps {
		at := 10000 * (i + 2)
		add("gpu_user_annotation", fmt.Sprintf("ProfilerStep#%d", i), at, 5000, 7, 0)
		add("gpu_user_annotation", fmt.Sprintf("ProfilerStep#%d", i), at+5000, 6000, 20, 0) // beyond the begin of the next
	}

	return strings.TrimSuffix(b.String(), ",\n") + "]}", steady
}

// A kernel is of the step in which it was launched, or where the host marks none, in which it ran.
func TestStepsOfTheDevice(t *testing.T) {
	for _, host := range []bool{true, false} {
		text, _ := gpuTrace(20, host)
		got := open(t, folderOf(t, map[string]string{"t.json": text}), Options{})
		if len(got.Steps) != 20 || len(got.Unread) > 0 {
			t.Errorf("host %v: %d steps, not read: %v", host, len(got.Steps), got.Unread)
		}

		for _, s := range got.Steps {
			if s.CommNs != 2e6 || s.ExposedNs != 2e6 {
				t.Errorf("host %v: step %d communicates for %d ns, %d of them bare", host, s.Step, s.CommNs, s.ExposedNs)
			}
		}
	}
}

// Of a trace that breaks off the steps stand at the begin and their kernels at the end: those without
// them are not taken for steps without communication.
func TestStepsOfACutTrace(t *testing.T) {
	text, steady := gpuTrace(20, true)
	for _, tt := range []struct {
		name string
		at   int
		want int
	}{
		{"behind the device's work", steady[19], 19},
		{"in the middle of it", steady[9], 9},
		{"in the middle of a step", steady[9] - 100, 9},
		{"before it", strings.Index(text, "cuda_runtime"), 0},
		{"in the host's ranges", strings.Index(text, `"ProfilerStep#7"`), 0},
	} {
		other := strings.Replace(text, `"rank": 0`, `"rank": 1`, 1)
		got := open(t, folderOf(t, map[string]string{"a.json": text[:tt.at], "b.json": other}), Options{})
		whole := 0
		for _, s := range got.Steps {
			if s.Rank == 0 {
				whole++
				if s.CommNs != 2e6 {
					t.Errorf("%s: step %d communicates for %d ns", tt.name, s.Step, s.CommNs)
				}
			}
		}

		words := strings.Join(Sentences(got.Unread), "\n")
		if whole != tt.want || !strings.Contains(words, "a.json: at byte") || !strings.Contains(words, "steps are left out") {
			t.Errorf("%s: %d steps, want %d: %s", tt.name, whole, tt.want, words)
		}
	}
}

// A host's trace that breaks off, and steps that are marked twice.
func TestStepsOfTheHost(t *testing.T) {
	var b strings.Builder
	for i := range 10 {
		at := 1000 * (i + 1)
		for _, e := range []string{fmt.Sprintf(`"ProfilerStep#%d", "dur": 900, "ts": %d, "tid": 1`, i, at), fmt.Sprintf(`"ProfilerStep#%d", "dur": 880, "ts": %d, "tid": 2`, i, at+10),
			fmt.Sprintf(`"aten::mm", "dur": 100, "ts": %d, "tid": 1`, at+100), fmt.Sprintf(`"gloo:all_reduce", "dur": 300, "ts": %d, "tid": 3`, at+500)} {
			b.WriteString(`{"ph": "X", "pid": "CPU functions", "args": {}, "name": ` + e + "},\n")
		}
	}

	for text, want := range map[string]int{"[" + strings.TrimSuffix(b.String(), ",\n") + "]": 10, "[" + b.String(): 9} {
		got := open(t, folderOf(t, map[string]string{"rank0.json": text}), Options{})
		if len(got.Steps) != want || (len(got.Unread) > 0) == (want == 10) {
			t.Errorf("%d steps, want %d: %v", len(got.Steps), want, got.Unread)
		}

		for _, s := range got.Steps {
			if s.CommNs != 300e3 {
				t.Errorf("step %d communicates for %d ns", s.Step, s.CommNs)
			}
		}
	}
}
