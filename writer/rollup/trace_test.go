package rollup

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/segment"
)

// unpack unpacks one of the real traces, which stand beside the module. Without
// them the test says loudly that it checked nothing.
func unpack(t testing.TB, name string) string {
	t.Helper()
	archive := filepath.Join("..", "..", "..", "shared", "data", name+".tar.gz")
	if _, err := os.Stat(archive); errors.Is(err, os.ErrNotExist) {
		t.Logf("WITHOUT REAL TRACES: %s is not there; nothing of it was checked", archive)
		return ""
	}

	dir := t.TempDir()
	if said, err := exec.Command("tar", "-xzmf", archive, "-C", dir, "--no-same-owner").CombinedOutput(); err != nil {
		t.Fatalf("unpack %s: %v\n%s", archive, err, said)
	}

	return filepath.Join(dir, name)
}

// rollTrace rolls up every rank of a trace.
func rollTrace(t testing.TB, dir string, o Options) (map[int]*row.Rows, Counts) {
	t.Helper()
	ranks, err := segment.Walk(dir)
	if err != nil {
		t.Fatal(err)
	}

	out := map[int]*row.Rows{}
	var total Counts
	for _, r := range ranks {
		all := &row.Rows{}
		c, err := Dir(context.Background(), r, o, func(part *row.Rows) error {
			all.Ranks = append(all.Ranks, part.Ranks...)
			all.Steps = append(all.Steps, part.Steps...)
			all.Communications = append(all.Communications, part.Communications...)
			all.Raws.Append(&part.Raws)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}

		out[r.Rank] = all
		total.Add(c)
	}

	return out, total
}

func median(v []int64) int64 {
	slices.Sort(v)
	return v[len(v)/2]
}

func medianOf(steps []row.Step, of func(*row.Step) int64) float64 {
	v := make([]int64, len(steps))
	for i := range steps {
		v[i] = of(&steps[i])
	}

	return float64(median(v)) / 1e9
}

func TestTrace_AR1(t *testing.T) {
	dir := unpack(t, "AR-1")
	if dir == "" {
		return
	}

	ranks, counts := rollTrace(t, dir, Options{Records: All})
	if len(ranks) != 16 {
		t.Fatalf("ranks=%d, want 16", len(ranks))
	}

	if counts.Late+counts.Unmatched+counts.Garbage+counts.Unknown+counts.Torn+counts.Waiting+counts.InFlight != 0 {
		t.Fatalf("counts=%+v, want nothing amiss", counts)
	}

	if e, s := total(counts.Emitted), total(counts.Stored); e != s || e == 0 {
		t.Fatalf("emitted=%d stored=%d, want all stored", e, s)
	}

	if n := counts.Emitted["Step"]; n != 16*21 {
		t.Fatalf("steps=%d, want %d", n, 16*21)
	}

	var peers []float64
	for rank, rows := range ranks {
		if len(rows.Steps) != 21 || len(rows.Ranks) != 2 || rows.Ranks[1].Device == "" {
			t.Fatalf("rank %d: %d steps, rank rows %+v; want 21, and 2: the second knows the device", rank, len(rows.Steps), rows.Ranks)
		}

		fp := medianOf(rows.Steps, func(s *row.Step) int64 { return s.FPNs })
		self := medianOf(rows.Steps, func(s *row.Step) int64 { return s.SelfNs })
		comm := medianOf(rows.Steps, func(s *row.Step) int64 { return s.CommNs })
		for _, s := range rows.Steps {
			if s.FPCount != 32 || s.Flags != row.FlagEstimated || s.Repeat != 0 {
				t.Fatalf("rank %d step %d: fp_count=%d flags=%b repeat=%d; want 32, estimated, 0", rank, s.Step, s.FPCount, s.Flags, s.Repeat)
			}

			if s.CommPPNs <= 0 || s.CommDPNs <= 0 || s.CommCPNs != -1 || s.DataLoaderNs != -1 || s.CheckpointNs != -1 {
				t.Fatalf("rank %d step %d: %+v", rank, s.Step, s)
			}

			if s.SelfNs != s.StepNs-s.ExposedNs || s.ExposedNs > s.CommNs {
				t.Fatalf("rank %d step %d: self=%d step=%d exposed=%d comm=%d", rank, s.Step, s.SelfNs, s.StepNs, s.ExposedNs, s.CommNs)
			}
		}

		t.Logf("rank %2d: fp %.3f s, communication %.3f s, self %.3f s", rank, fp, comm, self)
		if rank != 0 && rank < 16 {
			peers = append(peers, fp)
		}
	}

	slices.Sort(peers)
	fp := medianOf(ranks[0].Steps, func(s *row.Step) int64 { return s.FPNs })
	if ratio := fp / peers[1]; ratio < 2.4 || ratio > 2.6 {
		t.Fatalf("rank 0 forward is %.2fx its peers, want about 2.5x", ratio)
	}

	self := medianOf(ranks[0].Steps, func(s *row.Step) int64 { return s.SelfNs })
	other := medianOf(ranks[4].Steps, func(s *row.Step) int64 { return s.SelfNs })
	if ratio := self / other; ratio < 2.1 || ratio > 2.6 {
		t.Fatalf("rank 0 self time is %.2fx rank 4's, want 2.1 to 2.6", ratio)
	}
}

func TestTrace_ST(t *testing.T) {
	dir := unpack(t, "ST")
	if dir == "" {
		return
	}

	ranks, counts := rollTrace(t, dir, Options{})
	if len(ranks) != 8 || counts.Emitted["Step"] != 8*32 || counts.Summarised["Communication"] != counts.Emitted["Communication"] {
		t.Fatalf("%d ranks, counts %+v", len(ranks), counts)
	}

	stage := func(rank int) float64 {
		return medianOf(ranks[rank].Steps, func(s *row.Step) int64 { return s.FPNs })
	}
	if ratio := stage(6) / stage(0); ratio < 1.8 || ratio > 2.3 {
		t.Fatalf("the last stage's forward is %.2fx the first's, want about 2.1x", ratio)
	}

	calls := uint64(0)
	for _, rows := range ranks {
		for _, w := range rows.Communications {
			calls += uint64(w.Calls)
			if w.Dim == "" || w.Bytes <= 0 {
				t.Fatalf("%+v", w)
			}
		}
	}

	if calls != counts.Summarised["Communication"] {
		t.Fatalf("calls in windows %d, summarised %d", calls, counts.Summarised["Communication"])
	}
}

// TestTrace_BackwardIsKnown: with backward recorded nothing is estimated, and self
// time is close to forward plus backward.
func TestTrace_BackwardIsKnown(t *testing.T) {
	dir := unpack(t, "AR-1-full")
	if dir == "" {
		return
	}

	ranks, _ := rollTrace(t, dir, Options{Records: None})
	for rank, rows := range ranks {
		for _, s := range rows.Steps {
			if s.Flags != 0 || s.BackwardNs <= s.FPNs {
				t.Fatalf("rank %d step %d: %+v", rank, s.Step, s)
			}

			if s.SelfNs < s.FPNs+s.BackwardNs {
				t.Fatalf("rank %d step %d: self %d is below its own work %d", rank, s.Step, s.SelfNs, s.FPNs+s.BackwardNs)
			}
		}
	}
}

// TestTrace_RestartAnywhere goes on from low waters all over a real file.
func TestTrace_RestartAnywhere(t *testing.T) {
	dir := unpack(t, "ST")
	if dir == "" {
		return
	}

	ranks, err := segment.Walk(dir)
	if err != nil {
		t.Fatal(err)
	}

	infos, err := segment.List(ranks[0].Path)
	if err != nil {
		t.Fatal(err)
	}

	f := &fixture{}
	for _, info := range infos {
		text, err := os.ReadFile(filepath.Join(ranks[0].Path, info.Name))
		if err != nil {
			t.Fatal(err)
		}

		f.begin()
		f.segments[len(f.segments)-1].name = info.Name
		f.add(text)
	}

	o := Options{Job: "j", Records: All}
	want, counts := f.run(o)
	type mark struct {
		p segment.Position
		n row.Rows
	}
	var marks []mark
	s, n := New(o), 0
	var taken row.Rows
	f.feed(s, segment.Position{}, func() {
		if n++; n%97 == 0 {
			s.Take(&taken)
			m := mark{p: s.LowWater()}
			appendRows(&m.n, &taken)
			marks = append(marks, m)
		}
	})
	for _, m := range marks {
		s := New(o)
		if err := s.Resume(m.p); err != nil {
			t.Fatal(err)
		}

		f.feed(s, m.p, nil)
		s.End()
		s.Take(&m.n)
		if d := cmp.Diff(want, m.n, unpacked); d != "" {
			t.Fatalf("from %s:%d (-unbroken +restarted):\n%s", m.p.Segment, m.p.Offset, d)
		}

		if d := cmp.Diff(counts, s.Counts()); d != "" {
			t.Fatalf("from %s:%d (-unbroken +restarted):\n%s", m.p.Segment, m.p.Offset, d)
		}
	}
}

// Add adds another stream's account to c.
func (c *Counts) Add(o Counts) {
	for _, p := range [...]struct {
		to   *map[string]uint64
		from map[string]uint64
	}{
		{&c.Emitted, o.Emitted}, {&c.Stored, o.Stored}, {&c.Summarised, o.Summarised},
	} {
		if *p.to == nil {
			*p.to = map[string]uint64{}
		}

		for word, n := range p.from {
			(*p.to)[word] += n
		}
	}

	for _, l := range o.Lost {
		c.Lose(l.Kind, l.Reason, l.Count)
	}

	c.Lines += o.Lines
	c.Bytes += o.Bytes
	c.InFlight += o.InFlight
	c.Waiting += o.Waiting
	c.Late += o.Late
	c.Crowded += o.Crowded
	c.Clipped += o.Clipped
	c.Shortened += o.Shortened
	c.Ungrouped += o.Ungrouped
	c.Unmatched += o.Unmatched
	c.Duplicate += o.Duplicate
	c.Unknown += o.Unknown
	c.Garbage += o.Garbage
	c.Torn += o.Torn
	c.TornBytes += o.TornBytes
	c.Damaged = append(c.Damaged, o.Damaged...)
}
