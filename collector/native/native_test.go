package native_test

import (
	"bufio"
	"debug/elf"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/laggard-dev/laggard/collector/internal/ringtest"
	"github.com/laggard-dev/laggard/collector/native"
	"github.com/laggard-dev/laggard/collector/trace"
	"github.com/laggard-dev/laggard/schemas/record"
)

func TestMain(m *testing.M) {
	code := m.Run()
	ringtest.Remove()
	os.Exit(code)
}

// command returns the driver's command with a run directory of its own.
func command(t testing.TB, driver, run string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(driver, args...)
	cmd.Env = ringtest.Environ(run)
	return cmd
}

// runs runs the driver to its end and returns what it printed.
func runs(t testing.TB, cmd *exec.Cmd) string {
	t.Helper()
	out, _ := ringtest.Runs(t, cmd)
	return out
}

// TestEveryField records every kind, flag and field in C and reads it in Go.
func TestEveryField(t *testing.T) {
	run := ringtest.Shared(t)
	runs(t, command(t, ringtest.Driver(t), run, "all"))
	c := ringtest.NewDrain(t, run)
	c.Finish(t)
	w := c.Only(t)
	m := w.Meta
	if m.Job != "c job" || m.Rank != 5 || m.WorldSize != 8 || m.LocalRank != 1 || m.Writer != "c/1" || m.Node != "n0" || m.PID == 0 || m.StartedNs == 0 || m.BootID == "" {
		t.Errorf("identity %+v", m)
	}

	r := func(k record.Kind, set func(*record.Record)) record.Record {
		x := record.New(k)
		x.Step = 120
		set(&x)
		return x
	}
	want := []record.Record{
		r(record.FP, func(x *record.Record) { x.Side, x.Start, x.Dur = record.Device, 1753000000000000001, 5400000 }),
		r(record.FP, func(x *record.Record) {
			x.Step, x.Side, x.Start, x.Dur, x.HostStart, x.HostDur, x.Thread = 121, record.Device, 1753000000000000003, 9, 1753000000000000000, 4, 2
		}),
		r(record.Other, func(x *record.Record) {
			x.Step, x.Name, x.Start, x.Dur = record.NoStep, "Evaluate", 1753000000000000002, 8
		}),
		r(record.Communication, func(x *record.Record) {
			x.Op, x.OpRaw, x.Group, x.Count, x.Dtype, x.Exposed = "allreduce", "HcclAllreduce", "dp0", 4194304, "bf16", 77
		}),
		r(record.Communication, func(x *record.Record) {
			x.Op, x.Group, x.Count, x.Dtype, x.Peer = "send", "dp0", 4194304, "bf16", 3
		}),
		r(record.SaveCheckpoint, func(x *record.Record) { x.Path, x.Bytes = `/ckpt/"1"`, 12345 }),
		r(record.Step, func(x *record.Record) { x.Tokens = 4096 }),
		r(record.DataLoader, func(x *record.Record) { x.Step = record.NoStep }),
	}
	got := slices.Clone(w.Records)
	key := func(x record.Record) string { return fmt.Sprint(x.Kind, x.Side, x.Op, x.Step, x.Name) }
	for _, s := range [][]record.Record{got, want} {
		slices.SortFunc(s, func(a, b record.Record) int { return strings.Compare(key(a), key(b)) })
	}

	for i := range got {
		if x := &got[i]; x.Side == record.Host && x.Name == "" || x.HostDur > 1000 || x.Dur == 5400000 {
			if x.HostBegin() < m.StartedNs-1e9 || x.HostBegin() > time.Now().UnixNano() {
				t.Errorf("%s begins at %d", x.Word(), x.HostBegin())
			}

			if x.Side == record.Host {
				x.Start, x.Dur = 0, 0
			}

			x.HostStart, x.HostDur = 0, 0
		}

		if x := &got[i]; x.Side == record.Host {
			if x.Thread == 0 {
				t.Errorf("%s has no thread", x.Word())
			}

			x.Thread = 0
		}
	}

	if d := cmp.Diff(want, got, cmpopts.IgnoreFields(record.Record{}, "Ring", "Seq")); d != "" {
		t.Errorf("records (-want +got)\n%s", d)
	}

	if w.End == nil || w.End.How != "closed" || w.End.Emitted["Communication"] != 2 || w.End.Emitted["FP"] != 2 || w.Open != nil {
		t.Errorf("end %+v, open %v", w.End, w.Open)
	}
}

