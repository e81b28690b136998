package e2e

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// unpackTrace unpacks the archive of a recorded job (CONTRIBUTING.md) and returns its
// folder. Without the archive it says so and reports false.
func unpackTrace(t *testing.T, name string) (dir string, ok bool) {
	t.Helper()
	f, err := os.Open(filepath.Join(root, "..", "shared", "data", name+".tar.gz"))
	if errors.Is(err, os.ErrNotExist) {
		t.Logf("RAN WITHOUT THE REAL TRACE %s: the recorded jobs (CONTRIBUTING.md) are not there", name)
		return "", false
	}

	if err != nil {
		t.Fatal(err)
	}

	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}

	to := t.TempDir()
	archive := tar.NewReader(z)
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return filepath.Join(to, name), true
		}

		if err != nil {
			t.Fatal(err)
		}

		unpack(t, to, h, archive)
	}
}

func unpack(t *testing.T, to string, h *tar.Header, content io.Reader) {
	t.Helper()
	path := filepath.Join(to, filepath.Clean("/"+h.Name))
	if strings.HasSuffix(h.Name, "/") || h.Typeflag == tar.TypeDir {
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}

		return
	}

	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}

	b, err := io.ReadAll(content)
	if err == nil {
		err = os.WriteFile(path, b, 0o644)
	}

	if err != nil {
		t.Fatal(err)
	}
}
