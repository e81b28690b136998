package rollup

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/row"
)

// beside is what stands in a rank's parallel_group.json, and when it was asked for.
type beside struct {
	groups []record.Group
	asked  int
}

func (b *beside) tell() []record.Group {
	b.asked++
	return b.groups
}

// inTP is the group of a communicator.
func inTP(comm string) []record.Group {
	return []record.Group{{Dim: "tp", Name: comm, Index: 0, Size: 2, Ranks: []int{0, 1}}}
}

// trains writes steps from..to of a process that calls a communicator in each.
func (c *script) trains(comm string, from, to int64) {
	for n := from; n < to; n++ {
		at := n * 1000
		c.span(uint64(2*n+1), at, 1000, fmt.Sprintf("step %d", n))
		c.span(uint64(2*n+2), at+10, 100, fmt.Sprintf(`{"count": "4","dataType": "fp32","groupName": "%s","opName": "HcclAllreduce"}`, comm))
	}
}

// inDim returns "step:dimension" of all step rows that have Communication.
func inDim(r *row.Rows) string {
	var out []string
	for _, s := range r.Steps {
		dim := "other"
		if s.CommTPNs > 0 {
			dim = "tp"
		}

		out = append(out, fmt.Sprintf("%d:%s", s.Step, dim))
	}

	return strings.Join(out, " ")
}

// TestGroups_AfterTheFirstLines: groups that are learnt within GroupPatience give the
// rows, to the cell, that they give when they are known from the start, whenever they
// are learnt and however often the stream is begun anew.
func TestGroups_AfterTheFirstLines(t *testing.T) {
	whole := func(known int64, restart int64) *row.Rows {
		b := &beside{}
		o := Options{Job: "j", Records: All, Groups: b.tell}
		c := newScript(t, o)
		for n := range int64(20) {
			if n == known {
				b.groups = inTP("comm-a")
			}

			c.trains("comm-a", n, n+1)
			c.take()
			if p := c.s.LowWater(); n == restart {
				// Read again from there, as after a kill.
				from := &script{t: t, s: New(o), enc: c.enc, rows: c.rows}
				if err := from.s.Resume(p); err != nil {
					t.Fatal(err)
				}

				from.s.Segment(0xabc, "1753000000")
				lines := recorded(func(c *script) { c.trains("comm-a", 0, n+1) })
				for _, l := range lines {
					if from.off >= p.Offset {
						from.s.Line(from.off, l)
					}

					from.off += int64(len(l)) + 1
				}

				c = from
			}
		}

		return c.end()
	}
	want := whole(0, -1)
	if got := inDim(want); !strings.HasPrefix(got, "0:tp 1:tp") || strings.Contains(got, "other") {
		t.Fatalf("known from the start: %s", got)
	}

	for known := int64(1); known <= GroupPatience; known++ {
		for _, restart := range []int64{-1, 2, known - 1, known, 18} {
			got := whole(known, restart)
			if d := cmp.Diff(want.Steps, got.Steps); d != "" {
				t.Fatalf("known from step %d on, begun anew at %d: steps (-want +got):\n%s", known, restart, d)
			}

			if d := cmp.Diff(want.Communications, got.Communications); d != "" {
				t.Fatalf("known from step %d on, begun anew at %d: communications (-want +got):\n%s", known, restart, d)
			}

			if d := cmp.Diff(want.Ranks[len(want.Ranks)-1], got.Ranks[len(got.Ranks)-1]); d != "" {
				t.Fatalf("known from step %d on, begun anew at %d: the rank's last row (-want +got):\n%s", known, restart, d)
			}
		}
	}
}

// recorded returns the lines that feed writes.
func recorded(feed func(*script)) [][]byte {
	var lines [][]byte
	c := &script{s: New(Options{}), enc: newScript(nil, Options{}).enc}
	c.tee = func(l string) { lines = append(lines, []byte(l)) }
	c.s.Segment(0xabc, "1753000000")
	feed(c)
	return lines
}

