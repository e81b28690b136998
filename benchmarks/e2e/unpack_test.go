package e2e

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// unpackTrace unpacks the archive of a recorded job (CONTRIBUTING.md) and returns its
// folder. Without the archive it says so and reports false.
func unpackTrace(t *testing.T, name string) (dir string, ok bool) {
	t.Helper()
	archive := filepath.Join(root, "..", "shared", "data", name+".tar.gz")
	if _, err := os.Stat(archive); errors.Is(err, os.ErrNotExist) {
		t.Logf("RAN WITHOUT THE REAL TRACE %s: the recorded jobs (CONTRIBUTING.md) are not there", name)
		return "", false
	}

	to := t.TempDir()
	if said, err := exec.Command("tar", "-xzmf", archive, "-C", to, "--no-same-owner").CombinedOutput(); err != nil {
		t.Fatalf("unpack %s: %v\n%s", archive, err, said)
	}

	return filepath.Join(to, name), true
}
