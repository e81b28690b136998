package native_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/laggard-dev/laggard/collector/internal/ringtest"
	"github.com/laggard-dev/laggard/schemas/record"
)

// TestTruncatedUnderneath, R8: cuts every file of a living trainer to nothing.
func TestTruncatedUnderneath(t *testing.T) {
	for _, what := range []string{"ring-1", "process", "both", "removed"} {
		t.Run(what, func(t *testing.T) {
			run := ringtest.Shared(t)
			cmd := command(t, ringtest.Driver(t), run, "truncate")
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}

			pipe, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}

			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}

			out := bufio.NewReader(pipe)
			if _, err := out.ReadString('\n'); err != nil {
				t.Fatal(err)
			}

			c := ringtest.NewDrain(t, run)
			if _, err := c.Pass(); err != nil || len(c.Only(t).Records) != 100 {
				t.Fatalf("%d records: %v", len(c.Only(t).Records), err)
			}

			dirs, _ := filepath.Glob(filepath.Join(run, "*"))
			for _, n := range []string{"ring-1", "process"} {
				path := filepath.Join(dirs[0], n)
				switch what {
				case n, "both":
					err = os.Truncate(path, 0)
				case "removed":
					err = os.RemoveAll(dirs[0])
				}

				if err != nil {
					t.Fatal(err)
				}
			}

			c.Pass() // whatever it says, it lives
			io.WriteString(in, "go on\n")
			said, _ := out.ReadString('\n')
			if err := cmd.Wait(); err != nil {
				t.Fatalf("the trainer did not live: %v", err)
			}

			if what != "removed" && !strings.HasPrefix(said, "a ring was truncated; lost ") {
				t.Errorf("the recorder said %q", said)
			}

			var last error
			for range 20 {
				_, last = c.Pass()
			}

			if !c.Idle() {
				t.Errorf("the folder was not given up: %v, %+v", last, c.Stats())
			}

			if w := c.Only(t); len(w.Records) < 100 {
				t.Errorf("%d records", len(w.Records))
			}
		})
	}
}

// TestNoRoomIsSaidOnceAndCounted, R8: no room for the files from the start.
func TestNoRoomIsSaidOnceAndCounted(t *testing.T) {
	driver := ringtest.Driver(t)
	t.Run("file size limit", func(t *testing.T) {
		run := ringtest.Shared(t)
		cmd := command(t, driver, run, "limit", "100000")
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}

		if !strings.Contains(string(out), "File too large; lost 1000") || strings.Count(stderr.String(), "\n") != 1 {
			t.Errorf("said %q and %q", out, stderr.String())
		}

		if left, _ := os.ReadDir(run); len(left) != 0 {
			t.Errorf("left %v", left)
		}
	})
	t.Run("room for the folder only", func(t *testing.T) {
		run := ringtest.Shared(t)
		out := runs(t, command(t, driver, run, "limit", "300000"))
		if !strings.Contains(out, "no error; lost 1000") {
			t.Errorf("said %q", out)
		}

		c := ringtest.NewDrain(t, run)
		c.Finish(t)
		if w := c.Only(t); w.Lost() != 1000 || w.Losses[0].Reason != record.NoRing || w.End.Emitted["FP"] != 1000 || w.End.Dropped["no-ring"] != 1000 {
			t.Errorf("losses %v, end %+v", w.Losses, w.End)
		}
	})
	t.Run("run directory is a file", func(t *testing.T) {
		run := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(run, nil, 0o600); err != nil {
			t.Fatal(err)
		}

		if out := runs(t, command(t, driver, run, "limit", "100000000")); !strings.Contains(out, "Not a directory; lost 1000") {
			t.Errorf("said %q", out)
		}
	})
	t.Run("full tmpfs", func(t *testing.T) {
		dir := t.TempDir()
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); errors.Is(err, unix.EPERM) {
			t.Skip("NOT TESTED: a full tmpfs, because mounting one needs root")
		} else if err != nil {
			t.Fatal(err)
		}

		defer unix.Unmount(dir, unix.MNT_DETACH)
		if out := runs(t, command(t, driver, filepath.Join(dir, "run"), "limit", "100000000")); !strings.Contains(out, "No space left on device; lost 1000") {
			t.Errorf("said %q", out)
		}
	})
}

// TestFilledUnderneath, R8: a tmpfs that fills up under a trainer: its rings are there
// whole, so it records on.
func TestFilledUnderneath(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=4m"); errors.Is(err, unix.EPERM) {
		t.Skip("NOT TESTED: a full tmpfs, because mounting one needs root")
	} else if err != nil {
		t.Fatal(err)
	}

	defer unix.Unmount(dir, unix.MNT_DETACH)
	run := filepath.Join(dir, "run")
	cmd := command(t, ringtest.Driver(t), run, "truncate")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}

	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}

	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	out := bufio.NewReader(pipe)
	if _, err := out.ReadString('\n'); err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(filepath.Join(dir, "filler"), make([]byte, 8<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("the tmpfs was not filled: %v", err)
	}

	io.WriteString(in, "go on\n")
	if said, _ := out.ReadString('\n'); said != "no error; lost 0\n" {
		t.Errorf("the recorder said %q", said)
	}

	if err := cmd.Wait(); err != nil {
		t.Fatalf("the trainer did not live: %v", err)
	}

	if err := os.Remove(filepath.Join(dir, "filler")); err != nil {
		t.Fatal(err)
	}

	c := ringtest.NewDrain(t, run)
	c.Finish(t)
	w := c.Only(t)
	if n := uint64(len(w.Records)); n != 1024+32768 || n+w.Lost() != 100100 {
		t.Errorf("%d records stored, %d counted", n, w.Lost())
	}
}
