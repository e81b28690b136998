package arrival

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

const milliseconds = 1_000_000

// fourSteps is a frame of four ranks and steps 10 to 13: rank 2, on a node of its own, works for so
// many ms more than the 100 of the others, who wait for it.
func fourSteps(more ...float32) *frame.Frame {
	l := &frame.Layout{Stages: 1, Nodes: []string{"a", "b", "c", "d"}, Roles: []frame.Role{{}}}
	f := &frame.Frame{Ranks: []int{0, 1, 2, 3}}
	for r := range 4 {
		l.Ranks, l.Present = append(l.Ranks, r), append(l.Present, true)
		l.Role, l.Node, l.Incarnation = append(l.Role, 0), append(l.Node, int32(r)), append(l.Incarnation, uint64(r+1))
	}

	for i, m := range more {
		c := &frame.Column{Step: int64(10 + i), Layout: l}
		for _, metric := range []frame.Metric{frame.Step, frame.Self, frame.Exposed} {
			c.V[metric] = make([]float32, 4)
			for r := range 4 {
				x := map[frame.Metric]float32{frame.Step: 110 + m, frame.Self: 100, frame.Exposed: 10 + m + float32(r)}[metric]
				if r == 2 {
					x = map[frame.Metric]float32{frame.Step: 110 + m, frame.Self: 100 + m, frame.Exposed: 10}[metric]
				}

				c.V[metric][r] = x / 1000
			}
		}

		f.Add(c, []frame.Metric{frame.Step, frame.Self, frame.Exposed})
	}

	return f
}

func slow(rank int) *verdict.Verdict {
	v := verdict.New("j")
	v.Nodes = []verdict.Node{{Node: fmt.Sprint(rank), State: verdict.Degraded, Cause: verdict.Compute, Ranks: []int{rank}, SinceStep: 11, JobImpact: 0.2}}
	return v
}

func TestChoose(t *testing.T) {
	f := fourSteps(90, 20, 40, 30)
	column := Costliest(f, slow(2))
	if column != 2 { // step 10 was before it began
		t.Errorf("column %d, want that of step 12", column)
	}

	want := []frame.Line{{Rank: 2, Part: frame.Culprit}, {Rank: 3, Part: frame.Victim}, {Rank: 1, Part: frame.Victim}, {Rank: 0, Part: frame.Peer}}
	if got := Choose(f, slow(2), column); !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}

	none := verdict.New("j")
	if column = Costliest(f, none); column != 3 {
		t.Errorf("without a culprit: column %d, want the last", column)
	}

	want = []frame.Line{{Rank: 2, Part: frame.LeastWaiting}, {Rank: 3, Part: frame.Victim}, {Rank: 1, Part: frame.Victim}, {Rank: 0}}
	if got := Choose(f, none, column); !reflect.DeepEqual(got, want) {
		t.Errorf("without a culprit: %v, want %v", got, want)
	}

	link := verdict.New("j")
	link.Links = []verdict.Link{{Ranks: []int{0, 3}, SinceStep: 11}}
	if got := Choose(f, link, Costliest(f, link)); got[0].Part != frame.Culprit || got[0].Rank != 3 {
		t.Errorf("a link: %v", got)
	}

	if _, err := ColumnOf(f, 9); err == nil || !strings.Contains(err.Error(), "from 10 to 13") {
		t.Errorf("%v", err)
	}

	if c, err := ColumnOf(f, 11); c != 1 || err != nil {
		t.Errorf("step 11: column %d, %v", c, err)
	}
}

