package ring

import (
	"testing"

	"github.com/laggard-dev/laggard/schemas/record"
)

func TestOpenRanges(t *testing.T) {
	p, f := create(t, shared(t))
	w, _ := p.NewWriter(1)
	r, err := f.OpenReader(1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	starts := func() (v []int64) {
		open, err := r.OpenRanges()
		if err != nil {
			t.Fatal(err)
		}

		for _, o := range open {
			v = append(v, o.Start())
		}

		return v
	}
	var s [OpenLevels + 2]fields
	var level [OpenLevels + 2]int
	for i := range s {
		s[i] = fields{Kind: record.FP, Start: int64(i + 1), Peer: -1}
		level[i] = w.Begin(s[i].slot())
	}

	if level[3] != 3 || level[OpenLevels] != OpenLevels || len(starts()) != OpenLevels {
		t.Errorf("levels %v, %d open", level, len(starts()))
	}

	w.End(level[3], s[3].slot()) // not the last one: ranges may overlap
	again := fields{Kind: record.Step, Start: 99, Peer: -1}
	if l := w.Begin(again.slot()); l != 3 {
		t.Errorf("Begin took level %d, want the freed one", l)
	}

	w.Free(3)
	for i := range s {
		if i != 3 {
			w.End(level[i], s[i].slot())
		}
	}

	if got := starts(); got != nil {
		t.Errorf("open after all ended: %v", got)
	}

	c, _ := r.Counters()
	if c.Head[Light] != OpenLevels+2 {
		t.Errorf("%d published, want %d", c.Head[Light], OpenLevels+2)
	}
}

func TestClosingEntryKnowsWhetherItWasPublished(t *testing.T) {
	for _, c := range []struct {
		seq, head uint64
		want      bool
	}{{5, 5, false}, {5, 6, true}, {0, 0, false}, {1<<31 - 1, 1 << 31, true}, {1<<31 - 1, 1<<31 - 1, false}, {0, 1 << 31, false}} {
		o := Open{Slot: Slot{1: c.seq &^ uint64(openMark)}, Closing: true}
		if got := o.Published(c.head); got != c.want {
			t.Errorf("seq %d, head %d: published %v", c.seq, c.head, got)
		}
	}
}
