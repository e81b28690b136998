package e2e

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/laggard-dev/laggard/schemas/verdict"
)

// TestIngestIntoAFullDisk: a pass whose store has no room left ends with the reason and
// says that the same command goes on, which it does when there is room.
func TestIngestIntoAFullDisk(t *testing.T) {
	t.Parallel()
	dir, small := t.TempDir(), t.TempDir()
	if r := laggard(t, "simulate", "--scenario", "compute-1.5", "--seed", "3", "--ranks", "8", "--steps", "60", dir); r.code != 0 {
		t.Fatalf("simulate: %+v", r)
	}

	if err := unix.Mount("tmpfs", small, "tmpfs", 0, "size=40k"); errors.Is(err, unix.EPERM) {
		t.Skip("NOT TESTED: a full file system, because mounting one needs root")
	} else if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { unix.Unmount(small, unix.MNT_DETACH) })
	pass := func() laggardResult { return laggard(t, "ingest", dir, "--to", "parquet:"+small, "--give-up", "100ms") }
	grow := func(size string) {
		if err := unix.Mount("", small, "", unix.MS_REMOUNT, "size="+size); err != nil {
			t.Fatal(err)
		}
	}
	// 40 KiB are full when rows of ranks are to be written anew, 128 KiB with the first steps.
	for _, size := range []string{"40k", "128k"} {
		grow(size)
		r := pass()
		if r.code != verdict.ExitError || !strings.Contains(r.err, unix.ENOSPC.Error()) ||
			!strings.Contains(r.err, "make room for the Parquet store") || !strings.Contains(r.err, "the same command goes on with the rest") {
			t.Fatalf("into %s: %+v", size, r)
		}

		t.Log(r.err)
	}

	grow("64m")

	if r := pass(); r.code != 0 || !strings.Contains(r.out, "stored") {
		t.Fatalf("with room: %+v", r)
	}

	if r := pass(); r.code != 0 || !strings.Contains(r.out, "nothing to store") {
		t.Fatalf("once more: %+v", r)
	}

	report := audited(t, 0, dir, "parquet:"+small)
	if report.Stored == 0 || report.InFlight != 0 {
		t.Errorf("%+v", report)
	}
}
