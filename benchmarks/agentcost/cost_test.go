// Package agentcost measures what the agent costs beside a training job: the real
// binary with eight real recorder processes of 5,000 records a second each.
//
// It reads the kernel's account (/proc/PID/stat, /proc/PID/status), so what others do
// on the machine at the same time does not count, but for the caches they share.
package agentcost

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/laggard-dev/laggard/collector/recorder"
	"github.com/laggard-dev/laggard/schemas/clickhouse/chtest"
	"github.com/laggard-dev/laggard/schemas/record"
)

const (
	ranks   = 8
	rate    = 5000 // records a second and rank
	beat    = 10 * time.Millisecond
	perBeat = rate / int(time.Second/beat)
	// beats of a step: one of 250 ms has 1,247 communications.
	beats = 25

	emitterSeconds = "LAGGARD_COST_EMITTER"
	measureSeconds = "LAGGARD_AGENT_SECONDS"
	// warmUp is left out of the account: the start of both sides and the first flush.
	warmUp = 5 * time.Second
	// What an agent may cost: per cent of a core, and memory.
	wantedCore, wantedMiB = 5.0, 64.0
)

func TestMain(m *testing.M) {
	if what := os.Getenv(shipperOf); what != "" {
		if err := shipper(what); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}

		os.Exit(0)
	}

	text := os.Getenv(emitterSeconds)
	if text == "" {
		os.Exit(m.Run())
	}

	seconds, err := strconv.ParseFloat(text, 64)
	if err == nil {
		err = emit(time.Duration(seconds * float64(time.Second)))
	}

	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// emit records at the rate for a time: steps of one Step, FP and DataLoader range and
// many communications. It prints the records a second that it came to.
func emit(length time.Duration) error {
	r, err := recorder.Open(recorder.Options{Meta: recorder.Environment(os.Getenv)})
	if err != nil {
		return err
	}
	defer r.Close()
	t := r.Thread()
	defer t.Close()
	op := recorder.Op(r.Intern("allreduce"), r.Intern("dp0"), 1<<20, record.DtypeCode("bf16"))
	tick := time.NewTicker(beat)
	defer tick.Stop()
	began := time.Now()
	step := int64(0)
	for ; time.Since(began) < length; step++ {
		whole := t.Step(step, 0)
		load := t.Begin(record.DataLoader, recorder.Attr{})
		load.End()
		forward := t.Begin(record.FP, recorder.Attr{})
		for i := range beats {
			n := perBeat
			if i == 0 {
				n -= 3
			}

			for range n {
				c := t.Begin(record.Communication, op)
				c.End()
			}

			<-tick.C
		}

		forward.End()
		whole.End()
	}

	fmt.Println(float64(step*beats*int64(perBeat)) / time.Since(began).Seconds())
	return nil
}

// laggard builds the program and returns its path.
func laggard(b *testing.B) string {
	b.Helper()
	path := filepath.Join(b.TempDir(), "laggard")
	if out, err := exec.Command("go", "build", "-o", path, "github.com/laggard-dev/laggard").CombinedOutput(); err != nil {
		b.Fatalf("build laggard: %v\n%s", err, out)
	}

	return path
}

// BenchmarkAgent prints the share of a core and the most of its own memory that the
// agent takes, shipping to either store, with the default records and with all.
func BenchmarkAgent(b *testing.B) {
	binary := laggard(b)
	for _, records := range []string{"light", "all"} {
		b.Run("parquet/records="+records, func(b *testing.B) {
			measure(b, binary, "parquet:"+filepath.Join(b.TempDir(), "store"), records)
		})
		b.Run("clickhouse/records="+records, func(b *testing.B) {
			s := chtest.Start(b)
			measure(b, binary, s.Store(s.Database()), records)
		})
	}
}

func measure(b *testing.B, binary, store, records string) {
	length := lengthOf(b, 10*time.Second)
	for b.Loop() {
		u := run(b, binary, store, records, length)
		core := 100 * u.cpu.Seconds() / u.wall.Seconds()
		b.ReportMetric(core, "%core")
		b.ReportMetric(float64(u.anon)/1024, "MiB-anon")
		b.ReportMetric(u.rate, "records/s")
		b.ReportMetric(0, "ns/op")
		b.Logf("%.0f s, %.0f records/s: %.2f %% of a core (wanted under %.0f), RssAnon %.1f MiB at most (wanted under %.0f)",
			u.wall.Seconds(), u.rate, core, wantedCore, float64(u.anon)/1024, wantedMiB)
	}
}

// usage is what an agent took between warm-up and end.
type usage struct {
	cpu, wall time.Duration
	anon      int64   // KiB, the most that was seen
	rate      float64 // records a second, as the recorders had it
}

func run(b *testing.B, binary, store, records string, length time.Duration) usage {
	rings, err := os.MkdirTemp("/dev/shm", "laggard-cost-")
	if err != nil {
		b.Fatal(err)
	}
	defer os.RemoveAll(rings)
	var words bytes.Buffer
	agent := exec.Command(binary, "agent", "--ring-dir", rings, "--dir", filepath.Join(b.TempDir(), "profiling"), "--store", store,
		"--records", records, "--node", "node-0", "--listen", "", "--metrics", "")
	agent.Stderr = &words
	if err := agent.Start(); err != nil {
		b.Fatal(err)
	}

	var emitters [ranks]*exec.Cmd
	var rates [ranks]bytes.Buffer
	for rank := range ranks {
		c := exec.Command(os.Args[0])
		c.Env = append(os.Environ(), fmt.Sprintf("%s=%g", emitterSeconds, (warmUp+length+time.Second).Seconds()), "LAGGARD_RUN="+rings, "LAGGARD_JOB=cost",
			fmt.Sprintf("RANK=%d", rank), fmt.Sprintf("LOCAL_RANK=%d", rank), fmt.Sprintf("WORLD_SIZE=%d", ranks))
		c.Stdout, c.Stderr = &rates[rank], os.Stderr
		if err := c.Start(); err != nil {
			b.Fatal(err)
		}

		emitters[rank] = c
	}

	pid := agent.Process.Pid
	<-time.After(warmUp)
	u := usage{}
	cpu, began := chtest.ProcessorTime(b, pid), time.Now()
	sample := time.NewTicker(100 * time.Millisecond)
	defer sample.Stop()
	for time.Since(began) < length {
		<-sample.C
		u.anon = max(u.anon, anonymous(b, pid))
	}

	u.cpu, u.wall = chtest.ProcessorTime(b, pid)-cpu, time.Since(began)
	for rank, c := range emitters {
		if err := c.Wait(); err != nil {
			b.Fatalf("emitter: %v", err)
		}

		r, err := strconv.ParseFloat(strings.TrimSpace(rates[rank].String()), 64)
		if err != nil {
			b.Fatalf("emitter: %v", err)
		}

		u.rate += r
	}

	if err := agent.Process.Signal(syscall.SIGTERM); err != nil {
		b.Fatal(err)
	}

	if err := agent.Wait(); err != nil {
		b.Fatalf("agent: %v\n%s", err, words.Bytes())
	}

	return u
}

// anonymous returns what a process has in memory that is no file's, in KiB.
func anonymous(b *testing.B, pid int) int64 {
	b.Helper()
	kib, err := chtest.Memory(pid, "RssAnon")
	if err != nil {
		b.Fatal(err)
	}

	return kib
}
