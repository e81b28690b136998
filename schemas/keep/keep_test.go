package keep

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "state")
	for _, want := range []string{"one", "a longer one", ""} {
		if err := Write(path, 0o640, []byte(want)); err != nil {
			t.Fatal(err)
		}

		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Fatalf("read %q, %v, want %q", got, err, want)
		}
	}

	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o640 {
		t.Errorf("mode %v, %v, want 0640", st.Mode(), err)
	}

	if err := Write(filepath.Join(dir, "missing", "state"), 0o600, nil); err == nil {
		t.Error("a file in a folder that isn't there was written")
	}

	if err := os.Mkdir(filepath.Join(dir, "folder"), 0o755); err != nil {
		t.Fatal(err)
	}

	if err := Write(filepath.Join(dir, "folder"), 0o600, []byte("x")); err == nil {
		t.Error("a folder was replaced by a file")
	}

	holds(t, dir, "folder", "state")
}

// TestTry: a directory that takes bytes is left as it was.
func TestTry(t *testing.T) {
	dir := t.TempDir()
	if err := Try(dir); err != nil {
		t.Error(err)
	}

	holds(t, dir)
	if err := Try(filepath.Join(dir, "missing")); err == nil {
		t.Error("a folder that isn't there takes bytes")
	}
}

// TestRead_NotKept: nothing but a regular file of the size that was expected is read.
func TestRead_NotKept(t *testing.T) {
	dir := t.TempDir()
	large := filepath.Join(dir, "large")
	if err := Write(large, 0o600, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}

	if got, err := Read(large, 5); err != nil || len(got) != 5 {
		t.Errorf("Read = %d bytes, %v", len(got), err)
	}

	if _, err := Read(large, 4); !errors.Is(err, ErrNotKept) {
		t.Errorf("Read of 5 bytes where 4 are the most = %v", err)
	}

	link, pipe := filepath.Join(dir, "link"), filepath.Join(dir, "pipe")
	if err := errors.Join(os.Symlink(large, link), unix.Mkfifo(pipe, 0o600)); err != nil {
		t.Fatal(err)
	}

	if _, err := Read(link, 5); !errors.Is(err, unix.ELOOP) {
		t.Errorf("Read of a link = %v", err)
	}

	if _, err := Read(pipe, 5); !errors.Is(err, ErrNotKept) {
		t.Errorf("Read of a pipe = %v", err)
	}

	if _, err := Read(filepath.Join(dir, "missing"), 5); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Read of nothing = %v", err)
	}
}

// TestReplace_FailedFill: the old file stays, and nothing of the new one.
func TestReplace_FailedFill(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "state")
	if err := Write(path, 0o600, []byte("old")); err != nil {
		t.Fatal(err)
	}

	cause := errors.New("the source broke off")
	err := Replace(path, 0o600, func(w io.Writer) error {
		_, err := w.Write([]byte("ne"))

		return errors.Join(err, cause)
	})
	if !errors.Is(err, cause) {
		t.Errorf("Replace = %v, want %v", err, cause)
	}

	if got, err := os.ReadFile(path); err != nil || string(got) != "old" {
		t.Errorf("read %q, %v, want the old file", got, err)
	}

	holds(t, dir, "state")
}

// TestSweep: what a killed writer left goes; what one is writing, and what others own, stays.
func TestSweep(t *testing.T) {
	dir := t.TempDir()
	for name, data := range map[string]string{Half + "left": "half", "state": "whole", ".other-1": "another's"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	if err := os.Symlink(filepath.Join(dir, "state"), filepath.Join(dir, Half+"link")); err != nil {
		t.Fatal(err)
	}

	path := filepath.Join(dir, "written")
	err := Replace(path, 0o600, func(w io.Writer) error {
		_, err := w.Write([]byte("new"))

		return errors.Join(err, Sweep(dir))
	})
	if err != nil {
		t.Fatalf("a file was swept while it was written: %v", err)
	}

	holds(t, dir, Half+"link", ".other-1", "state", "written")
	if err := Sweep(filepath.Join(dir, "missing")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Sweep of no folder = %v", err)
	}
}

func holds(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != len(want) {
		t.Fatalf("%s has %v, %v, want %v", dir, entries, err, want)
	}

	for i, e := range entries {
		if e.Name() != want[i] {
			t.Fatalf("%s has %v, want %v", dir, entries, want)
		}
	}
}
