package native_test

import (
	"context"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/laggard-dev/laggard/collector/internal/ringtest"
)

// TestSanitized, R28: runs the driver's commands under the address and undefined
// behaviour sanitizers, and those with threads under the thread sanitizer.
func TestSanitized(t *testing.T) {
	lib := ringtest.Library(t)
	src, err := filepath.Glob(filepath.Join(lib, "*.c"))
	if err != nil {
		t.Fatal(err)
	}

	// No {"workers"} here: gcc 12's address sanitizer does not take its allocator's locks over fork, so a child of a
	// process with threads may wait for ever inside it.
	for flags, all := range map[string][][]string{
		"-fsanitize=address,undefined": {{"all"}, {"fork", "4"}, {"churn", "5", "16"}, {"handover"}, {"burst", "100000", "0"}, {"limit", "100000"}, {"clock", "50"}, {"signal", "100"}},
		"-fsanitize=thread":            {{"all"}, {"churn", "5", "16"}, {"handover"}},
	} {
		out := filepath.Join(t.TempDir(), "driver")
		args := append([]string{"-std=gnu11", "-O1", "-g", "-pthread", flags, "-fno-sanitize-recover=all", "-I" + lib, "-o", out, "testdata/driver.c", "testdata/life.c"}, src...)
		if b, err := exec.CommandContext(context.Background(), "cc", args...).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, b)
		}

		for _, args := range all {
			t.Run(flags[len("-fsanitize="):]+"/"+args[0], func(t *testing.T) {
				runs(t, command(t, out, ringtest.Shared(t), args...))
			})
		}
	}
}
