package simulate

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"testing"

	"github.com/laggard-dev/laggard/schemas/marker"
	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/schemas/topology"
	"github.com/laggard-dev/laggard/writer/rollup"
	"github.com/laggard-dev/laggard/writer/segment"
)

// rolled reads a written job the way ingest does, with the topology file beside it.
func rolled(t *testing.T, dir string) row.Rows {
	t.Helper()
	ranks, err := segment.Walk(dir)
	if err != nil {
		t.Fatal(err)
	}

	found, servers, err := topology.DiscoverAll(dir, []string{ranks[0].Job})
	if err != nil {
		t.Fatal(err)
	}

	var out row.Rows
	job := rollup.NewPlacement(found, servers, nil, "")
	for _, d := range ranks {
		s := rollup.New(job.Options(d, 0))
		infos, err := segment.List(d.Path)
		if err != nil {
			t.Fatal(err)
		}

		for _, i := range infos {
			r, err := segment.OpenReader(filepath.Join(d.Path, i.Name))
			if err != nil {
				t.Fatal(err)
			}

			for first := true; ; first = false {
				line, offset, err := r.Next()
				if errors.Is(err, io.EOF) {
					break
				}

				if err != nil {
					t.Fatal(err)
				}

				if first {
					s.Segment(segment.Identity(d.Job, d.Rank, i.Name, line), i.Name)
				}

				s.Line(offset, line)
			}

			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
		}

		s.End()
		s.Take(&out)
	}

	return out
}

// written are the identities and the ranges of a job's files, of each rank.
func written(t *testing.T, c Config) (metas []record.Meta, ranges [][]record.Record) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "job")
	if _, err := Write(dir, c); err != nil {
		t.Fatal(err)
	}

	ranks, err := segment.Walk(dir)
	if err != nil {
		t.Fatal(err)
	}

	metas, ranges = make([]record.Meta, len(ranks)), make([][]record.Record, len(ranks))
	for _, d := range ranks {
		infos, err := segment.List(d.Path)
		if err != nil {
			t.Fatal(err)
		}

		var p record.Parser
		for _, i := range infos {
			b, err := os.ReadFile(filepath.Join(d.Path, i.Name))
			if err != nil {
				t.Fatal(err)
			}

			for line := range bytes.Lines(b) {
				kind, err := p.Parse(line)
				if err != nil {
					t.Fatal(err)
				}

				switch kind {
				case record.LineMeta:
					metas[d.Rank] = p.Meta
				case record.LineRecord:
					ranges[d.Rank] = append(ranges[d.Rank], p.Record)
				}
			}
		}
	}

	return metas, ranges
}

func sortSteps(s []row.Step) {
	slices.SortFunc(s, func(a, b row.Step) int {
		return cmp.Or(cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.Incarnation, b.Incarnation), cmp.Compare(a.Step, b.Step))
	})
}

func sortComms(c []row.Communication) {
	slices.SortFunc(c, func(a, b row.Communication) int {
		return cmp.Or(cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.Incarnation, b.Incarnation), cmp.Compare(a.StepFrom, b.StepFrom),
			cmp.Compare(a.Group, b.Group), cmp.Compare(a.Op, b.Op))
	})
}

// apart keeps the gradients out of the backward pass: how much of a collective
// that begins in it blocks it, and how much what comes after, a record doesn't say.
func apart(c Config) Config {
	c.Model.Overlap = false
	return c
}

// quietBackward doesn't record the backward pass.
func quietBackward(c Config) Config {
	c.Record.Backward = false
	return c
}

