package docs_test

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/laggard-dev/laggard/collector/switchboard/endpoint/endpointtest"
)

// trainPy is what a reader has as train.py: four ranks, one of them slow in its
// forward pass, on the recorder that PYTHONPATH gives.
const trainPy = `
import os, subprocess, sys, time
if "RANK" not in os.environ:
    ranks = [subprocess.Popen([sys.executable, __file__], env=dict(os.environ, RANK=str(r), LOCAL_RANK=str(r), WORLD_SIZE="4")) for r in range(4)]
    sys.exit(max(p.wait() for p in ranks))
import laggard
for n in range(90):
    with laggard.step(n):
        with laggard.span("FP"):
            time.sleep(0.009 if os.environ["RANK"] == "2" else 0.006)
assert not laggard.failures(), laggard.failures()
`

// journey runs the commands of a page as they stand, but for paths, the store, and
// what a machine without a cluster and without torchrun has instead.
type journey struct {
	t     *testing.T
	home  string
	words *strings.Replacer
	agent chan error // of an agent in the background
	ran   []string
}

func newJourney(t *testing.T) *journey {
	t.Helper()
	home := t.TempDir()
	rings, err := os.MkdirTemp("/dev/shm", "laggard-docs-")
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { os.RemoveAll(rings) })
	t.Setenv("LAGGARD_RUN", rings)
	t.Setenv("PATH", alias(t)+":/usr/bin:"+os.Getenv("PATH"))
	if err := os.WriteFile(filepath.Join(home, "train.py"), []byte(trainPy), 0o644); err != nil {
		t.Fatal(err)
	}

	j := &journey{t: t, home: home}
	j.words = strings.NewReplacer("/opt/laggard", home+"/opt", "/var/lib/laggard", home+"/var", "/etc/laggard", home+"/etc", "unix,:9611", "unix,127.0.0.1:0", "/user/cluster-info", home, "parquet:/data/laggard", "parquet:"+home+"/data",
		"clickhouse://laggard@clickhouse:9000/laggard", "parquet:"+home+"/store", "torchrun train.py", "python3 train.py", "--job JOB", "--job "+taskdJob)
	return j
}

// taskdJob is the job of the files that TaskD is said to have left.
const taskdJob = "job7"

var once = regexp.MustCompile(`^laggard watch `)

// run runs one line and returns what it printed. A verdict's exit codes are no error.
func (j *journey) run(line string) string {
	j.t.Helper()
	line = j.words.Replace(line)
	background := strings.HasPrefix(line, "laggard agent ")
	if background {
		line = "exec " + line + " --metrics= --listen= --until-idle=2s"
	} else if j.agent != nil && !strings.Contains(line, "train.py") {
		if err := <-j.agent; err != nil { // it has shipped all when it has left
			j.t.Fatal(err)
		}

		j.agent = nil
	}

	if strings.Contains(line, " --deepen ") {
		return j.watch(line + " --metrics=")
	}

	if once.MatchString(line) && !strings.Contains(line, "--once") {
		line += " --once --metrics="
	}

	c := exec.Command("bash", "-c", line)
	c.Dir = j.home
	if background {
		log, err := os.Create(filepath.Join(j.home, "agent.log"))
		if err != nil {
			j.t.Fatal(err)
		}

		c.Stderr, c.Stdout = log, log
		if err := c.Start(); err != nil {
			j.t.Fatal(err)
		}

		j.agent = make(chan error, 1)
		go func() {
			defer log.Close()
			err := c.Wait()
			if text, _ := os.ReadFile(log.Name()); err != nil {
				err = errors.Join(err, errors.New(string(text)))
			}

			j.agent <- err
		}()
		j.t.Cleanup(func() { c.Process.Kill() })
		return ""
	}

	c.WaitDelay = time.Minute
	out, err := c.CombinedOutput()
	var exit *exec.ExitError
	decides := strings.HasPrefix(line, "laggard analyze") || strings.HasPrefix(line, "laggard explain") || once.MatchString(line)
	if err != nil && !(decides && errors.As(err, &exit) && (exit.ExitCode() == 3 || exit.ExitCode() == 4)) {
		j.t.Errorf("%s: %v\n%s", line, err, out)
	}

	j.ran = append(j.ran, line)
	return string(out)
}

