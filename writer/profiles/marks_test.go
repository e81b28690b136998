package profiles

import (
	"compress/gzip"
	"fmt"
	"io"
	"math"
	"os"
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

// A profiler without a schedule marks no step: the optimizer's tell them, one less than there are. A
// wrapper's step that calls its optimizer's is one.
func TestStepsOfOptimizer(t *testing.T) {
	made := func(at int) string {
		return fmt.Sprintf(`{"ph":"X","cat":"user_annotation","name":"Optimizer.step#Wrapper.step","pid":9,"tid":1,"ts":%d,"dur":100,"args":{}},
{"ph":"X","cat":"user_annotation","name":"Optimizer.step#AdamW.step","pid":9,"tid":1,"ts":%d,"dur":90,"args":{}},
{"ph":"X","cat":"cpu_op","name":"aten::mm","pid":9,"tid":1,"ts":%d,"dur":50,"args":{}}`, at, at+5, at+300)
	}
	events := strings.Join([]string{made(1000), made(2000), made(3500)}, ",")
	got := open(t, folderOf(t, map[string]string{"rank0.json": `{"schemaVersion": 1, "traceEvents": [` + events + `]}`}), Options{Job: "j"})
	if len(got.Steps) != 2 || got.Steps[0].Step != 0 || got.Steps[0].StepNs != 1000e3 || got.Steps[1].StepNs != 1500e3 {
		t.Errorf("steps %+v", got.Steps)
	}

	if said := strings.Join(Sentences(got.Notes), "\n"); !strings.Contains(said, "each step of its optimizer ends one") {
		t.Errorf("it says %q", said)
	}
}

// What a real trace marks, its optimizer tells as well, give or take what lies between the two.
func TestStepsOfOptimizer_RealTrace(t *testing.T) {
	path, ok := sample(t, "kineto/hta-single/control.json.gz")
	if !ok {
		return
	}

	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}

	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}

	text, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}

	marked := open(t, path, Options{})
	got := open(t, folderOf(t, map[string]string{"rank3.json": strings.ReplaceAll(string(text), stepMark, "unmarked#")}), Options{})
	if len(got.Steps) != len(marked.Steps)-1 {
		t.Fatalf("%d steps, %d are marked", len(got.Steps), len(marked.Steps))
	}

	for i, s := range got.Steps {
		want := marked.Steps[i+1]
		if math.Abs(float64(s.StepNs-want.StepNs)) > 0.05*float64(want.StepNs) || math.Abs(float64(s.CommNs-want.CommNs)) > 0.05*float64(want.CommNs) {
			t.Errorf("step %d takes %d ns, %d in communication, by its mark %d and %d", i, s.StepNs, s.CommNs, want.StepNs, want.CommNs)
		}
	}
}
