package report

import (
	"os"
	"path/filepath"
	"testing"
)

// TestHTML_WritePages writes the pages of all scenes into $LAGGARD_PAGES, to look at.
func TestHTML_WritePages(t *testing.T) {
	dir := os.Getenv("LAGGARD_PAGES")
	if dir == "" {
		dir = t.TempDir()
	}
	for name, s := range scenes {
		f, err := os.Create(filepath.Join(dir, name+".html"))
		if err != nil {
			t.Fatal(err)
		}
		if err := HTML(f, s.verdict(), s.picture()); err != nil {
			t.Fatalf("HTML(%s): %v", name, err)
		}
		info, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		if info.Size() > 5_000_000 {
			t.Errorf("page of %s has %d bytes, want below 5 MB", name, info.Size())
		}
		t.Logf("%s: %d bytes", name, info.Size())
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
