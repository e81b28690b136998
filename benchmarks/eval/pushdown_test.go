package main

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/laggard-dev/laggard/analyzer/feed"
	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/analyzer/simulate"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// BenchmarkMediansInstead tells what a store could take over that sums up ranks: one job of each
// scenario and family is judged once from all its rows, and once with the rows of all ranks but the
// culprits' nodes (as if somebody had known them) replaced by the medians of their step and role.
// It reports how many verdicts are the same byte by byte, and how many name the same nodes.
func BenchmarkMediansInstead(b *testing.B) {
	names := append(simulate.Names(), simulate.Families()...)
	for b.Loop() {
		equal, alike := 0, 0
		for k, name := range names {
			cfg, err := task{scenario: name, seed: 7000 + uint64(k)}.fitting()
			if err != nil {
				b.Fatal(err)
			}

			full, medians, err := instead(cfg)
			if err != nil {
				b.Fatalf("%s: %v", name, err)
			}

			nodes := accused(full) == accused(medians)
			same := difference(full, medians) == ""
			equal, alike = equal+count(same), alike+count(nodes)
			b.Logf("%s: the same verdict %v, the same nodes %v", name, same, nodes)
		}

		b.ReportMetric(float64(len(names)), "jobs")
		b.ReportMetric(float64(equal), "equal")
		b.ReportMetric(float64(alike), "same-nodes")
	}
}

// accused are the nodes of a verdict, with what is said of them.
func accused(v *verdict.Verdict) string {
	var all []string
	for _, n := range v.Nodes {
		all = append(all, fmt.Sprint(n.Node, n.State, n.Cause))
	}

	return strings.Join(all, ", ")
}

// kept is a job's rows of steps, and the rest of it in a history.
type kept struct {
	feed.History
	steps []row.Step
}

// Add keeps the rows of steps and hands all on.
func (k *kept) Add(rows *row.Rows) {
	k.steps = append(k.steps, rows.Steps...)
	k.History.Add(rows)
}

// instead judges a job from its rows, and from medians of those of who is not at fault.
func instead(cfg simulate.Config) (full, medians *verdict.Verdict, err error) {
	var all kept
	truth, err := simulate.Run(cfg, all.Add)
	if err != nil {
		return nil, nil, err
	}

	topology := simulate.Topology(cfg)
	f, full, err := judge(&all.History, topology)
	if err != nil {
		return nil, nil, err
	}

	var rest feed.History
	others := func(rows *row.Rows) { rest.Add(&row.Rows{Ranks: rows.Ranks, Communications: rows.Communications}) }
	if _, err := simulate.Run(cfg, others); err != nil {
		return nil, nil, err
	}

	m := mediansOf(f, all.steps)
	for i := range all.steps {
		r := &all.steps[i]
		if !slices.Contains(truth.SlowNodes, r.Node) {
			m.put(r)
		}

		rest.AddStep(r)
	}

	_, medians, err = judge(&rest, topology)
	return full, medians, err
}

// roleMedians are the medians of times by step and role.
type roleMedians struct {
	role   map[uint32]int32
	values map[place][]int64 // of each field
}

type place struct {
	role   int32
	step   uint64
	repeat uint16
}

// times are the fields of a row that are times, but for its start.
var times = func() (fields []int) {
	of := reflect.TypeFor[row.Step]()
	for i := range of.NumField() {
		if name := of.Field(i).Tag.Get("col"); strings.HasSuffix(name, "_ns") && name != "start_ns" {
			fields = append(fields, i)
		}
	}

	return fields
}()

func (s *roleMedians) place(r *row.Step) place { return place{s.role[r.Rank], r.Step, r.Repeat} }

func mediansOf(f *frame.Frame, steps []row.Step) *roleMedians {
	s := &roleMedians{role: map[uint32]int32{}, values: map[place][]int64{}}
	last := f.Layouts[len(f.Layouts)-1]
	for k, rank := range f.Ranks {
		s.role[uint32(rank)] = last.Role[k]
	}

	all := map[place][][]int64{}
	for i := range steps {
		at := s.place(&steps[i])
		if all[at] == nil {
			all[at] = make([][]int64, len(times))
		}

		v := reflect.ValueOf(&steps[i]).Elem()
		for k, field := range times {
			all[at][k] = append(all[at][k], v.Field(field).Int())
		}
	}

	for at, fields := range all {
		for _, values := range fields {
			slices.Sort(values)
			s.values[at] = append(s.values[at], values[len(values)/2])
		}
	}

	return s
}

// put gives a row the medians of its step and role.
func (s *roleMedians) put(r *row.Step) {
	v := reflect.ValueOf(r).Elem()
	for k, value := range s.values[s.place(r)] {
		v.Field(times[k]).SetInt(value)
	}
}