// TestGroups_Patience: steps are held for GroupPatience steps, and then go as they are;
// what is learnt later counts from there on, and the rank's row says it.
func TestGroups_Patience(t *testing.T) {
	b := &beside{}
	c := newScript(t, Options{Groups: b.tell})
	c.trains("comm-a", 0, GroupPatience)
	if n := len(c.take().Steps); n != 0 {
		t.Fatalf("%d steps before the patience is over", n)
	}

	c.trains("comm-a", GroupPatience, 30)
	if n := len(c.take().Steps); n != 29 {
		t.Fatalf("%d steps after it, want 29", n)
	}

	b.groups = inTP("comm-a")
	c.trains("comm-a", 30, 33)
	r := c.end()
	got := inDim(r)
	if !strings.HasSuffix(got, " 28:other 29:tp 30:tp 31:tp 32:tp") || strings.Count(got, "tp") != 4 {
		t.Errorf("%s", got)
	}

	last := r.Ranks[len(r.Ranks)-1]
	if len(last.Groups) != 1 || last.Groups[0] != "tp:comm-a:0:2" {
		t.Errorf("the rank's last row %+v", last)
	}

	if b.asked > 3*40 {
		t.Errorf("asked %d times in 33 steps", b.asked)
	}
}

// TestGroups_VersionsOutrank: a row that knows the groups outranks each that does not,
// also one that came later and knows the process's end, so that a pass over the files
// repairs what an agent stored.
func TestGroups_VersionsOutrank(t *testing.T) {
	without := newScript(t, Options{})
	without.trains("comm-a", 0, 3)
	for range 5 { // restarts of the process: each ends one and begins the next
		without.trains("comm-a", 0, 3)
	}

	with := newScript(t, Options{Groups: (&beside{groups: inTP("comm-a")}).tell})
	with.trains("comm-a", 0, 1)
	most := uint32(0)
	for _, r := range without.end().Ranks {
		most = max(most, r.Version)
	}

	if got := with.end().Ranks[0]; got.Version <= most || len(got.Groups) != 1 {
		t.Errorf("version %d with %v, a row without has %d", got.Version, got.Groups, most)
	}
}

// TestGroups_OfASecondProcess: the process that takes another's place makes new
// communicators, whose file comes as late; the first one keeps its own.
func TestGroups_OfASecondProcess(t *testing.T) {
	b := &beside{groups: inTP("comm-a")}
	c := newScript(t, Options{Groups: b.tell})
	c.trains("comm-a", 0, 6)
	c.enc.Process = 5000
	c.trains("comm-b", 40, 45)
	if got := inDim(c.take()); strings.Contains(got, "40:") {
		t.Fatalf("closed with another process's groups: %s", got)
	}

	b.groups = inTP("comm-b")
	c.trains("comm-b", 45, 50)
	r := c.end()
	if got := inDim(r); strings.Contains(got, "other") || !strings.Contains(got, "40:tp") {
		t.Errorf("%s", got)
	}

	last := map[uint64]string{}
	for _, k := range r.Ranks {
		last[k.Incarnation] = strings.Join(k.Groups, " ")
	}

	if got := fmt.Sprint(len(last), last[r.Steps[0].Incarnation], last[r.Steps[len(r.Steps)-1].Incarnation]); got != "2tp:comm-a:0:2tp:comm-b:0:2" {
		t.Errorf("groups of the processes: %s", got)
	}
}

// TestDevice: the first range with device lines tells a process's device.
func TestDevice(t *testing.T) {
	c := newScript(t, Options{Node: "worker-7"})
	c.npu = 5
	c.mark(2, 0, 1, 0, "dataloader")
	c.mark(4, 0, 1, 4, "")
	c.trains("comm-a", 1, 4)
	r := c.end()
	if n := len(r.Ranks); n != 2 || r.Ranks[0].Device != "" || r.Ranks[1].Version != 2 {
		t.Fatalf("%d rows of the rank: %+v", n, r.Ranks)
	}

	if k := r.Ranks[1]; k.Device != "npu:5" || k.LocalRank != 5 || k.Node != "worker-7" || r.Steps[0].Node != "worker-7" {
		t.Errorf("%+v, step on %s", k, r.Steps[0].Node)
	}
}

// TestDimOf: a word means the same dimension here as where roles are made of groups.
func TestDimOf(t *testing.T) {
	for word, want := range map[string]dim{"tp": dimTP, " TP": dimTP, "exp": dimEP, "Ep": dimEP, "other": dimOther, "mesh": dimOther, "": dimOther} {
		if got := dimOf(word); got != want {
			t.Errorf("dimOf(%q) = %s, want %s", word, dimWords[got], dimWords[want])
		}
	}
}