// ranges are those of a step that begins at 0 on everybody's clock: 100 ms of work (rank 2: 140), an
// allreduce until 150, a broadcast; by clocks that are off by so much.
func ranges(rank int, step int64, off int64) []row.Record {
	at := step*1000*milliseconds + off
	work := int64(100 * milliseconds)
	if rank == 2 {
		work = 140 * milliseconds
	}

	who := row.Record{Rank: uint32(rank), Incarnation: uint64(rank + 1), Step: step, Node: string(rune('a' + rank)), ExposedNs: -1}
	s, fp, all, bc := who, who, who, who
	s.Kind, s.StartNs, s.DurNs = "Step", at, 160*milliseconds
	fp.Kind, fp.StartNs, fp.DurNs = "FP", at, work/2
	all.Kind, all.Op, all.StartNs, all.DurNs = "Communication", "allreduce", at+work, 150*milliseconds-work
	all.ExposedNs = all.DurNs - 10*milliseconds
	bc.Kind, bc.Op, bc.StartNs, bc.DurNs = "Communication", "broadcast", at+150*milliseconds, 5*milliseconds
	return []row.Record{s, fp, all, bc}
}

// A step stands on one clock, whatever those of the hosts are; it says who waited for whom.
func TestView(t *testing.T) {
	f := fourSteps(40, 40, 40, 40)
	shown := []frame.Line{{Rank: 2, Part: frame.Culprit}, {Rank: 0, Part: frame.Victim}}
	for _, off := range [][]int64{{0, 0, 0, 0}, {5e9, 0, -3e9, 77}} {
		a := NewAligner(f, 1, shown)
		for rank := range 4 {
			for step := int64(10); step < 14; step++ {
				a.Take(nil, ranges(rank, step, off[rank]))
			}

			dead := ranges(rank, 11, 0) // of a process before this one
			for i := range dead {
				dead[i].Incarnation += 100
			}

			a.Take(nil, dead)
		}

		v, err := a.Align()
		if err != nil || !v.Aligned || v.Unsure > 1e-6 || v.Step != 11 || v.To-v.From != 160*milliseconds {
			t.Fatalf("clocks %v: %+v, %v", off, v, err)
		}

		culprit, victim := v.Lines[0], v.Lines[1]
		if len(culprit.Ranges) != 4 || culprit.Last != 1 || culprit.Collectives != 1 || culprit.For != -1 || culprit.Waited != 0 || culprit.Node != "c" {
			t.Errorf("clocks %v: the culprit is %+v", off, culprit)
		}

		if victim.For != 2 || victim.Waited != 0.04 || victim.Blocked != 0.045 || victim.Length != 0.16 || victim.Last != 0 || victim.Part != frame.Victim {
			t.Errorf("clocks %v: the victim is %+v", off, victim)
		}

		if a, b := culprit.Ranges[0].StartNs, victim.Ranges[0].StartNs; a != b {
			t.Errorf("clocks %v: the step begins %d ns apart", off, a-b)
		}

		for _, r := range victim.Ranges {
			if (r.Op == "allreduce") != (r.Waits == 40*milliseconds && r.For == 2) {
				t.Errorf("clocks %v: %+v", off, r)
			}
		}
	}
}

// What the source lacks is said.
func TestViewOfLess(t *testing.T) {
	f := fourSteps(40, 40)
	shown := []frame.Line{{Rank: 2, Part: frame.Culprit}, {Rank: 0, Part: frame.Victim}}
	if _, err := NewAligner(f, 1, shown).Align(); !errors.Is(err, errNoRanges) {
		t.Errorf("nothing: %v", err)
	}

	a := NewAligner(f, 1, shown)
	a.Take(nil, ranges(1, 11, 0))
	if _, err := a.Align(); err == nil || !strings.Contains(err.Error(), "no range of step 11") {
		t.Errorf("another rank: %v", err)
	}

	a = NewAligner(f, 1, shown)
	a.Take(nil, ranges(0, 11, 0)[:2])
	a.Take(nil, ranges(2, 11, 9)[:2])
	if v, err := a.Align(); err != nil || v.Aligned || v.Lines[0].Communications != 0 || v.To-v.From != 160*milliseconds+9 {
		t.Errorf("no communication: %+v, %v", v, err)
	}

	a = NewAligner(f, 1, shown)
	sums := ranges(0, 11, 0)[2:3]
	sums[0].Op = "all"
	a.Take(nil, sums)
	if _, err := a.Align(); !errors.Is(err, errSums) {
		t.Errorf("sums: %v", err)
	}
}
