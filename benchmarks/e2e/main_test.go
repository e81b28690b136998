// Package e2e runs laggard as whole processes: agents, trainers, watchers and stores that
// are started, stopped, killed and cut off as on a cluster.
//
// Invariant: what is under test is the program, built once a run; with the race detector
// when the tests have it. Caveat: these tests load the machine and some of them meet
// deadlines of the product, so `make test` runs no other package beside them.
package e2e

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
)

const (
	root    = "../.."  // the repository
	version = "v0-e2e" // of the program under test
)

// The programs, in a folder where every user may run them: laggard, and the test binary,
// which env makes a trainer.
var program, trainer string

func TestMain(m *testing.M) {
	flag.Parse()
	if flag.Lookup("test.list").Value.String() != "" {
		os.Exit(m.Run())
	}

	code, err := withPrograms(m.Run)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}

	os.Exit(code)
}

// withPrograms has the programs ready for as long as run takes.
func withPrograms(run func() int) (code int, err error) {
	if err := dependOnSource(); err != nil {
		return 0, err
	}

	dir, err := os.MkdirTemp("", "laggard-e2e-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		return 0, err
	}

	program, trainer = filepath.Join(dir, "laggard"), filepath.Join(dir, "trainer")
	self, err := os.ReadFile(os.Args[0])
	if err == nil {
		err = os.WriteFile(trainer, self, 0o755)
	}

	if err != nil {
		return 0, err
	}

	build := exec.Command("go", "build", "-ldflags", "-X main.version="+version, "-o", program)
	if raced() {
		build.Args = append(build.Args, "-race")
	}

	build.Dir, build.Stderr = root, os.Stderr
	if err := build.Run(); err != nil {
		return 0, fmt.Errorf("build laggard: %w", err)
	}

	return run(), nil
}

// raced reports whether the tests were built with the race detector.
func raced() bool {
	info, _ := debug.ReadBuildInfo()
	for _, s := range info.Settings {
		if s.Key == "-race" {
			return s.Value == "true"
		}
	}

	return false
}

// dependOnSource opens the folders of the repository: the go command remembers which files
// a test looked at, and takes no old result once one of them has changed.
func dependOnSource() error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && path != root && strings.HasPrefix(d.Name(), ".") {
			return fs.SkipDir
		}

		return err
	})
}
