package arrival

import (
	"slices"
	"strings"
	"testing"

	"github.com/laggard-dev/laggard/analyzer/frame"
)

// pipeline is a layout of two stages of four ranks, each rank on the given node.
func pipeline(nodes ...int32) *frame.Layout {
	l := &frame.Layout{Stages: 2, Certain: true, From: "topology", Nodes: []string{"a", "b", "c", "d"}}
	l.Roles = []frame.Role{{Stage: 0}, {Stage: 1}}
	for r := range 8 {
		l.Ranks, l.Present = append(l.Ranks, r), append(l.Present, true)
		l.Role, l.Node = append(l.Role, int32(r/4)), append(l.Node, nodes[r])
	}

	return l
}

func TestStages(t *testing.T) {
	over := []int32{0, 1, 2, 3, 0, 1, 2, 3}
	even := []float32{75.2, 75.4, 76.3, 75.1, 75.4, 75.9, 75.3, 75.6}
	heavy := []float32{75.2, 75.4, 76.3, 75.1, 80.1, 79.9, 79.8, 80}
	for _, c := range []struct {
		name   string
		layout *frame.Layout
		fp     []float32
		own    []float32 // nil as fp
		want   string
	}{
		{"heavy", pipeline(over...), heavy, nil, "1.06 times the compute time"},
		{"nodes unknown", pipeline(-1, -1, -1, -1, -1, -1, -1, -1), heavy, nil, "1.06 times the compute time"},
		{"own time alone", pipeline(over...), nil, heavy, "1.06 times the own time"},
		{"even", pipeline(over...), even, nil, ""},
		{"one slow rank", pipeline(over...), []float32{75, 75, 75, 75, 75, 75, 90, 75}, nil, ""},
		{"one rank like the others", pipeline(over...), []float32{75, 75, 75, 75, 80, 80, 75, 80}, nil, ""},
		{"ranks differ as much", pipeline(over...), []float32{70, 75, 75, 75, 80, 80, 80, 80}, nil, ""},
		{"a stage on one node", pipeline(0, 0, 0, 0, 1, 1, 1, 1), heavy, nil, ""},
		{"waits inside", pipeline(over...), heavy, even, ""},
		{"a rank is missing", pipeline(over...), []float32{75, 75, 75, frame.NaN, 80, 80, 80, 80}, nil, ""},
	} {
		var s Stages
		for range 3 {
			col := &frame.Column{Layout: c.layout}
			col.V[frame.FP], col.V[frame.Self] = milli(c.fp), milli(c.own)
			if c.own == nil {
				col.V[frame.Self] = col.V[frame.FP]
			}

			col.V[frame.Step] = milli([]float32{300, 300, 300, 300, 300, 300, 300, 300})
			s.Observe(col)
		}

		f := s.Finding()
		if (f != nil) != (c.want != "") {
			t.Errorf("%s: %+v", c.name, f)
			continue
		}

		if f == nil {
			continue
		}

		if !strings.Contains(f.Detail, c.want) || !strings.Contains(f.Detail, "3 steps") || !slices.Equal(f.Stages, []int{1}) || !slices.Equal(f.Ranks, []int{4, 5, 6, 7}) {
			t.Errorf("%s: %+v", c.name, f)
		}

		if f.JobImpact < 0.007 || f.JobImpact > 0.009 { // (80 - 77.7) / 300
			t.Errorf("%s: costs %v", c.name, f.JobImpact)
		}
	}

	one := pipeline(over...)
	one.From = "inferred"
	var s Stages
	s.Observe(&frame.Column{Layout: one})
	if f := s.Finding(); f != nil {
		t.Errorf("a guessed layout: %+v", f)
	}
}

func milli(v []float32) []float32 {
	out := slices.Clone(v)
	for i := range out {
		out[i] /= 1e3
	}

	return out
}
