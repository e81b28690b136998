package rollup

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/laggard-dev/laggard/schemas/marker"
	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/segment"
)

// TestWords_AreBoundedInBytes: a writer that gives each range a long name of its own,
// and may never end a step, takes some megabytes, and every record arrives.
func TestWords_AreBoundedInBytes(t *testing.T) {
	const lines = 3000 // 25 MB of names
	long := strings.Repeat("n", 8<<10)
	own := func(kind, field string) func(i int64) []byte {
		return func(i int64) []byte {
			return fmt.Appendf(nil, `{"kind":%q,"step":%d,"start":%d,"dur":900,"ring":1,"seq":%d,%q:"%d%s"}`, kind, i/100, at(i), i, field, i, long)
		}
	}
	taskd := func(name string, domain []byte) func(i int64) []byte {
		return func(i int64) []byte {
			m := marker.Marker{Kind: 1, Flag: 16, ID: uint64(i + 1), Timestamp: uint64(at(i)), Process: 7, Name: fmt.Appendf(nil, name, i, long), Domain: domain}
			return marker.Append(nil, &m) // and never an end
		}
	}
	for _, c := range []struct {
		name         string
		line         func(i int64) []byte
		steps, taskd bool
	}{
		{name: "path", line: own("SaveCheckpoint", "path")},
		{name: "path, steps end", line: own("SaveCheckpoint", "path"), steps: true},
		{name: "group", line: own("Communication", "group")},
		{name: "op, steps end", line: own("Communication", "op"), steps: true},
		{name: "name of a kind", line: func(i int64) []byte {
			return fmt.Appendf(nil, `{"kind":"%d%s","start":%d,"dur":900,"ring":1,"seq":%d}`, i, long, at(i), i)
		}},
		{name: "reason of a loss", line: func(i int64) []byte {
			return fmt.Appendf(nil, `{"loss":{"ring":1,"reason":"%d%s","kind":"FP","count":1}}`, i, long)
		}},
		{name: "TaskD's name", line: taskd("%d%s", []byte("default")), taskd: true},
		{name: "TaskD's group", line: taskd(`{"opName": "HcclAllreduce","groupName": "%d%s"}`, []byte("communication")), taskd: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := New(Options{Job: "j", Records: All})
			s.Segment(1, "1753000000")
			offset, stored := int64(0), 0
			add := func(line []byte) {
				s.Line(offset, line)
				offset += int64(len(line)) + 1
				if s.words.Full() {
					stored += len(packed(s))
				}
			}
			before := heap()
			for i := range int64(lines) {
				add(c.line(i))
				if c.steps && i%100 == 99 {
					add(fmt.Appendf(nil, `{"kind":"Step","step":%d,"start":%d,"dur":%d}`, i/100, at(i-99), 100*ms))
				}
			}

			grown := heap() - before
			k := s.Counts()
			t.Logf("%d KiB; clipped %d, crowded %d, unmatched %d", grown>>10, k.Clipped, k.Crowded, k.Unmatched)
			if grown > 6<<20 {
				t.Errorf("%d KiB are held", grown>>10)
			}

			low := s.LowWater()
			if len(low.State) > 4<<20 {
				t.Errorf("the state is %d bytes", len(low.State))
			}

			s.End()
			stored += len(packed(s))
			k = s.Counts()
			switch emitted := total(k.Emitted); {
			case c.taskd && emitted+k.Unmatched+k.Waiting != lines, c.taskd && k.Clipped != lines:
				t.Errorf("emitted %d, unmatched %d, waiting %d, clipped %d of %d", emitted, k.Unmatched, k.Waiting, k.Clipped, lines)
			case c.taskd:
			case emitted+k.LostFor("") < lines || uint64(stored)+k.InFlight != emitted:
				t.Errorf("emitted %d, stored %d, in flight %d, lost %d", emitted, stored, k.InFlight, k.LostFor(""))
			case k.LostFor("") == 0 && k.Clipped < lines:
				t.Errorf("%d clipped", k.Clipped)
			case !c.steps && k.LostFor("") == 0 && k.Crowded == 0:
				t.Error("nothing was crowded")
			}

			runtime.KeepAlive(s)
		})
	}
}

