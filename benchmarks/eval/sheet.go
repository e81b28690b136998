package main

import (
	"strings"

	"github.com/laggard-dev/laggard/analyzer/feed"
	"github.com/laggard-dev/laggard/schemas/row"
)

// sheet is what the rules of other tools look at: a few columns per rank, in the
// order the steps came, NaN-free (a missing rank-step is simply not there).
type sheet struct {
	feed.History

	ranks []column
	steps int // largest number of steps of a rank
}

// column is one rank's history, ns.
type column struct {
	node string
	tp   []int // ranks of its TP group
	step []float64
	fp   []float64
	self []float64
	tpNs []float64
	load []float64
}

// Add hands the rows on and keeps the columns.
func (s *sheet) Add(rows *row.Rows) {
	s.History.Add(rows)
	for i := range rows.Ranks {
		s.rank(&rows.Ranks[i])
	}

	for i := range rows.Steps {
		s.step(&rows.Steps[i])
	}
}

// rank notes the rank's TP group.
func (s *sheet) rank(r *row.Rank) {
	c := s.at(int(r.Rank))
	for k, g := range r.Groups {
		if strings.HasPrefix(g, "tp:") && k < len(r.GroupRanks) {
			c.tp = c.tp[:0]
			for _, m := range r.GroupRanks[k] {
				c.tp = append(c.tp, int(m))
			}
		}
	}
}

// at returns the column of a rank, an empty one when it is new.
func (s *sheet) at(rank int) *column {
	for len(s.ranks) <= rank {
		s.ranks = append(s.ranks, column{})
	}

	return &s.ranks[rank]
}

// step keeps what the columns have of a step.
func (s *sheet) step(r *row.Step) {
	c := s.at(int(r.Rank))
	c.node = r.Node
	c.step = append(c.step, float64(r.StepNs))
	c.fp = append(c.fp, float64(r.FPNs))
	c.self = append(c.self, float64(r.SelfNs))
	c.tpNs = append(c.tpNs, float64(r.CommTPNs))
	c.load = append(c.load, float64(max(0, r.DataLoaderNs)))
	s.steps = max(s.steps, len(c.step))
}