// The files of a job, rolled up by the product's own reader, are the rows that the
// simulator hands over directly.
func TestWrite_RollsUpToTheSameRows(t *testing.T) {
	for name, c := range map[string]Config{
		"plain":    quietBackward(noisy(Shape{DP: 4, RanksPerNode: 2})),
		"pipeline": apart(noisy(Shape{TP: 2, DP: 2, PP: 2, RanksPerNode: 4})),
		"experts":  quietBackward(noisy(Shape{CP: 2, DP: 4, EP: 2, RanksPerNode: 4})),
		"lossy": func() Config {
			c := apart(noisy(Shape{DP: 2, PP: 2}))
			c.Loss, c.Record.UnrecordedWait, c.Clock = Loss{RankSteps: 0.2}, 0.7, Clock{Skew: 5, DriftPPM: 50}
			return c
		}(),
		"nameless": func() Config {
			c := apart(noisy(Shape{TP: 2, DP: 4, RanksPerNode: 4}))
			c.Record.NoGroups, c.Record.HostOnly, c.Record.Off = true, true, []string{"DataLoader"}
			return c
		}(),
		"interleaved": func() Config {
			c := apart(noisy(Shape{DP: 2, PP: 2, MicroBatches: 4, Chunks: 2, RanksPerNode: 2}))
			c.Work.Phases = []Phase{{From: 10, Factor: 6}, {From: 3, Every: 7, Steps: 2, Factor: 0.3}}
			return c
		}(),
		"recomputed": func() Config {
			c := quietBackward(noisy(Shape{DP: 4, RanksPerNode: 2}))
			c.Model.Recompute = true
			c.Checkpoint.HeavyShare = 0.3
			return c
		}(),
		"host times alone": func() Config {
			c := quietBackward(noisy(Shape{DP: 4, RanksPerNode: 2}))
			c.Record.HostOnly, c.Record.Enqueued, c.Record.Off = true, true, []string{"Communication"}
			c.Loss.Absent = []int{2}
			return c
		}(),
		"elastic": func() Config {
			c := quietBackward(noisy(Shape{DP: 8, RanksPerNode: 2}))
			c.Restarts = []Restart{{At: 20, Redo: 4, Drop: []int{1}, Shuffle: true, Layout: &Shape{PP: 3, MicroBatches: 3}}}
			c.Record.LastTopology, c.Record.NoGroups, c.Model.Overlap = true, true, false
			return c
		}(),
		"restarted": func() Config {
			c := quietBackward(noisy(Shape{DP: 4, RanksPerNode: 1}))
			c.Restarts = []Restart{{At: 20, Redo: 4, Drop: []int{1}, Shuffle: true}}
			return c
		}(),
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "job")
			if _, err := Write(dir, c); err != nil {
				t.Fatal(err)
			}

			want, _ := mustRows(t, c)
			got := rolled(t, dir)
			sortSteps(want.Steps)
			sortSteps(got.Steps)
			if len(got.Steps) != len(want.Steps) {
				t.Fatalf("%d rows from the files, %d directly", len(got.Steps), len(want.Steps))
			}

			for i := range got.Steps {
				if got.Steps[i] != want.Steps[i] {
					t.Fatalf("row %d\nfiles  %+v\ndirect %+v", i, got.Steps[i], want.Steps[i])
				}
			}

			sortComms(want.Communications)
			sortComms(got.Communications)
			if len(got.Communications) != len(want.Communications) {
				t.Fatalf("%d windows from the files, %d directly", len(got.Communications), len(want.Communications))
			}

			for i := range got.Communications {
				if got.Communications[i] != want.Communications[i] {
					t.Fatalf("window %d\nfiles  %+v\ndirect %+v", i, got.Communications[i], want.Communications[i])
				}
			}

			started := map[uint64]int64{}
			for _, r := range got.Ranks {
				started[r.Incarnation] = r.StartedNs
			}

			for _, r := range want.Ranks {
				if at, known := started[r.Incarnation]; !known || at != r.StartedNs {
					t.Fatalf("process %x of rank %d starts at %d in the files, %d directly in version %d", r.Incarnation, r.Rank, at, r.StartedNs, r.Version)
				}
			}
		})
	}
}

func TestWrite_LeavesTheTruthBeside(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "job")
	c := noisy(Shape{DP: 4, PP: 2, RanksPerNode: 2})
	c.Faults = []Fault{{Kind: Compute, Node: 1, Locals: []int{0}, Factor: 1.5, From: 10}}
	want, err := Write(dir, c)
	if err != nil {
		t.Fatal(err)
	}

	var truth Truth
	var topo topology.File
	for name, v := range map[string]any{"truth.json": &truth, "topology.json": &topo} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}

		if err := json.Unmarshal(b, v); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}

	for i := range want.Culprits { // what Weigh needs isn't written
		x := &want.Culprits[i]
		x.faults, x.first, x.last = nil, 0, 0
	}

	if !reflect.DeepEqual(truth, want) || truth.Impact < 0.03 || !slices.Equal(truth.ExpectExit, []int{3}) {
		t.Errorf("truth.json %+v, returned %+v", truth, want)
	}

	if topo.WorldSize != 8 || len(topo.Nodes) != 4 || !slices.Equal(topo.Nodes["node-1"], []int{2, 3}) {
		t.Errorf("topology %+v", topo)
	}

	again, err := Load(filepath.Join(dir, "scenario.yaml"), nil)
	if err != nil {
		t.Fatal(err)
	}

	a, _ := mustRows(t, c)
	b, _ := mustRows(t, again)
	if !reflect.DeepEqual(a, b) {
		t.Error("scenario.yaml gives another job")
	}

	if _, err := Write(dir, c); err == nil {
		t.Error("Write into a directory that is not empty: want an error")
	}
}

