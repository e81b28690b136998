package mspti_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/laggard-dev/laggard/collector/internal/ringtest"
	"github.com/laggard-dev/laggard/collector/mspti"
	"github.com/laggard-dev/laggard/collector/native"
	"github.com/laggard-dev/laggard/schemas/record"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if built.dir != "" {
		os.RemoveAll(built.dir)
	}

	os.Exit(code)
}

// built is what the tests share: both libraries, the stand-in, the trainer, and all
// of it once more with sanitizers.
var built struct {
	once sync.Once
	dir  string
	err  error
}

// build returns the directory of what is built.
func build(t testing.TB) string {
	t.Helper()
	built.once.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "laggard-mspti-"); built.err == nil {
			built.err = compile(built.dir)
		}
	})
	if built.err != nil {
		t.Fatalf("these tests need a C compiler (apt install gcc): %v", built.err)
	}

	return built.dir
}

func compile(dir string) error {
	ctx := context.Background()
	src := filepath.Join(dir, "src")
	if err := errors.Join(os.CopyFS(src, native.Sources()), os.CopyFS(src, mspti.Sources())); err != nil {
		return err
	}

	if err := mspti.Build(ctx, src, dir, "-Werror"); err != nil {
		return err
	}

	if err := standin(dir, "libmspti.so"); err != nil {
		return err
	}

	common := []string{"-std=gnu11", "-g", "-pthread", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-I" + src}
	objects, err := sanitized(dir, src)
	if err != nil {
		return err
	}

	for _, p := range []struct {
		out  string
		args []string
	}{
		{"trainer", []string{"-O2", "testdata/trainer.c", "-L" + dir, "-l:libmspti.so", "-Wl,-rpath," + dir}},
		{"mstx-trainer", []string{"-O2", "testdata/trainer.c", "-L" + dir, "-l:libms_tools_ext.so", "-Wl,-rpath," + dir}},
		{"trainer-sanitized", append(slices.Clone(objects), "testdata/trainer.c", "-L"+dir, "-l:libmspti.so", "-Wl,-rpath,"+dir)},
		{"classify", append(slices.Clone(objects), "testdata/classify.c")},
	} {
		args := append(append(slices.Clone(common), p.args...), "-o", filepath.Join(dir, p.out))
		if b, err := exec.Command("cc", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", p.out, err, b)
		}
	}

	return nil
}

// sanitized compiles the library's files once, for programs that have it in them,
// and returns how such a program is compiled.
func sanitized(dir, src string) ([]string, error) {
	out := filepath.Join(dir, "sanitized")
	if err := os.Mkdir(out, 0o755); err != nil {
		return nil, err
	}

	all, err := filepath.Glob(filepath.Join(src, "*.c"))
	if err != nil {
		return nil, err
	}

	flags := []string{"-std=gnu11", "-O1", "-g", "-pthread", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"}
	cmd := exec.Command("cc", append(append(slices.Clone(flags), "-c"), slices.DeleteFunc(slices.Clone(all), func(f string) bool { return filepath.Base(f) == "mstx.c" })...)...)
	cmd.Dir = out
	if b, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("sanitized: %w\n%s", err, b)
	}

	objects, err := filepath.Glob(filepath.Join(out, "*.o"))
	slices.SortFunc(objects, func(a, b string) int { // as Build: the recorder begins first and ends last
		return strings.Compare(strings.ReplaceAll(a, "/mspti", "/~mspti"), strings.ReplaceAll(b, "/mspti", "/~mspti"))
	})
	return append(flags, objects...), err
}

// standin compiles a libmspti, without what without names.
func standin(dir, name string, without ...string) error {
	args := []string{"-std=gnu11", "-O2", "-g", "-fPIC", "-shared", "-pthread", "-Wall", "-Wextra", "-D_GNU_SOURCE", "-Wl,-soname," + filepath.Base(name)}
	for _, w := range without {
		args = append(args, "-DWITHOUT_"+w)
	}

	b, err := exec.Command("cc", append(args, "-o", filepath.Join(dir, name), "testdata/standin.c")...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", name, err, b)
	}

	return nil
}

// command returns a trainer's command with a run directory of its own, preloaded as a
// job does it.
func command(t testing.TB, run, program string, args ...string) *exec.Cmd {
	t.Helper()
	dir := build(t)
	cmd := exec.Command(filepath.Join(dir, program), args...)
	cmd.Env = append(ringtest.Environ(run), "LAGGARD_MSPTI=on", "LD_LIBRARY_PATH="+dir)
	switch program {
	case "trainer":
		cmd.Env = append(cmd.Env, "LD_PRELOAD="+filepath.Join(dir, "libmspti.so")+":"+filepath.Join(dir, mspti.Library))
	case "trainer-sanitized":
		cmd.Env = append(cmd.Env, "ASAN_OPTIONS=detect_leaks=0")
	}

	return cmd
}

// counts is what the trainer prints at its end.
type counts struct {
	Markers, Activities, Records, Unmatched, Unknown, Dropped, Buffers, Multiple uint64
	DroppedBuffers                                                               uint64 `json:"dropped_buffers"`
	On                                                                           uint32
	Written, Refused, Calls, Waits, P50, P99, P999, Max                          uint64
}

// report reads the counts, the last line of out.
func report(t testing.TB, out string) (c counts) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &c); err != nil {
		t.Fatalf("report %q: %v", out, err)
	}

	return c
}

// words counts records by kind.
func words(rs []record.Record) map[string]int {
	n := make(map[string]int)
	for i := range rs {
		n[rs[i].Word()]++
	}

	return n
}
