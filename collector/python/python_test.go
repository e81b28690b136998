package python_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/laggard-dev/laggard/collector/python"
	"github.com/laggard-dev/laggard/collector/ring"
	"github.com/laggard-dev/laggard/schemas/record"
)

// interpreter is Debian's Python: the one that python3-torch is for.
const interpreter = "/usr/bin/python3"

// pure lists the files of tests/ that run a second time without the extension; the
// others start PyTorch, which is what they cost, have no range in them, or do without it anyway.
var pure = []string{"ring", "fork", "switch", "callbacks", "mstx", "kill", "room"}

// class is a class of a file in tests/.
type class struct {
	name  string
	tests int
}

// classes returns those of a file that have tests.
func classes(t *testing.T, path string) (all []class) {
	t.Helper()
	source, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	for _, body := range regexp.MustCompile(`(?m)^class `).Split(string(source), -1)[1:] {
		name := regexp.MustCompile(`^\w+`).FindString(body)
		if n := len(regexp.MustCompile(`(?m)^    def test_`).FindAllString(body, -1)); n > 0 {
			all = append(all, class{name, n})
		}
	}

	if len(all) == 0 {
		t.Fatalf("%s: no tests", path)
	}

	return all
}

// TestPython runs the unit tests in tests/, one subtest a class and recorder, two at a
// time: a file of those that start PyTorch takes longer than all others together. They
// start real processes; those with PyTorch train over gloo. Classes of what a script does once
// PyTorch is there (jobs.Forking) import it once.
func TestPython(t *testing.T) {
	if out, err := exec.Command(interpreter, "-c", "import torch.distributed as d; assert d.is_gloo_available()").CombinedOutput(); err != nil {
		t.Fatalf("%s has no PyTorch with gloo: apt-get install python3-torch (%v)\n%s", interpreter, err, out)
	}

	cache := extension(t)
	files, err := filepath.Glob("tests/test_*.py")
	if err != nil || len(files) == 0 {
		t.Fatalf("find tests: %v, %d files", err, len(files))
	}

	two := make(chan struct{}, 2)
	for _, f := range files {
		name := strings.TrimSuffix(filepath.Base(f), ".py")
		short := strings.TrimPrefix(name, "test_")
		for recorder, setting := range map[string]string{"extension": "load", "pure": "0"} {
			if setting == "0" && !slices.Contains(pure, short) {
				continue
			}

			for _, class := range classes(t, f) {
				t.Run(short+"/"+class.name+"/"+recorder, func(t *testing.T) {
					t.Parallel()
					two <- struct{}{}
					defer func() { <-two }()
					unittests(t, name, class, "LAGGARD_EXTENSION="+setting, "XDG_CACHE_HOME="+cache)
				})
			}
		}
	}
}

// unittests runs the tests of a class.
func unittests(t *testing.T, module string, class class, env ...string) {
	t.Helper()
	c := exec.Command(interpreter, "-B", "-m", "unittest", "-v", module+"."+class.name)
	c.Dir = "tests"
	c.Env = append(os.Environ(), env...)
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", module, err, out)
	}

	if ran := regexp.MustCompile(`(?m)^Ran (\d+) tests? in`).FindSubmatch(out); ran == nil || string(ran[1]) != strconv.Itoa(class.tests) {
		t.Errorf("%s.%s has %d tests; it said %q", module, class.name, class.tests, ran)
	}

	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, " kills with ") { // the scale and the seed
			t.Log(strings.TrimSpace(line))
		}
	}
}

// extension builds the C extension and returns the cache folder that holds it.
func extension(t testing.TB) string {
	t.Helper()
	cache := t.TempDir()
	c := exec.Command(interpreter, "-B", "-m", "laggard", "build")
	c.Env = append(os.Environ(), "XDG_CACHE_HOME="+cache)
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("build the extension (apt-get install gcc python3-dev): %v\n%s", err, out)
	}

	return cache
}

// TestFiles checks that Files is the package and nothing else.
func TestFiles(t *testing.T) {
	var got []string
	err := fs.WalkDir(python.Files, ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			got = append(got, path)
		}

		return err
	})
	if err != nil {
		t.Fatalf("walk: %v", err)
	}

	want, err := filepath.Glob("laggard/*.py")
	if err != nil {
		t.Fatalf("list: %v", err)
	}

	sources, err := filepath.Glob("laggard/csrc/*.c")
	if err != nil {
		t.Fatalf("list: %v", err)
	}

	want = append(append(want, sources...), "sitecustomize.py", "laggard_start.py", "mstx.py")
	err = filepath.WalkDir("taskd", func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".py") {
			want = append(want, path)
		}

		return err
	})
	if err != nil {
		t.Fatalf("list: %v", err)
	}

	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Fatalf("embedded %v, want %v", got, want)
	}
}

