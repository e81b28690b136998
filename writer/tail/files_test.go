package tail

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestFewFiles reads more segments (LAGGARD_TEST_FILES, 2,000 by default) than may
// be open, in turns.
func TestFewFiles(t *testing.T) {
	root := t.TempDir()
	files := 2000
	if n, err := strconv.Atoi(os.Getenv("LAGGARD_TEST_FILES")); err == nil {
		files = n
	}

	const ranks = 100
	segments := files / ranks
	t.Logf("%d segments of %d ranks, 64 open files", ranks*segments, ranks)
	for r := range ranks {
		dir := filepath.Join(root, "job", fmt.Sprint(r))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}

		for s := range segments {
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(100+s)), fmt.Appendf(nil, "%d-%d-a\n%d-%d-b\n", r, s, r, s), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}

	tree := New(root, Options{Files: 64})
	d := &disk{t: t, tree: tree}
	streams, err := tree.Scan()
	if err != nil || len(streams) != ranks {
		t.Fatalf("%d streams: %v", len(streams), err)
	}

	for _, s := range streams {
		if err := s.Refresh(); err != nil {
			t.Fatal(err)
		}
	}

	for busy := true; busy; {
		busy = false
		for _, s := range streams {
			n, _, err := s.Read(100, d)
			if err != nil {
				t.Fatal(err)
			}

			busy = busy || n > 0
			if len(tree.open) > 64 {
				t.Fatalf("%d files open", len(tree.open))
			}
		}
	}

	seen := map[string]bool{}
	for _, line := range d.got {
		_, line, _ = strings.Cut(line, " ")
		seen[line] = true
	}

	if len(d.got) != 2*ranks*segments {
		t.Fatalf("%d lines, want %d", len(d.got), 2*ranks*segments)
	}

	tree.Close()
}