// watch runs a watcher until its log has a verdict, and ends it.
func (j *journey) watch(line string) string {
	j.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, "bash", "-c", "exec "+line)
	c.Dir = j.home
	log, err := c.StderrPipe()
	if err == nil {
		err = c.Start()
	}

	if err != nil {
		j.t.Fatal(err)
	}

	said, verdict := "", ""
	for lines := bufio.NewScanner(log); lines.Scan(); {
		said += lines.Text() + "\n"
		if verdict == "" && strings.Contains(lines.Text(), "verdict changed") {
			verdict = lines.Text()
			c.Process.Signal(syscall.SIGTERM)
		}
	}

	if err := c.Wait(); err != nil || verdict == "" {
		j.t.Errorf("%s: %v\n%s", line, err, said)
	}

	j.ran = append(j.ran, line)
	return verdict
}

// follow runs every line of the page's blocks but kubectl's: TestLinks and the build of
// the overlays hold those.
func (j *journey) follow(page string) (said string) {
	j.t.Helper()
	for _, b := range block.FindAllStringSubmatch(read(j.t, page), -1) {
		for line := range strings.Lines(b[1]) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "kubectl ") {
				said += j.run(line)
			}
		}
	}

	return said
}

// TestBareMetal: install, agent, training, verdict, watcher.
func TestBareMetal(t *testing.T) {
	j := newJourney(t)
	if said := j.follow("baremetal.md"); !strings.Contains(said, "training") {
		t.Errorf("no verdict on the job:\n%s", said)
	}

	if len(j.ran) < 4 {
		t.Errorf("only %q ran", j.ran)
	}
}

// secrets makes what the page finds in /etc/laggard: a certificate, who signed it, a
// token.
func (j *journey) secrets() {
	j.t.Helper()
	dir := filepath.Join(j.home, "etc")
	if err := os.Mkdir(dir, 0o755); err != nil {
		j.t.Fatal(err)
	}

	endpointtest.New(j.t, dir).Leaf("tls", "127.0.0.1")
	endpointtest.Token(j.t, filepath.Join(dir, "token"), "the token of a test")
}

// TestDepthPage: training with the light kinds only, an agent, a watcher that may deepen.
func TestDepthPage(t *testing.T) {
	j := newJourney(t)
	j.run("laggard install /opt/laggard")
	j.secrets()
	if said := j.follow("depth.md"); !strings.Contains(said, "training") {
		t.Errorf("the watcher says nothing of the job:\n%s", said)
	}

	if len(j.ran) != 3 {
		t.Errorf("only %q ran", j.ran)
	}
}

// TestBatchAndTaskD: files that TaskD left, a second ingest, and what the CronJob runs.
func TestBatchAndTaskD(t *testing.T) {
	j := newJourney(t)
	j.run("laggard simulate --scenario compute-1.5 --seed 3 --ranks 16 --format taskd simulated && mkdir profiling && mv simulated/*/ profiling/" + taskdJob)
	if said := j.follow("taskd.md"); !strings.Contains(said, "slow") {
		t.Errorf("no verdict on TaskD's files:\n%s", said)
	}

	if said := j.follow("batch.md"); !strings.Contains(said, `"state":"degraded"`) {
		t.Errorf("the CronJob's line finds nothing:\n%s", said)
	}

	if page := read(t, filepath.Join(j.home, "report.html")); !strings.Contains(page, "slows this job down") {
		t.Error("the report has no verdict")
	}

	if len(j.ran) < 6 {
		t.Errorf("only %q ran", j.ran)
	}
}