// TestInstalled records with the embedded files alone, and reads the rings with
// the agent's reader.
func TestInstalled(t *testing.T) {
	dir, run := t.TempDir(), t.TempDir()
	if err := os.CopyFS(dir, python.Files); err != nil {
		t.Fatalf("install: %v", err)
	}

	c := exec.Command(interpreter, "-c", `
import laggard
laggard.init(rank=3, world_size=8, job="j", node="n")
for i in range(50):
    with laggard.step(i, tokens=7):
        with laggard.communication("HcclAllreduce", "dp0", 10 + i, "bfp16", peer=2): pass
hang = laggard.span("rollout").begin()
import os; os.kill(os.getpid(), 9)
`)
	c.Env = append(os.Environ(), "PYTHONPATH="+dir, "LAGGARD_RUN="+run, "PYTHONDONTWRITEBYTECODE=1", "LAGGARD_TRACE=on", "LAGGARD_QUIET=1")
	if out, err := c.CombinedOutput(); err == nil || !strings.Contains(err.Error(), "killed") || len(out) > 0 {
		t.Fatalf("python: %v\n%s", err, out)
	}

	names, err := ring.Names(run)
	if err != nil || len(names) != 1 {
		t.Fatalf("Names()=%v, %v", names, err)
	}

	f, err := ring.OpenFolder(run, names[0])
	if err != nil {
		t.Fatalf("OpenFolder: %v", err)
	}
	defer f.Close()
	status, err := f.Status()
	if err != nil {
		t.Fatalf("Status: %v", err)
	}

	if err := f.ReadTexts(status); err != nil {
		t.Fatalf("ReadTexts: %v", err)
	}

	id := f.Identity
	if got := record.IncarnationOf(id.BootID, id.PID, id.Ticks); got != id.Incarnation {
		t.Errorf("incarnation %s, want %s", id.Incarnation, got)
	}

	meta, ok := f.Text(uint16(status.Identity))
	if !ok || !strings.Contains(meta, `"job":"j","rank":3,`) {
		t.Errorf("identity %q", meta)
	}

	readRing(t, f)
}

// readRing checks the 50 steps and 50 communications of TestInstalled.
func readRing(t *testing.T, f *ring.Folder) {
	t.Helper()
	r, err := f.OpenReader(1)
	if err != nil {
		t.Fatalf("OpenReader: %v", err)
	}
	defer r.Close()
	c, err := r.Counters()
	if err != nil {
		t.Fatalf("Counters: %v", err)
	}

	if c.Head != [2]uint64{50, 50} || c.Emitted[record.Step] != 50 || c.Emitted[record.Communication] != 50 {
		t.Fatalf("counters %+v", c)
	}

	for lane := ring.Light; lane <= ring.Bulk; lane++ {
		checkLane(t, f, r, lane)
	}
}

// checkLane checks the 50 records of one lane.
func checkLane(t *testing.T, f *ring.Folder, r *ring.Reader, lane ring.Lane) {
	t.Helper()
	b := make([]byte, 50*64)
	if err := r.Copy(lane, 0, b); err != nil {
		t.Fatalf("Copy: %v", err)
	}

	var s ring.Slot
	for i := range 50 {
		if !r.Decode(&s, b[i*64:], uint64(i)) {
			t.Fatalf("lane %d: slot %d is not whole", lane, i)
		}

		if s.Step() != uint32(i) || s.Start() <= 0 || s.Dur() < 0 {
			t.Fatalf("lane %d: slot %d = %+v", lane, i, s)
		}

		if lane == ring.Light {
			if s.Kind().Known() != record.Step || s.Value() != 7 {
				t.Fatalf("slot %d = %+v, want a Step of 7 tokens", i, s)
			}

			continue
		}

		op, _ := f.Text(s.Text())
		group, _ := f.Text(s.Group())
		if s.Kind().Known() != record.Communication || op != "HcclAllreduce" || group != "dp0" || s.Value() != int64(10+i) ||
			record.DtypeName(s.Dtype()) != "bf16" || s.Peer() != 2 || s.Flags() != ring.FlagExposed || s.HostStart() != s.Dur() {
			t.Fatalf("slot %d = %+v, op %q, group %q", i, s, op, group)
		}
	}

	open, err := r.OpenRanges()
	if err != nil || len(open) != 1 {
		t.Fatalf("OpenRanges()=%+v, %v", open, err)
	}

	if word, _ := f.Text(open[0].Text()); word != "rollout" {
		t.Fatalf("open range %q, want rollout", word)
	}
}
