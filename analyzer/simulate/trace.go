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

	groups, truth, ranges, err := readArchive(tar.NewReader(io.LimitReader(z, maxArchive)))
	if err != nil {
		return nil, fmt.Errorf("read trace %s: %w", archive, err)
	}

	t, err := healthy(&truth, &groups, ranges)
	if err != nil {
		return nil, fmt.Errorf("understand trace %s: %w", archive, err)
	}

	return t, nil
}

// readArchive reads the files of an archive: ranges are the Step, FP and backward of each rank.
func readArchive(t *tar.Reader) (groups topology.File, truth Truth, ranges map[int][]record.Record, err error) {
	ranges = map[int][]record.Record{}
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return groups, truth, ranges, nil
		}

		if err != nil {
			return groups, truth, nil, err
		}

		dir, name := path.Split(h.Name)
		rank, isRank := strconv.Atoi(path.Base(dir))
		switch {
		case h.Typeflag != tar.TypeReg:
		case name == "topology.json":
			err = json.NewDecoder(t).Decode(&groups)
		case name == "truth.json":
			err = json.NewDecoder(t).Decode(&truth)
		case isRank == nil && strings.Trim(name, "0123456789") == "":
			ranges[rank], err = appendRanges(ranges[rank], t)
		}

		if err != nil {
			return groups, truth, nil, fmt.Errorf("%s: %w", h.Name, err)
		}
	}
}

// appendRanges appends the ranges that one file's markers are pairs of.
func appendRanges(ranges []record.Record, r io.Reader) ([]record.Record, error) {
	var parser marker.Parser
	var pairer marker.Pairer
	s := bufio.NewScanner(r)
	s.Buffer(nil, maxLine)
	for s.Scan() {
		if err := parser.Parse(s.Bytes()); err != nil {
			return nil, err
		}

		if x := pairer.Add(&parser.Marker, marker.Place{}).Range; x != nil {
			if k := x.Record.Kind; k == record.Step || k == record.FP || k == record.Other {
				ranges = append(ranges, x.Record)
			}
		}
	}

	return ranges, s.Err()
}

// healthy is the job of the ranges, with the ranks that were slow at the pace of the others.
func healthy(truth *Truth, groups *topology.File, ranges map[int][]record.Record) (*Trace, error) {
	ranks := map[int]map[int64]Passes{}
	for rank, list := range ranges {
		ranks[rank] = passesOf(list)
	}

	t, order, err := assemble(truth.Name, groups, ranks)
	switch {
	case err != nil:
		return nil, err
	case t.Shape.PP < 2:
		return nil, errors.New("want dp and pp groups that form a grid")
	}

	t.Findings = truth.Findings
	healed := false
	for i, r := range order {
		if slices.Contains(truth.SlowRanks, r) {
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
