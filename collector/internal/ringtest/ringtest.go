// Package ringtest is what the collector's tests share: a place on tmpfs, a Writer in
// memory, a drain into it, and the C recorder with its test driver, built once.
//
// Caveat: it imports the drain, so tests inside the packages ring and drain can't use it;
// those of the packages ring_test and drain_test can.
package ringtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/laggard-dev/laggard/collector/native"
	"github.com/laggard-dev/laggard/schemas/record"
)

// Shared returns the path of a run directory on tmpfs, not made yet, that goes
// with the test.
func Shared(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "laggard-test-")
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "run")
}

// Memory is a Writer that keeps everything.
type Memory struct {
	Meta     record.Meta
	Records  []record.Record
	Losses   []record.Loss
	Switches []record.Switch
	Open     []record.Record
	End      *record.End
	Err      error // of every call, when it is set
	Flushed  int   // records that a Flush has seen
	next     map[uint32]uint64
}

// Next implements drain.Writer.
func (m *Memory) Next() map[uint32]uint64 { return m.next }

// Ended implements drain.Writer.
func (m *Memory) Ended() bool { return m.End != nil }

// Name implements drain.Writer.
func (m *Memory) Name() string { return "" }

// Bytes implements drain.Writer.
func (m *Memory) Bytes() int64 { return 0 }

// SetMeta implements drain.Writer.
func (m *Memory) SetMeta(meta record.Meta) error {
	m.Meta = meta
	return m.Err
}

// AppendRecord implements drain.Writer.
func (m *Memory) AppendRecord(r *record.Record) error {
	if m.Err != nil {
		return m.Err
	}

	if m.next == nil {
		m.next = make(map[uint32]uint64)
	}

	if want := m.next[r.Ring]; r.Seq < want {
		return fmt.Errorf("ring %d: seq %d after %d", r.Ring, r.Seq, want)
	}

	m.next[r.Ring] = r.Seq + 1
	m.Records = append(m.Records, *r)
	return nil
}

// AppendLine implements drain.Writer.
func (m *Memory) AppendLine(line []byte) error {
	if m.Err != nil {
		return m.Err
	}

	var p record.Parser
	switch t, err := p.Parse(line); {
	case err != nil:
		return err
	case t == record.LineRecord:
		m.Open = append(m.Open, p.Record)
	case t == record.LineLoss:
		m.Losses = append(m.Losses, p.Loss)
	case t == record.LineSwitch:
		m.Switches = append(m.Switches, p.Switch)
	case t == record.LineEnd:
		end := p.End
		m.End = &end
	}

	return nil
}

// Flush implements drain.Writer.
func (m *Memory) Flush() error {
	if m.Err == nil {
		m.Flushed = len(m.Records)
	}

	return m.Err
}

// Sync implements drain.Writer.
func (m *Memory) Sync() error { return m.Err }

// Close implements drain.Writer.
func (m *Memory) Close() error { return nil }

// Lost returns the sum of the loss lines.
func (m *Memory) Lost() (n uint64) {
	for _, l := range m.Losses {
		n += l.Count
	}

	return n
}

var driver struct {
	once sync.Once
	dir  string
	err  error
}

// Driver returns the path of the test driver, linked with the C recorder. Remove
// takes it away; call it at the end of TestMain.
func Driver(t testing.TB) string {
	t.Helper()
	driver.once.Do(func() {
		driver.dir, driver.err = os.MkdirTemp("", "laggard-driver-")
		if driver.err == nil {
			driver.err = build(driver.dir)
		}
	})
	if driver.err != nil {
		t.Fatalf("the tests of the C recorder need a C compiler (apt install gcc): %v", driver.err)
	}

	return filepath.Join(driver.dir, "driver")
}

// Library returns the directory of liblaggard.so and its headers.
func Library(t testing.TB) string {
	t.Helper()
	return filepath.Dir(Driver(t))
}

// Remove deletes what Driver built.
func Remove() {
	if driver.dir != "" {
		os.RemoveAll(driver.dir)
	}
}

// build compiles the C recorder and its driver into dir, warnings as errors.
func build(dir string) error {
	ctx := context.Background()
	if err := os.CopyFS(dir, native.Sources()); err != nil {
		return err
	}

	if err := native.Build(ctx, dir, dir, "-Werror"); err != nil {
		return err
	}

	return Program(ctx, dir, source("driver.c"), filepath.Join(dir, "driver"), source("life.c"))
}

// Program compiles a program in one C file, and what else the compiler is told, against
// the library in dir, which it finds there when it runs.
func Program(ctx context.Context, dir, src, out string, extra ...string) error {
	args := slices.Concat([]string{"-std=gnu11", "-O2", "-g", "-pthread", "-Wall", "-Wextra", "-I" + dir, "-o", out, src}, extra,
		[]string{"-L" + dir, "-llaggard", "-Wl,-rpath," + dir})
	if b, err := exec.CommandContext(ctx, "cc", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", filepath.Base(out), err, b)
	}

	return nil
}

// source returns the path of a part of the driver's source, which lies in a folder beside the
// test's or beside one above: a test runs in its own package's folder.
func source(name string) string {
	path := filepath.Join("..", "native", "testdata", name)
	if _, err := os.Stat(path); err != nil {
		return filepath.Join("..", path)
	}

	return path
}

// Kills returns how often a kill test kills: LAGGARD_KILLS, else short.
func Kills(short int) int {
	if n, err := strconv.Atoi(os.Getenv("LAGGARD_KILLS")); err == nil && n > 0 {
		return n
	}

	return short
}

// Seed returns LAGGARD_SEED, else a new one.
func Seed() uint64 {
	if n, err := strconv.ParseUint(os.Getenv("LAGGARD_SEED"), 10, 64); err == nil {
		return n
	}

	return rand.Uint64()
}
