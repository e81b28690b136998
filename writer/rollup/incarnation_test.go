package rollup

import (
	"fmt"
	"slices"
	"testing"

	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/row"
)

func TestIncarnation_Killed(t *testing.T) {
	c := newScript(t, Options{Records: All})
	c.identity(1, "1")
	c.rec(record.Step, 1, 0, 10, nil)
	c.rec(record.FP, 2, 12, 3, nil)
	c.rec(record.Step, 2, 10, 7, func(r *record.Record) { r.Open = true })
	c.rec(record.FP, 2, 30, 3, func(r *record.Record) { r.Open = true }) // after the last sign of life of the step
	c.text(fmt.Sprintf(`{"end":{"at":%d,"how":"killed","emitted":{"Step":2,"FP":2},"dropped":{"ring-full":3}}}`, at(40)))
	r := c.take()
	want(t, "steps", steps(r), fmt.Sprintf("1.0:1 2.0:%d", row.FlagHostOnly|row.FlagOpen))
	want(t, "places", places(r), "Step@1.0 FP@2.0 Step@2.0 FP@2.0")
	if n := len(r.Ranks); n != 2 || r.Ranks[1].EndedNs != at(40) || r.Ranks[1].Version != 2 {
		t.Fatalf("%d rank rows, last %+v", n, r.Ranks[n-1])
	}

	open := 0
	for _, raw := range r.Raws.Rows {
		open += int(raw.Open)
	}

	if k := c.s.Counts(); open != 2 || k.InFlight != 0 {
		t.Fatalf("%d open, %+v", open, k)
	}

	p := c.s.LowWater()
	if p.Segment != "1" || p.Offset != c.off {
		t.Fatalf("low water %s:%d, want the end %d", p.Segment, p.Offset, c.off)
	}
}

func TestIncarnation_KilledWithoutAWindow(t *testing.T) {
	c := newScript(t, Options{Records: All})
	c.identity(1, "1")
	c.rec(record.Step, 7, 0, 10, nil)
	c.rec(record.FP, 8, 12, 3, nil)
	c.rec(record.FP, -1, 14, 3, nil)
	c.text(fmt.Sprintf(`{"end":{"at":%d,"how":"killed"}}`, at(40)))
	want(t, "places: the writer's own step is all there is", places(c.take()), "Step@7.0 FP@8.0 FP@-1.0")
}

func TestIncarnation_TaskDRestartInOneFile(t *testing.T) {
	c := newScript(t, Options{Records: All})
	c.span(1, 0, 100, "step 5")
	c.mark(16, 0, 2, 100, "step 6")
	c.span(3, 110, 20, "forward")
	first := c.take().Ranks[0].Incarnation
	c.span(1, 9000, 100, "step 6") // Ids begin anew: recover-in-place
	r := c.take()
	want(t, "steps", steps(r), fmt.Sprintf("5.0:0 6.0:%d", row.FlagOpen))
	if n := r.Steps[1].StepNs; n != 30*ms {
		t.Fatalf("open step lasted %d ns, want up to the last sign of life", n)
	}

	c.enc.Process = 5000
	c.span(1, 20_000, 100, "step 6")
	c.span(2, 20_100, 100, "step 7")
	c.span(3, 20_200, 100, "step 8")
	r = c.end()
	want(t, "steps", steps(r), fmt.Sprintf("5.0:0 6.0:%d 6.0:0 7.0:0 6.0:0 8.0:0", row.FlagOpen))
	ids := map[uint64]bool{}
	for _, s := range r.Steps {
		ids[s.Incarnation] = true
	}

	if len(ids) != 3 || !ids[first] {
		t.Fatalf("%d incarnations, want 3", len(ids))
	}

	if got := r.Ranks[0].StartedNs; got != at(0) || r.Ranks[0].Writer != "taskd" || r.Ranks[0].PID != 4000 {
		t.Fatalf("%+v", r.Ranks[0])
	}
}

func TestIncarnation_TwoPodsOverlap(t *testing.T) {
	c := newScript(t, Options{})
	c.identity(1, "10")
	c.rec(record.Step, 1, 0, 10, nil)
	c.rec(record.Step, 2, 10, 10, nil)
	c.identity(2, "11") // the backup pod starts, the old one goes on
	c.rec(record.DataLoader, 2, 15, 1, nil)
	c.identity(1, "12")
	c.rec(record.Step, 3, 20, 10, nil)
	c.identity(2, "13")
	c.rec(record.Step, 4, 100, 10, nil)
	c.rec(record.Step, 5, 110, 10, nil)
	want(t, "both live", steps(c.take()), "1.0:1 2.0:1 4.0:1")
	c.rec(record.Step, 6, 120, 10, nil)
	c.rec(record.Step, 7, 130, 10, nil)
	want(t, "the old one may wait for its turn", steps(c.take()), "1.0:1 2.0:1 4.0:1 5.0:1 6.0:1")
	c.rec(record.Step, 8, 15_030, 10, nil)
	want(t, "the old one has been silent for long", steps(c.take()), "1.0:1 2.0:1 4.0:1 5.0:1 6.0:1 7.0:1 3.0:1")
}

