package simulate

import (
	"path/filepath"
	"testing"
)

// The archives without the backward pass can be replayed, too.
func TestLoadTrace_ForwardAlone(t *testing.T) {
	dir := dataDir(t)
	if dir == "" {
		return
	}

	for _, name := range []string{"AR-1", "ST"} {
		tr, err := LoadTrace(filepath.Join(dir, name+".tar.gz"))
		if err != nil {
			t.Fatal(err)
		}

		c, err := Replayed("bursts-5", 3, tr)
		if err != nil {
			t.Fatal(err)
		}

		if _, truth := mustRows(t, c); len(truth.Culprits) != 1 {
			t.Errorf("%s: truth %+v", name, truth)
		}
	}
}
