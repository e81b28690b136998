package simulate

import (
	"archive/tar"
	"bufio"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/laggard-dev/laggard/schemas/marker"
	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/topology"
)

// Bounds of an archive.
const (
	maxArchive = 1 << 30 // bytes unpacked
	maxLine    = 1 << 16
)

// LoadTrace reads a labelled archive (.tar.gz of topology.json, truth.json and
// <job>/<rank>/<unix seconds> in TaskD's lines, where the backward computation may
// be among them). The culprits that its truth names are brought to the pace of their role,
// so that what is replayed is healthy.
func LoadTrace(archive string) (*Trace, error) {
	f, err := os.Open(archive)
	if err != nil {
		return nil, fmt.Errorf("open trace: %w", err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, fmt.Errorf("read trace %s: %w", archive, err)
	}

	l := traceLoader{ranges: map[int][]record.Record{}}
	if err := l.read(tar.NewReader(io.LimitReader(z, maxArchive))); err != nil {
		return nil, fmt.Errorf("read trace %s: %w", archive, err)
	}

	t, err := l.trace()
	if err != nil {
		return nil, fmt.Errorf("understand trace %s: %w", archive, err)
	}

	return t, nil
}

type traceLoader struct {
	topo   topology.File
	truth  Truth
	ranges map[int][]record.Record // per rank: Step, FP and backward

	backward bool // the backward pass was recorded; else it is twice the forward
}

func (l *traceLoader) read(t *tar.Reader) error {
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}

		if err != nil {
			return err
		}

		dir, name := path.Split(h.Name)
		rank, isRank := strconv.Atoi(path.Base(dir))
		switch {
		case h.Typeflag != tar.TypeReg:
		case name == "topology.json":
			err = json.NewDecoder(t).Decode(&l.topo)
		case name == "truth.json":
			err = json.NewDecoder(t).Decode(&l.truth)
		case isRank == nil && strings.Trim(name, "0123456789") == "":
			err = l.lines(rank, t)
		}

		if err != nil {
			return fmt.Errorf("%s: %w", h.Name, err)
		}
	}
}

// lines pairs one file's markers.
func (l *traceLoader) lines(rank int, r io.Reader) error {
	var parser marker.Parser
	var pairer marker.Pairer
	s := bufio.NewScanner(r)
	s.Buffer(nil, maxLine)
	for s.Scan() {
		if err := parser.Parse(s.Bytes()); err != nil {
			return err
		}

		if x := pairer.Add(&parser.Marker, marker.Place{}).Range; x != nil {
			if k := x.Record.Kind; k == record.Step || k == record.FP || k == record.Other {
				l.ranges[rank] = append(l.ranges[rank], x.Record)
			}
		}
	}

	return s.Err()
}

// trace orders the ranges by step, rank and micro-batch.
func (l *traceLoader) trace() (*Trace, error) {
	order, shape := grid(slices.Sorted(maps.Keys(l.ranges)), &l.topo)
	if shape.PP < 2 {
		return nil, errors.New("want dp and pp groups that form a grid")
	}

	steps, seconds, err := l.steps(order)
	if err != nil {
		return nil, err
	}

	t := &Trace{Name: l.truth.Name, Shape: shape, Seconds: seconds, steps: steps, Findings: l.truth.Findings}
	t.Shape.MicroBatches = len(steps[0][forth][0])
	healed := false
	for i, r := range order {
		if slices.Contains(l.truth.SlowRanks, r) {
			t.heal(i)
			healed = true
		}
	}

	if !healed { // its steps are as long as recorded
		return t, nil
	}

	return t, t.settle()
}

// settle measures how long a step is: a healed job is faster than the recorded one,
// and transfers are shares of its step. Each round brings length and transfers nearer to
// each other.
func (t *Trace) settle() error {
	for range 4 {
		played, err := lengths(Config{Steps: 16, Replay: t}, nil)
		if err != nil {
			return err
		}

		slices.Sort(played)
		t.Seconds = played[len(played)/2] / 1e9
	}

	return nil
}

// steps returns the steps that every rank recorded in full, and the median length.
func (l *traceLoader) steps(order []int) ([]traceStep, float64, error) {
	by := map[int64]traceStep{}
	var lengths []float64
	for i, rank := range order {
		rs := l.ranges[rank]
		slices.SortStableFunc(rs, func(a, b record.Record) int { return cmp.Compare(a.Start, b.Start) })
		step, until := int64(-1), int64(0)
		for k := range rs {
			r := &rs[k]
			seconds := float64(r.Dur) / 1e9
			switch {
			case r.Kind == record.Step:
				step, until = r.Step, r.End()
				if _, ok := by[step]; !ok {
					by[step] = newStep(len(order))
				}

				lengths = append(lengths, seconds)
			case step < 0 || r.Start >= until:
			case r.Kind == record.FP:
				by[step][forth][i] = append(by[step][forth][i], seconds)
			case r.Name == "backward":
				l.backward = true
				by[step][back][i] = append(by[step][back][i], seconds)
			}
		}
	}

	// The job's number of micro-batches is the largest: a step with fewer is partial.
	micro := 0
	for _, s := range by {
		micro = max(micro, len(s[forth][0]))
	}

	var out []traceStep
	for _, n := range slices.Sorted(maps.Keys(by)) {
		s := by[n]
		if !l.backward {
			for i, passes := range s[forth] {
				for _, x := range passes {
					s[back][i] = append(s[back][i], 2*x)
				}
			}
		}

		partial := func(passes []float64) bool { return len(passes) != micro }
		if !slices.ContainsFunc(slices.Concat(s[forth], s[back]), partial) {
			out = append(out, s)
		}
	}

	if len(out) == 0 || micro == 0 {
		return nil, 0, errors.New("no step in which every rank recorded as many forward as backward passes")
	}

	slices.Sort(lengths)
	return out, lengths[len(lengths)/2], nil
}

// heal brings rank i to the pace of its stage's others.
func (t *Trace) heal(i int) {
	others := slices.DeleteFunc(t.stageOf(i), func(r int) bool { return r == i })
	if len(others) == 0 {
		return
	}

	for way := range t.steps[0] {
		if mine := t.pace(way, i); mine > 0 {
			t.scale(way, i, t.pace(way, others...)/mine)
		}
	}
}

// stageOf lists the ranks of rank i's stage.
func (t *Trace) stageOf(i int) []int {
	width := t.Shape.DP * t.Shape.TP
	out := make([]int, width)
	for k := range out {
		out[k] = i/width*width + k
	}

	return out
}

// pace is the median pass of some ranks, s: passes that met a hiccup don't count.
func (t *Trace) pace(way int, ranks ...int) float64 {
	var all []float64
	for k := range t.steps {
		for _, r := range ranks {
			all = append(all, t.steps[k][way][r]...)
		}
	}

	slices.Sort(all)
	return all[len(all)/2]
}

// scale makes the passes of rank i longer by a factor.
func (t *Trace) scale(way, i int, factor float64) {
	for k := range t.steps {
		for m := range t.steps[k][way][i] {
			t.steps[k][way][i][m] *= factor
		}
	}
}
