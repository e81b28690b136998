package ring

import (
	"encoding/binary"
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
			v = append(v, o.Start)
		}
		return v
	}
	var s [OpenLevels + 2]Slot
	var level [OpenLevels + 2]int
	for i := range s {
		s[i] = Slot{Kind: record.FP, Start: int64(i + 1), Peer: -1}
		level[i] = w.Begin(s[i].Words())
	}
	if level[3] != 3 || level[OpenLevels] != OpenLevels || len(starts()) != OpenLevels {
		t.Errorf("levels %v, %d open", level, len(starts()))
	}
	w.End(level[3], s[3].Words()) // not the last one: ranges may overlap
	again := Slot{Kind: record.Step, Start: 99, Peer: -1}
	if l := w.Begin(again.Words()); l != 3 {
		t.Errorf("Begin took level %d, want the freed one", l)
	}
	w.Free(3)
	for i := range s {
		if i != 3 {
			w.End(level[i], s[i].Words())
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
		o := Open{Slot: Slot{Seq: uint32(c.seq) &^ openMark}, Closing: true}
		if got := o.Published(c.head); got != c.want {
			t.Errorf("seq %d, head %d: published %v", c.seq, c.head, got)
		}
	}
}

// TestKeptSlots reads entries of state 3, FORMAT.md section 2.2: what is open there is
// for the seq and the light ring to say, whatever the checksum is of.
func TestKeptSlots(t *testing.T) {
	p, f := create(t, shared(t))
	w, err := p.NewWriter(1)
	if err != nil {
		t.Fatal(err)
	}
	r, err := f.OpenReader(1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	publish := func(n int, kind record.Kind, start int64) {
		for range n {
			s := Slot{Kind: kind, Start: start, Peer: -1}
			if !w.Publish(s.Words()) {
				t.Fatal("the ring is full")
			}
			if err := r.SetTail(Light, uint64(w.lanes[Light].head)); err != nil {
				t.Fatal(err)
			}
		}
	}
	publish(3, record.FP, 1)
	publish(1, record.FP, 77) // number 3
	for _, c := range []struct {
		name  string
		seq   uint32
		start int64
		kind  record.Kind
		laps  int // slots published first
		open  bool
	}{
		{"open", 0xFFFFFFFF, 5, record.FP, 0, true},
		{"free", 0xFFFFFFFE, 5, record.FP, 0, false},
		{"not published yet", 4, 5, record.FP, 0, true},
		{"published", 3, 77, record.FP, 0, false},
		{"another's start under its number", 3, 5, record.FP, 0, true},
		{"another kind under its number", 3, 77, record.Step, 0, true},
		{"overwritten by a later lap", 3, 77, record.FP, LightSlots, false},
	} {
		publish(c.laps, record.FP, 1)
		s := Slot{Kind: c.kind, Start: c.start, Dur: 4711, Peer: -1, Step: 12}
		b := w.mem[rOpen+slotSize*63:]
		s.Words().store(b, c.seq, stateKept, w.checksum)
		binary.LittleEndian.PutUint32(b, 0xBAD)
		open, err := r.OpenRanges()
		if err != nil || len(open) > 1 || len(open) == 1 != c.open {
			t.Errorf("%s: %+v, %v; want it open: %v", c.name, open, err, c.open)
			continue
		}
		if c.open && (open[0].Start != c.start || open[0].Dur != 0 || open[0].Step != 12 || open[0].Closing || open[0].Lane != Light || open[0].Level != 63) {
			t.Errorf("%s: %+v", c.name, open[0])
		}
	}
}
