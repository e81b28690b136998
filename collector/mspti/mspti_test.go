package mspti_test

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/laggard-dev/laggard/collector/internal/ringtest"
	"github.com/laggard-dev/laggard/collector/mspti"
	"github.com/laggard-dev/laggard/schemas/record"
)

// expected is what a trainer of so many steps leaves.
func expected(steps, comms int) map[string]int {
	return map[string]int{"Step": steps, "FP": 2 * steps, "DataLoader": steps, "SaveCheckpoint": steps / 10, "Communication": steps * comms,
		"a moment": 1, "a moment on the device": 1}
}

// took takes the ranges of the waiting for libmspti away.
func took(w *ringtest.Memory) map[string]int {
	n := words(w.Records)
	delete(n, "warm up")
	return n
}

// TestEveryKind trains a hundred steps and finds each range once, with what it says.
func TestEveryKind(t *testing.T) {
	for _, program := range []string{"trainer", "trainer-sanitized"} {
		t.Run(program, func(t *testing.T) {
			run := ringtest.Shared(t)
			_, said := ringtest.Runs(t, command(t, run, program, "train", "100", "10"))
			if said != "" {
				t.Errorf("said %q", said)
			}

			w := ringtest.NewDrain(t, run).Finish(t).Only(t)
			if got, want := took(w), expected(100, 10); !maps.Equal(got, want) {
				t.Errorf("records %v, want %v", got, want)
			}

			if w.Lost() != 0 || w.End == nil || w.End.How != "closed" || w.Open != nil {
				t.Errorf("lost %d, end %+v, open %v", w.Lost(), w.End, w.Open)
			}

			fields(t, w.Records)
		})
	}
}

// fields checks what the records say.
func fields(t *testing.T, rs []record.Record) {
	t.Helper()
	steps := make(map[int64]bool)
	for i := range rs {
		r := &rs[i]
		stream := uint64(2) // of the device lines
		if r.Op == "allreduce" {
			stream = 55 // the producer's
		}

		device := r.Side == record.Device && r.HostStart > 0 && r.HostDur >= 0 && r.Thread == stream && r.Start == r.HostStart+1000
		switch r.Kind {
		case record.Step:
			steps[r.Step] = true
			if !device {
				t.Errorf("%+v: want device times", r)
			}
		case record.FP:
			if !device || r.Step != record.NoStep {
				t.Errorf("%+v: want device times", r)
			}
		case record.Communication:
			a := r.Op == "allreduce" && r.OpRaw == "HcclAllreduce" && r.Group == "10.0.0.7%eth0_60000_0" && r.Count == 4194304 && r.Dtype == "bf16" && r.Peer == record.NoPeer
			b := r.Op == "send" && r.OpRaw == "HcclSend" && r.Group == "pp" && r.Count == 7 && r.Dtype == "fp32" && r.Peer == 3
			if !device || !a && !b {
				t.Errorf("%+v", r)
			}
		case record.DataLoader, record.SaveCheckpoint:
			if r.Side != record.Host || r.Start == 0 || r.Thread != 0 {
				t.Errorf("%+v: want host times", r)
			}
		}

		if t.Failed() {
			return
		}
	}

	for i := range int64(100) {
		if !steps[i] {
			t.Fatalf("step %d is missing", i)
		}
	}
}

// TestQuietWithoutLibmspti: a trainer is what it was, and one line says why.
func TestQuietWithoutLibmspti(t *testing.T) {
	run := ringtest.Shared(t)
	cmd := command(t, run, "mstx-trainer", "plain", "3")
	dir := build(t)
	cmd.Env = append(cmd.Env, "LD_LIBRARY_PATH=/nowhere", "LD_PRELOAD="+dir+"/liblaggard_mspti.so")
	out, said := ringtest.Runs(t, cmd)
	if out != "done\n" || strings.Count(said, "\n") > 1 {
		t.Errorf("printed %q, said %q", out, said)
	}
}

// TestRangesWithoutNPU records through the mstx functions of our own.
func TestRangesWithoutNPU(t *testing.T) {
	run := ringtest.Shared(t)
	cmd := command(t, run, "mstx-trainer", "train", "50", "4")
	cmd.Env = append(cmd.Env, "LAGGARD_MSPTI=off")
	_, said := ringtest.Runs(t, cmd)
	if said != "" {
		t.Errorf("said %q", said)
	}

	w := ringtest.NewDrain(t, run).Finish(t).Only(t)
	if got, want := took(w), expected(50, 4); !maps.Equal(got, want) {
		t.Errorf("records %v, want %v", got, want)
	}

	for _, r := range w.Records {
		if r.Side != record.Host || r.Kind == record.Communication && r.Step == record.NoStep {
			t.Fatalf("%+v: want host times and the step it was in", r)
		}
	}
}

// TestSymbols holds the libraries to old C libraries and to their headers.
func TestSymbols(t *testing.T) {
	dir := build(t)
	for library, headers := range map[string][]string{mspti.Library: {"laggard.h", "laggard_mspti.h"}, mspti.RangeLibrary: {"laggard.h"}} {
		b, err := exec.Command("nm", "-D", filepath.Join(dir, library)).CombinedOutput()
		if err != nil {
			t.Fatalf("nm (apt install binutils): %v\n%s", err, b)
		}

		for _, m := range regexp.MustCompile(`(\S+)@+GLIBC_2\.(\d+)`).FindAllStringSubmatch(string(b), -1) {
			if minor, _ := strconv.Atoi(m[2]); minor > 17 {
				t.Errorf("%s needs %s of GLIBC_2.%d, later than 2.17", library, m[1], minor)
			}
		}

		var api, exported []string
		for _, h := range headers {
			text, err := os.ReadFile(filepath.Join(dir, "src", h))
			if err != nil {
				t.Fatal(err)
			}

			for _, m := range regexp.MustCompile(`(?m)^LAGGARD_API [^(;]*?(laggard_\w+)[(;]`).FindAllStringSubmatch(string(text), -1) {
				api = append(api, m[1])
			}
		}

		for _, m := range regexp.MustCompile(`(?m)^[0-9a-f]+ [A-Z] (\w+)`).FindAllStringSubmatch(string(b), -1) {
			if !strings.HasPrefix(m[1], "mstx") {
				exported = append(exported, m[1])
			}
		}

		slices.Sort(api)
		slices.Sort(exported)
		if !slices.Equal(api, exported) {
			t.Errorf("%s exports %v, its headers say %v", library, exported, api)
		}
	}
}

// TestNotARank: in the launchers and tools of a job nothing happens.
func TestNotARank(t *testing.T) {
	run := ringtest.Shared(t)
	cmd := command(t, run, "trainer", "plain", "3")
	cmd.Env = append(cmd.Env, "LAGGARD_MSPTI=auto")
	if out, said := ringtest.Runs(t, cmd); out != "done\n" || said != "" {
		t.Errorf("printed %q, said %q", out, said)
	}

	if left, _ := os.ReadDir(run); len(left) != 0 {
		t.Errorf("left %v", left)
	}
}
