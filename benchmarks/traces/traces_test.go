// Package traces measures what a verdict from a folder of PyTorch traces takes: beside
// HolisticTraceAnalysis on the same folders, and of one trace of half a gigabyte.
package traces

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// samples are the traces of eight ranks of a public job, one step each.
const samples = "../../writer/profiles/testdata/dlrm-8rank"

// python has torch.
const python = "/usr/bin/python3"

// run is what a process took: all processor time, and the memory of the largest process in it.
type run struct {
	wall, cpu time.Duration
	memory    float64 // MiB
	said      string
}

// measure runs a program, whose exit code is one of those.
func measure(b *testing.B, codes map[int]bool, name string, args ...string) run {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), 20*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, name, args...)
	var errs bytes.Buffer
	c.Stderr = &errs
	begun := time.Now()
	out, err := c.Output()
	took := time.Since(begun)
	var exit *exec.ExitError
	code := 0
	if errors.As(err, &exit) {
		code = exit.ExitCode()
	}

	if err != nil && code == 0 || !codes[code] {
		b.Fatalf("%s %v: %v\n%s%s", name, args, err, out, errs.Bytes())
	}

	used := c.ProcessState.SysUsage().(*syscall.Rusage)
	return run{took, c.ProcessState.UserTime() + c.ProcessState.SystemTime(), float64(used.Maxrss) / 1024, string(out)}
}

var (
	answered = map[int]bool{0: true, 3: true, 4: true}
	fine     = map[int]bool{0: true}
)

// laggard builds the program.
func laggard(b *testing.B) string {
	b.Helper()
	path := filepath.Join(b.TempDir(), "laggard")
	c := exec.Command("go", "build", "-o", path, "github.com/laggard-dev/laggard")
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		b.Fatalf("build laggard: %v\n%s", err, out)
	}

	return path
}

// htaPython is a Python with HolisticTraceAnalysis, which is installed where it is missing.
func htaPython(b *testing.B) string {
	b.Helper()
	c := exec.Command("../../.ci/parts", "hta")
	c.Stderr = os.Stderr
	out, err := c.Output()
	if err != nil {
		b.Fatalf("install HolisticTraceAnalysis: %v", err)
	}

	lines := strings.Fields(string(out))
	return filepath.Join(lines[len(lines)-1], "bin", "python")
}