func TestWrite_SegmentsKeepTheirLimit(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "job")
	c := noisy(Shape{TP: 2, DP: 2})
	c.Record.SegmentLimit = 16 << 10
	if _, err := Write(dir, c); err != nil {
		t.Fatal(err)
	}

	ranks, err := segment.Walk(dir)
	if err != nil || len(ranks) != 4 {
		t.Fatalf("Walk: %d ranks, %v", len(ranks), err)
	}

	for _, d := range ranks {
		infos, err := segment.List(d.Path)
		if err != nil || len(infos) < 3 {
			t.Fatalf("%s: %d segments, %v", d.Path, len(infos), err)
		}

		last := int64(0)
		for _, i := range infos {
			if i.Size > 16<<10 || i.Number <= last {
				t.Errorf("%s/%s: %d bytes after %d", d.Path, i.Name, i.Size, last)
			}

			last = i.Number
		}
	}
}

// TaskD's lines pair up completely and say the same ranges.
func TestWrite_TaskD(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "job")
	c := noisy(Shape{TP: 2, DP: 2, PP: 2, RanksPerNode: 4})
	c.Record.Format = "taskd"
	if _, err := Write(dir, c); err != nil {
		t.Fatal(err)
	}

	c.Record.Format = ""
	_, ranges := written(t, c)
	for rank := range 8 {
		d := filepath.Join(dir, "sim--7", strconv.Itoa(rank))
		infos, err := segment.List(d)
		if err != nil || len(infos) == 0 {
			t.Fatalf("%s: %d files, %v", d, len(infos), err)
		}

		var pairer marker.Pairer
		var parser marker.Parser
		kinds := map[string]int64{}
		for _, i := range infos {
			b, err := os.ReadFile(filepath.Join(d, i.Name))
			if err != nil {
				t.Fatal(err)
			}

			for line := range bytes.Lines(b) {
				if err := parser.Parse(bytes.TrimSuffix(line, []byte{'\n'})); err != nil {
					t.Fatalf("%s: %v", line, err)
				}

				if r := pairer.Add(&parser.Marker, marker.Place{}).Range; r != nil {
					kinds[r.Record.Word()] += r.Record.Dur
				}
			}
		}

		want := map[string]int64{}
		for _, r := range ranges[rank] {
			want[r.Word()] += r.Dur
		}

		if pairer.Unmatched != 0 || !reflect.DeepEqual(kinds, want) {
			t.Fatalf("rank %d: %d unmatched, durations %v, want %v", rank, pairer.Unmatched, kinds, want)
		}

		var groups map[string]struct {
			Name  string `json:"group_name"`
			Ranks []int  `json:"global_ranks"`
		}
		b, err := os.ReadFile(filepath.Join(d, "parallel_group.json"))
		if err != nil || json.Unmarshal(b, &groups) != nil || len(groups) < 3 {
			t.Fatalf("parallel_group.json: %s, %v", b, err)
		}
	}
}

// A job of more ranks than are written at a time is one job.
func TestWrite_Shards(t *testing.T) {
	c := Config{Seed: 2, Steps: 3, Shape: Shape{DP: shardRanks + 8}, Noise: Noise{OpSD: 0.05}}
	dir := filepath.Join(t.TempDir(), "job")
	if _, err := Write(dir, c); err != nil {
		t.Fatal(err)
	}

	want, _ := mustRows(t, c)
	got := rolled(t, dir)
	sortSteps(want.Steps)
	sortSteps(got.Steps)
	if !slices.Equal(got.Steps, want.Steps) {
		t.Fatalf("%d rows from the files, %d directly, or other ones", len(got.Steps), len(want.Steps))
	}
}
