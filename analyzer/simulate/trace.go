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
	ranks := map[int]map[int64]Passes{}
	for rank, ranges := range l.ranges {
		ranks[rank] = passesOf(ranges)
	}

	t, order, err := assemble(l.truth.Name, &l.topo, ranks)
	switch {
	case err != nil:
		return nil, err
	case t.Shape.PP < 2:
		return nil, errors.New("want dp and pp groups that form a grid")
	}

	t.Findings = l.truth.Findings
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

// passesOf are the steps of one rank's ranges.
func passesOf(ranges []record.Record) map[int64]Passes {
	slices.SortStableFunc(ranges, func(a, b record.Record) int { return cmp.Compare(a.Start, b.Start) })
	steps := map[int64]Passes{}
	step, until := int64(-1), int64(0)
	for k := range ranges {
		r := &ranges[k]
		seconds, way := float64(r.Dur)/1e9, forth
		if r.Name == "backward" {
			way = back
		}

		switch p := steps[step]; {
		case r.Kind == record.Step:
			step, until = r.Step, r.End()
			steps[step] = Passes{length: seconds}
		case step >= 0 && r.Start < until && (r.Kind == record.FP || way == back):
			p.ways[way] = append(p.ways[way], seconds)
			steps[step] = p
		}
	}

	return steps
}