// BenchmarkBesideHTA asks both of the same folders, in turns: from the files to who lags. LAGGARD_TRACES
// is a folder more.
func BenchmarkBesideHTA(b *testing.B) {
	program, hta := laggard(b), htaPython(b)
	type folder struct {
		name string
		path func(*testing.B) string
	}
	folders := []folder{{"dlrm-8rank", copied}, {"torch-4rank", profiled}}
	if more := os.Getenv("LAGGARD_TRACES"); more != "" {
		folders = append(folders, folder{"more", func(*testing.B) string { return more }})
	}

	for _, folder := range folders {
		b.Run(folder.name, func(b *testing.B) {
			path := folder.path(b)
			var ours, theirs []run
			for b.Loop() {
				theirs = append(theirs, measure(b, fine, hta, "ask.py", path))
				ours = append(ours, measure(b, answered, program, "analyze", path))
			}

			b.Logf("laggard: %s", ours[0].said)
			b.Logf("HolisticTraceAnalysis: %s", theirs[0].said)
			a, z := total(ours), total(theirs)
			n := time.Duration(b.N)
			b.ReportMetric((a.wall / n).Seconds(), "laggard-s")
			b.ReportMetric((z.wall / n).Seconds(), "hta-s")
			b.ReportMetric(z.wall.Seconds()/a.wall.Seconds(), "hta/laggard")
			b.ReportMetric((a.cpu / n).Seconds(), "laggard-cpu-s") // what others do on the machine moves it less
			b.ReportMetric((z.cpu / n).Seconds(), "hta-cpu-s")
			b.ReportMetric(z.cpu.Seconds()/a.cpu.Seconds(), "hta/laggard-cpu")
			b.ReportMetric(a.memory, "laggard-MiB")
			b.ReportMetric(z.memory, "hta-MiB")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// total sums times, and takes the most memory.
func total(runs []run) (all run) {
	for _, r := range runs {
		all.wall, all.cpu, all.memory = all.wall+r.wall, all.cpu+r.cpu, max(all.memory, r.memory)
	}

	return all
}

// copied are the samples in a folder of their own: HolisticTraceAnalysis writes beside what it reads.
func copied(b *testing.B) string {
	b.Helper()
	dir := b.TempDir()
	if err := os.CopyFS(dir, os.DirFS(samples)); err != nil {
		b.Fatal(err)
	}

	if err := os.Remove(filepath.Join(dir, "LICENSE")); err != nil {
		b.Fatal(err)
	}

	return dir
}

// profiled trains on four ranks under PyTorch's own profiler, one of them slowed by work, and returns
// the folder of 30 steps.
func profiled(b *testing.B) string {
	b.Helper()
	dir := b.TempDir()
	port := freePort(b)
	var ranks []*exec.Cmd
	for rank := range 4 {
		c := exec.Command(python, "../../deploy/examples/pytorch/train.py", "--steps", "42", "--slow-rank", "3", "--save-to", dir, "--save-every", "1000", "--profile", filepath.Join(dir, "traces"))
		c.Env = append(os.Environ(), "OMP_NUM_THREADS=1", "WORLD_SIZE=4", "MASTER_ADDR=127.0.0.1", "MASTER_PORT="+port,
			fmt.Sprintf("RANK=%d", rank), fmt.Sprintf("LOCAL_RANK=%d", rank))
		c.Stderr = os.Stderr
		if err := c.Start(); err != nil {
			b.Fatal(err)
		}

		ranks = append(ranks, c)
	}

	for rank, c := range ranks {
		if err := c.Wait(); err != nil {
			b.Fatalf("rank %d: %v", rank, err)
		}
	}

	return filepath.Join(dir, "traces")
}

// freePort returns a port of this host that nobody listens on.
func freePort(b *testing.B) string {
	b.Helper()
	out, err := exec.Command(python, "-c", `import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])`).Output()
	if err != nil {
		b.Fatal(err)
	}

	return strings.TrimSpace(string(out))
}

// half is the size of the large trace: LAGGARD_TRACE_MIB, else 500 MB.
func half() int64 {
	if n, err := strconv.ParseInt(os.Getenv("LAGGARD_TRACE_MIB"), 10, 64); err == nil {
		return n << 20
	}

	return 500_000_000
}

// BenchmarkLargeTrace reads one rank's trace of 500 MB, plain and compressed: a real step again and
// again, with times, numbers of steps and correlations that go on.
func BenchmarkLargeTrace(b *testing.B) {
	program := laggard(b)
	for _, name := range []string{"rank0.pt.trace.json", "rank0.pt.trace.json.gz"} {
		b.Run(strings.TrimPrefix(filepath.Ext(name), "."), func(b *testing.B) {
			path := filepath.Join(b.TempDir(), name)
			size := large(b, path, half())
			var runs []run
			for b.Loop() {
				runs = append(runs, measure(b, answered, program, "analyze", path))
			}

			b.Logf("%s", runs[0].said)
			all := total(runs)
			b.ReportMetric(float64(size)*float64(b.N)/1e6/all.cpu.Seconds(), "MB/cpu-s")
			b.ReportMetric(float64(size)*float64(b.N)/1e6/all.wall.Seconds(), "MB/s")
			b.ReportMetric(all.memory, "MiB")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// counted are the numbers that differ from step to step: of time, and of who belongs to whom.
var counted = regexp.MustCompile(`("ts": |"correlation": |"External id": |"id": |ProfilerStep#)(\d+)`)

// part is a piece of a trace, and the number that follows it.
type part struct {
	text     string
	number   int64
	counts   bool
	multiple int64 // how much it grows from step to step
}

// large writes a trace of so many bytes, compressed where its name says so, and returns its length.
func large(b *testing.B, path string, size int64) int64 {
	b.Helper()
	head, events, tail := realStep(b)
	f, err := os.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	var to io.Writer = f
	if strings.HasSuffix(path, ".gz") {
		z, err := gzip.NewWriterLevel(f, gzip.BestSpeed)
		if err != nil {
			b.Fatal(err)
		}

		defer func() {
			if err := z.Close(); err != nil {
				b.Fatal(err)
			}
		}()
		to = z
	}

	w := bufio.NewWriterSize(to, 1<<20)
	n := int64(0)
	write := func(s string) {
		k, err := w.WriteString(s)
		if err != nil {
			b.Fatal(err)
		}

		n += int64(k)
	}
	write(head)
	for step := int64(0); n < size; step++ {
		if step > 0 {
			write(",")
		}

		for i := range events {
			p := &events[i]
			write(p.text)
			if p.counts {
				write(strconv.FormatInt(p.number+step*p.multiple, 10))
			}
		}
	}

	write(tail)
	if err := w.Flush(); err != nil {
		b.Fatal(err)
	}

	return n
}

// realStep takes a real trace of one step apart.
func realStep(b *testing.B) (head string, events []part, tail string) {
	b.Helper()
	names, err := filepath.Glob(filepath.Join(samples, "worker0_*.gz"))
	if err != nil || len(names) != 1 {
		b.Fatalf("the real trace: %v, %v", names, err)
	}

	f, err := os.Open(names[0])
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		b.Fatal(err)
	}

	text, err := io.ReadAll(z)
	if err != nil {
		b.Fatal(err)
	}

	begin := bytes.Index(text, []byte(`"traceEvents": [`)) + len(`"traceEvents": [`)
	end := bytes.LastIndexByte(text, ']')
	head, tail = string(text[:begin]), string(text[end:])
	at := begin
	for _, m := range counted.FindAllSubmatchIndex(text[:end], -1) {
		if m[0] < begin {
			continue
		}

		p := part{text: string(text[at:m[4]]), counts: true, multiple: 1_000_000}
		if p.number, err = strconv.ParseInt(string(text[m[4]:m[5]]), 10, 64); err != nil {
			b.Fatal(err)
		}

		switch string(text[m[2]:m[3]]) {
		case `"ts": `:
			p.multiple = 25_000 // µs: a step and a pause
		case "ProfilerStep#":
			p.multiple = 1
		}

		events, at = append(events, p), m[5]
	}

	return head, append(events, part{text: string(text[at:end])}), tail
}