// TestWords_ARestartIsExact: ranges that did not wait for their step are the same after
// a restart at any line.
func TestWords_ARestartIsExact(t *testing.T) {
	f := &fixture{}
	f.begin()
	for i := range int64(1500) {
		r := record.New(record.SaveCheckpoint)
		r.Start, r.Dur, r.Path, r.Ring, r.Seq = at(i), 900, fmt.Sprint(i, strings.Repeat("p", 3000)), 1, uint64(i)
		f.add(r.AppendLine(nil))
	}

	o := Options{Job: "j", Records: All}
	want, counts := f.run(o)
	if counts.Crowded == 0 || counts.Crowded == 1500 {
		t.Fatalf("%d crowded, want some", counts.Crowded)
	}

	for _, kill := range []int{100, 900, 1450} {
		s, n := New(o), 0
		var rows row.Rows
		var p segment.Position
		f.feed(s, segment.Position{}, func() {
			if n++; n == kill {
				s.Take(&rows)
				p = s.LowWater()
			}
		})
		s = New(o)
		if err := s.Resume(p); err != nil {
			t.Fatal(err)
		}

		f.feed(s, p, nil)
		s.End()
		s.Take(&rows)
		if d := cmp.Diff(want.Raws, rows.Raws, unpacked); d != "" {
			t.Errorf("killed after %d lines (-unbroken +restarted):\n%.2000s", kill, d)
		}

		if d := cmp.Diff(counts, s.Counts()); d != "" {
			t.Errorf("killed after %d lines (-unbroken +restarted):\n%s", kill, d)
		}
	}
}

// packed takes the finished rows.
func packed(s *Stream) []row.Raw {
	var rows row.Rows
	s.Take(&rows)
	return rows.Raws.Rows
}

// heap is the memory of what is reachable.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestLost_AfterRestart: what was lost comes back from a state as it went in, whatever its words hold, and
// the state of an older version is none.
func TestLost_AfterRestart(t *testing.T) {
	s := New(Options{Job: "j"})
	s.Segment(1, "1")
	want := []record.Loss{{Kind: "FP", Reason: "ring-full", Count: 1}, {Reason: "\n\"]", Count: 2}, {Kind: `["a","b"]`, Reason: "\x00", Count: 3}}
	for i, l := range want {
		s.Line(int64(i), l.AppendLine(nil))
	}

	p := s.LowWater()
	again := New(Options{Job: "j"})
	if err := again.Resume(p); err != nil {
		t.Fatal(err)
	}

	if got := again.Counts().Lost; !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}

	p.State = strings.Replace(p.State, fmt.Sprintf(`{"v":%d,`, stateVersion), fmt.Sprintf(`{"v":%d,`, stateVersion-1), 1)
	if err := New(Options{Job: "j"}).Resume(p); !errors.Is(err, ErrPosition) {
		t.Errorf("resumed with an older state: %v", err)
	}
}

// TestCounts_UnknownKindByAKnownWord: a range whose kind is not known may be named as one that is, say by a
// TaskD script of the user's, and neither takes the other's count.
func TestCounts_UnknownKindByAKnownWord(t *testing.T) {
	c := newScript(t, Options{Records: All})
	c.identity(1, "1")
	c.rec(record.Other, 0, 2, 1, func(r *record.Record) { r.Name = record.Step.String() })
	c.rec(record.Step, 0, 0, 10, nil)
	c.rec(record.Step, 1, 10, 10, nil)
	c.end()
	k := c.s.Counts()
	for what, words := range map[string]map[string]uint64{"emitted": k.Emitted, "stored": k.Stored} {
		if words["Step"] != 3 {
			t.Errorf("%s: %v, want 3 of Step", what, words)
		}
	}
}