// TestIncarnation_TaskDInTurns: while a worker's file is written the trainer's ranges
// wait in its rings, the end of a step among them.
func TestIncarnation_TaskDInTurns(t *testing.T) {
	for _, turn := range []struct {
		name string
		ms   int64 // between the worker's steps
		late uint64
	}{
		{"of a second", 100, 0},
		{"longer than the trainer is waited for", 20_000, 1}, // its step that was open
	} {
		t.Run(turn.name, func(t *testing.T) {
			c := newScript(t, Options{Records: All})
			c.span(1, 0, 10, "step 1")
			c.span(2, 10, 10, "step 2")
			c.span(4, 22, 3, "forward") // of step 3, whose Id is 3
			trainer, worker := c.enc.Process, c.enc.Process+1
			c.enc.Process = worker
			for i := range int64(5) {
				c.span(uint64(i+1), 25+i*turn.ms, 10, fmt.Sprint("step ", i))
			}

			c.enc.Process = trainer
			c.span(3, 20, 10, "step 3")
			c.span(5, 30, 10, "step 4")
			c.span(6, 40, 10, "step 5")
			r := c.end()
			k := c.s.Counts()
			if total(k.Emitted) != 11 || k.Emitted["Step"] != 10-turn.late || k.LostFor(LateRange) != turn.late || k.Unmatched != 3*turn.late {
				t.Errorf("%s: %+v", steps(r), k)
			}

			ids := map[uint64]bool{}
			for _, s := range r.Steps {
				ids[s.Incarnation] = true
			}

			if len(ids) != 2 {
				t.Errorf("%d processes, want 2", len(ids))
			}
		})
	}
}

func TestLate_IsCountedFlaggedAndStored(t *testing.T) {
	c := newScript(t, Options{Records: All})
	c.identity(1, "1")
	for i := range int64(3) {
		c.rec(record.Step, i, i*10, 10, nil)
	}

	c.rec(record.FP, 0, 3, 5, nil)
	c.rec(record.Step, 3, 30, 10, nil)
	r := c.take()
	want(t, "steps", steps(r), fmt.Sprintf("0.0:1 1.0:1 2.0:%d", row.FlagHostOnly|row.FlagLate))
	want(t, "places", places(r), "Step@0.0 Step@1.0 FP@0.0 Step@2.0")
	if k := c.s.Counts(); k.Late != 1 || r.Steps[0].FPNs != -1 {
		t.Fatalf("late=%d", k.Late)
	}
}

func TestRing_ALaggingRingIsWaitedFor(t *testing.T) {
	c := newScript(t, Options{})
	c.identity(1, "1")
	onRing := func(n uint32, seq uint64) func(*record.Record) {
		return func(r *record.Record) { r.Ring, r.Seq, r.Exposed = n, seq, 2*ms }
	}
	c.rec(record.Communication, 0, 5, 2, onRing(2, 0))
	for i := range int64(5) { // the light ring of five steps, then the bulk ring of them
		c.rec(record.Step, i, i*10, 10, onRing(1, uint64(i)))
	}

	want(t, "the bulk ring is behind", steps(c.take()), "")
	for i := range int64(4) {
		c.rec(record.Communication, i+1, (i+1)*10+5, 2, onRing(2, uint64(i+1)))
	}

	c.rec(record.Step, 5, 50, 10, onRing(1, 5))
	r := c.take()
	want(t, "it has come", steps(r), "0.0:1 1.0:1 2.0:1 3.0:1")
	for _, s := range r.Steps {
		if s.CommNs != 2*ms || s.ExposedNs != 2*ms || s.SelfNs != 8*ms {
			t.Fatalf("%+v", s)
		}
	}

	c.rec(record.Step, 6, 60, 3000, onRing(1, 6))
	want(t, "a ring that is silent for long is not waited for", steps(c.take()), "0.0:1 1.0:1 2.0:1 3.0:1 4.0:1 5.0:1")
}

func TestRing_GapsAndDuplicates(t *testing.T) {
	c := newScript(t, Options{Records: All})
	c.identity(1, "1")
	for i, seq := range []uint64{7, 8, 8, 11, 10, 11, 3, 3} { // begins at 7: what was before may be aged
		c.rec(record.FP, 0, int64(i), 1, func(r *record.Record) { r.Ring, r.Seq = 1, seq })
	}

	if k := c.s.Counts(); k.Duplicate != 3 || k.Emitted["FP"] != 5 {
		t.Fatalf("duplicates=%d emitted=%v, want 3, 5", k.Duplicate, k.Emitted)
	}
}

func TestRank_VersionsCountIdentityLines(t *testing.T) {
	c := newScript(t, Options{})
	c.identity(1, "1")
	c.identity(1, "2")
	c.identity(1, "3", record.Group{Dim: "dp", Name: "a:b", Index: 1, Size: 2, Ranks: []int{3, 0}})
	c.rec(record.Step, 0, 0, 10, nil)
	c.text(fmt.Sprintf(`{"end":{"at":%d,"how":"closed"}}`, at(99)))
	r := c.take()
	if len(r.Ranks) != 3 {
		t.Fatalf("%d rank rows, want one for each thing that was learnt", len(r.Ranks))
	}

	var versions []uint32
	for _, x := range r.Ranks {
		versions = append(versions, x.Version)
	}

	last := r.Ranks[2]
	if !slices.Equal(versions, []uint32{1, 3, 4}) || last.Groups[0] != "dp:a:b:1:2" || !slices.Equal(last.GroupRanks[0], []uint32{3, 0}) || last.Node != "n0" {
		t.Fatalf("versions %v, last %+v", versions, last)
	}
}
