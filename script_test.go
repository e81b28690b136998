package main

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestMain lets the test binary stand in for laggard, in scripts and in the
// processes that commands start.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Getenv(asLaggard) != "" {
		os.Exit(run(os.Args[1:]))
	}
	testscript.Main(m, map[string]func(){"laggard": func() { os.Exit(run(os.Args[1:])) }})
}

// asLaggard, when set, makes the test binary behave as laggard.
const asLaggard = "LAGGARD_TEST_BINARY"

// TestScripts runs testdata/script: what a person types, and what comes back.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			env.Setenv("NO_COLOR", "1")
			return nil
		},
	})
}

// unpackTrace unpacks the archive of a recorded job (CONTRIBUTING.md) and returns its
// folder. Without the archive it says so and reports false.
func unpackTrace(t *testing.T, name string) (dir string, ok bool) {
	t.Helper()
	f, err := os.Open(filepath.Join("..", "shared", "data", name+".tar.gz"))
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
	root := t.TempDir()
	archive := tar.NewReader(z)
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return filepath.Join(root, name), true
		}
		if err != nil {
			t.Fatal(err)
		}
		unpack(t, root, h, archive)
	}
}

func unpack(t *testing.T, root string, h *tar.Header, content io.Reader) {
	t.Helper()
	path := filepath.Join(root, filepath.Clean("/"+h.Name))
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
