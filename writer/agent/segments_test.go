package agent

import (
	"path/filepath"
	"testing"

	"github.com/laggard-dev/laggard/collector/drain"
	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/writer/segment"
)

// TestRotating_TellsItsSegment: what the drain is given says which segment it is at and
// how long that is: by these the next agent knows, after a kill, whether a loss line was
// written, and writes none twice.
func TestRotating_TellsItsSegment(t *testing.T) {
	s, err := segment.Open(filepath.Join(t.TempDir(), "j", "0"), record.Meta{Format: record.Format, Job: "j", Incarnation: 1}, segment.Options{})
	if err != nil {
		t.Fatal(err)
	}

	var w drain.Writer = &rotating{Writer: s, rotated: func() {}}
	r := record.New(record.FP)
	r.Start, r.Dur, r.Ring = 1753000000e9, 5, 1
	if err := w.AppendRecord(&r); err != nil {
		t.Fatal(err)
	}

	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}

	if w.Name() == "" || w.Name() != s.Name() || w.Bytes() == 0 || w.Bytes() != s.Bytes() {
		t.Errorf("it is at byte %d of %q, the segment at %d of %q", w.Bytes(), w.Name(), s.Bytes(), s.Name())
	}

	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}
