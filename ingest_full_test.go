package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/laggard-dev/laggard/writer/intake"
)

// TestIngestIntoAFullDisk: a pass whose store has no room left ends with the reason and
// says that the same command goes on, which it does when there is room.
func TestIngestIntoAFullDisk(t *testing.T) {
	dir, small := t.TempDir(), t.TempDir()
	if r := laggard(t, "simulate", "--scenario", "compute-1.5", "--seed", "3", "--ranks", "8", "--steps", "60", dir); r.code != 0 {
		t.Fatalf("simulate: %+v", r)
	}
	if err := unix.Mount("tmpfs", small, "tmpfs", 0, "size=128k"); errors.Is(err, unix.EPERM) {
		t.Skip("NOT TESTED: a full file system, because mounting one needs root")
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(small, unix.MNT_DETACH) })
	pass := func() (string, error) {
		var out bytes.Buffer
		c := &cobra.Command{}
		c.SetContext(t.Context())
		c.SetOut(&out)
		o := intake.Options{}
		o.Ship.GiveUp = 100 * time.Millisecond
		err := ingest(c, dir, "parquet:"+small, o)
		return out.String(), err
	}
	if said, err := pass(); !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), "the same command goes on with the rest") {
		t.Fatalf("into 128 KiB: %v\n%s", err, said)
	} else {
		t.Log(err)
	}
	if err := unix.Mount("", small, "", unix.MS_REMOUNT, "size=64m"); err != nil {
		t.Fatal(err)
	}
	if said, err := pass(); err != nil || !strings.Contains(said, "stored") {
		t.Fatalf("with room: %v\n%s", err, said)
	}
	if said, err := pass(); err != nil || !strings.Contains(said, "nothing to store") {
		t.Fatalf("once more: %v\n%s", err, said)
	}
	report := audited(t, 0, dir, "parquet:"+small)
	if report.Stored == 0 || report.InFlight != 0 {
		t.Errorf("%+v", report)
	}
}