func TestSwitch(t *testing.T) {
	for env, first := range map[string]string{"": "11", "off": "00", "Step": "10", "step, fp": "10", "Communication": "11", "on": "11", "of": "11"} {
		t.Run("LAGGARD_TRACE="+env, func(t *testing.T) {
			run := ringtest.Shared(t)
			cmd := command(t, ringtest.Driver(t), run, "follow")
			if env != "" {
				cmd.Env = append(cmd.Env, "LAGGARD_TRACE="+env)
			}

			in, _ := cmd.StdinPipe()
			pipe, _ := cmd.StdoutPipe()
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}

			out := bufio.NewReader(pipe)
			expect := func(want string) {
				t.Helper()
				if got, err := out.ReadString('\n'); strings.TrimSpace(got) != want {
					t.Fatalf("on: %q, %v, want %q", got, err, want)
				}
			}
			expect(first)
			for _, s := range []trace.State{{}, {Light: true}, {Light: true, Communication: true}} {
				if err := trace.Apply(run, s, func(string) bool { return true }); err != nil {
					t.Fatal(err)
				}

				io.WriteString(in, "\n")
				b := s.Bits()
				expect(fmt.Sprintf("%d%d", b&1, b>>1))
				all, err := trace.Recorders(run)
				if err != nil || len(all) != 1 || all[0].Wanted != all[0].Followed || all[0].Followed != s || all[0].FollowedAt == 0 {
					t.Fatalf("Recorders = %+v, %v", all, err)
				}
			}

			in.Close()
			if err := cmd.Wait(); err != nil {
				t.Fatal(err)
			}

			c := ringtest.NewDrain(t, run)
			c.Finish(t)
			w := c.Only(t)
			fp, comm := 0, 0
			for _, r := range w.Records {
				if r.Kind == record.FP {
					fp++
				} else {
					comm++
				}
			}

			wantFP, wantComm := 2, 1
			if first[0] == '1' {
				wantFP++
			}

			if first[1] == '1' {
				wantComm++
			}

			if fp != wantFP || comm != wantComm {
				t.Errorf("%d FP and %d Communication, want %d and %d", fp, comm, wantFP, wantComm)
			}
		})
	}
}

// TestSymbols holds the library to old C libraries and to its own header.
func TestSymbols(t *testing.T) {
	lib := filepath.Join(ringtest.Library(t), native.Library)
	b, err := exec.Command("nm", "-D", lib).CombinedOutput()
	if err != nil {
		t.Fatalf("nm (apt install binutils): %v\n%s", err, b)
	}

	for _, m := range regexp.MustCompile(`(\S+)@+GLIBC_2\.(\d+)`).FindAllStringSubmatch(string(b), -1) {
		if minor, _ := strconv.Atoi(m[2]); minor > 17 {
			t.Errorf("%s needs GLIBC_2.%d, later than 2.17", m[1], minor)
		}
	}

	header, err := os.ReadFile(filepath.Join(filepath.Dir(lib), "laggard.h"))
	if err != nil {
		t.Fatal(err)
	}

	var api, exported []string
	for _, m := range regexp.MustCompile(`(?m)^LAGGARD_API [^(;]*?(laggard_\w+)[(;]`).FindAllStringSubmatch(string(header), -1) {
		api = append(api, m[1])
	}

	for _, m := range regexp.MustCompile(`(?m)^[0-9a-f]+ [A-Z] (\w+)`).FindAllStringSubmatch(string(b), -1) {
		exported = append(exported, m[1])
	}

	slices.Sort(api)
	slices.Sort(exported)
	if d := cmp.Diff(api, exported); d != "" || len(api) == 0 {
		t.Errorf("exported (-header +library)\n%s", d)
	}
}

// TestLoadedLate: a program that loads the library while it runs has to place what each
// thread has of it into room that a C library keeps for that, aligned to 16 bytes on
// arm64.
func TestLoadedLate(t *testing.T) {
	f, err := elf.Open(filepath.Join(ringtest.Library(t), native.Library))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	threads := 0
	for _, p := range f.Progs {
		if p.Type == elf.PT_TLS {
			threads++
			if p.Align > 16 || p.Memsz > 256 {
				t.Errorf("%d bytes a thread, aligned to %d", p.Memsz, p.Align)
			}
		}
	}

	if threads != 1 {
		t.Errorf("%d segments of threads", threads)
	}
}

// TestCPlusPlus compiles and runs the RAII wrapper without exceptions.
func TestCPlusPlus(t *testing.T) {
	lib, dir, run := ringtest.Library(t), t.TempDir(), ringtest.Shared(t)
	src := `#include <utility>
#include "laggard.hpp"
int main() {
	laggard::step s(7, 100);
	laggard::range c(laggard::communication(laggard_intern("recv"), 0, 5, LAGGARD_FP32, 2));
	{ laggard::range f(LAGGARD_FP); laggard::range g(std::move(f)); }
	c.end();
	laggard::range d(LAGGARD_DATA_LOADER);
	d.cancel();
}`
	if err := os.WriteFile(filepath.Join(dir, "a.cc"), []byte(src), 0o600); err != nil {
		t.Fatal(err)
	}

	out := filepath.Join(dir, "a")
	if b, err := exec.Command("c++", "-std=c++11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fno-exceptions", "-fno-rtti", "-I"+lib, "-o", out, filepath.Join(dir, "a.cc"), "-L"+lib, "-llaggard", "-Wl,-rpath,"+lib).CombinedOutput(); err != nil {
		t.Fatalf("c++ (apt install g++): %v\n%s", err, b)
	}

	runs(t, command(t, out, run))
	c := ringtest.NewDrain(t, run)
	c.Finish(t)
	var got []string
	for _, r := range c.Only(t).Records {
		got = append(got, fmt.Sprint(r.Word(), r.Step, r.Op, r.Peer, r.Tokens))
	}

	want := []string{"FP7-1 0", "Communication7recv2 0", "Step7-1 100"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}
