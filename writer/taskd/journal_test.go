package taskd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// torn leaves a write of n records half done and returns the segment and its size
// before.
func torn(t *testing.T, root, state, boot string) (path string, before int64) {
	t.Helper()
	m := meta()
	m.BootID = boot
	w, err := Open(filepath.Join(root, "j1", "3"), m, Options{State: state})
	if err != nil {
		t.Fatal(err)
	}

	for i := range 20 {
		r := sample(i)
		if err := w.AppendRecord(&r); err != nil {
			t.Fatal(err)
		}

		if i == 9 {
			if err := w.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}

	after := w.state.after(w.pending, int64(len(w.buf)))
	if err := writeJournal(w.journal, w.entry(after)); err != nil {
		t.Fatal(err)
	}

	if _, err := w.file.Write(w.buf[:len(w.buf)/2]); err != nil {
		t.Fatal(err)
	}

	w.file.Close()
	return filepath.Join(w.dir, w.state.Name), w.state.Size
}

func size(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}

	return info.Size()
}

// TestSettle: what a kill left of a write is gone before anybody reads the directory,
// and the next writer writes it whole.
func TestSettle(t *testing.T) {
	root, state := t.TempDir(), t.TempDir()
	path, before := torn(t, root, state, "boot-1")
	half := size(t, path)
	if err := Settle(root, state, "boot-2"); err != nil || size(t, path) != half || half <= before {
		t.Fatalf("after another boot: %v, %d bytes, want %d", err, size(t, path), half)
	}

	for range 2 {
		if err := Settle(root, state, "boot-1"); err != nil || size(t, path) != before {
			t.Fatalf("%v, %d bytes, want %d", err, size(t, path), before)
		}
	}

	w, err := Open(filepath.Dir(path), meta(), Options{State: state})
	if err != nil {
		t.Fatal(err)
	}

	if next := w.Next(); next[1] != 10 || next[2] != 4 {
		t.Fatalf("the rings go on at %v, want 10 and 4", next)
	}

	for i := 10; i < 20; i++ {
		r := sample(i)
		if err := w.AppendRecord(&r); err != nil {
			t.Fatal(err)
		}
	}

	if err := w.Close(); err != nil {
		t.Fatal(err)
	}

	if n := len(stored(t, filepath.Dir(path))); n != 20 {
		t.Errorf("%d records, want 20", n)
	}
}

// TestSettle_HostileJournals: a journal that names anything but a rank's segment cuts
// nothing.
func TestSettle_HostileJournals(t *testing.T) {
	top := t.TempDir()
	root, state := filepath.Join(top, "profiling"), t.TempDir()
	rank := filepath.Join(root, "j1", "3")
	outside := filepath.Join(top, "1753000000")
	for _, dir := range []string{rank, filepath.Join(top, "0")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}

	for _, path := range []string{outside, filepath.Join(rank, "notes"), filepath.Join(top, "0", "1753000000")} {
		if err := os.WriteFile(path, []byte("0123456789"), 0o644); err != nil {
			t.Fatal(err)
		}
	}

	if err := os.Symlink(outside, filepath.Join(rank, "1753000000")); err != nil {
		t.Fatal(err)
	}

	for i, e := range []string{
		`{"job":"j1","rank":3,"boot":"b","before":{"name":"1753000000","size":1},"after":{"name":"1753000000","size":99}}`, // a link
		`{"job":"j1","rank":3,"boot":"b","before":{"name":"notes","size":1},"after":{"name":"notes","size":99}}`,
		`{"job":"j1","rank":3,"boot":"b","before":{"name":"../../../1753000000","size":1},"after":{"name":"../../../1753000000","size":99}}`,
		`{"job":"..","rank":0,"boot":"b","before":{"name":"1753000000","size":1},"after":{"name":"1753000000","size":99}}`,
		`{"job":"j1/..","rank":3,"boot":"b"}`,
		`{"job":"j1","rank":3,"boot":"b","before":{"name":"1753000001","size":-5},"after":{"name":"1753000001","size":99}}`,
		`{"job":`,
	} {
		path := filepath.Join(state, "taskd-"+strings.Repeat("0", i+1)+".json")
		if err := os.WriteFile(path, []byte(e), 0o644); err != nil {
			t.Fatal(err)
		}

		if err := Settle(root, state, "b"); err == nil {
			t.Errorf("%s: no error", e)
		}

		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}

	for _, path := range []string{outside, filepath.Join(rank, "notes"), filepath.Join(top, "0", "1753000000")} {
		if n := size(t, path); n != 10 {
			t.Errorf("%s has %d bytes, want 10", path, n)
		}
	}
}
