package whatif

import (
	"errors"
	"maps"
	"slices"

	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// Repair is ranks that work like their peers, for once.
type Repair struct {
	Name     string
	Ranks    []int
	Slowdown float64 // their computing takes that many times as long as peers'; 0 = as long
	Loading  float64 // the same of loading data
	// Host: what they spend beside their forward passes is brought to their peers'
	// time, phase by phase, instead: a slow host delays, it doesn't stretch. Without peers
	// in their stage Slowdown counts.
	Host bool
}

// Job collects ranges step by step.
type Job struct {
	layout  *frame.Layout
	steps   map[int64]*recorded
	chosen  map[int64]bool                // steps; nil = all
	at      map[int]map[record.Word]int32 // places of the ranks in their groups, by rank and group
	classes record.Words                  // of operations, the named ones first
	groups  record.Words
}

// recorded is what was recorded of one step.
type recorded struct {
	ranges map[int][]timing // by rank
	length int64            // ns: the longest rank's step
}

// NewJob returns an empty job that takes the ranges of those steps, nil = all. The layout
// says which ranks do the same work; a rank that it lacks is in stage and replica 0.
func NewJob(l *frame.Layout, steps []int64) *Job {
	j := &Job{layout: l, steps: map[int64]*recorded{}, at: map[int]map[record.Word]int32{}}
	for _, s := range named {
		j.classes.Add(s)
	}

	if steps != nil {
		j.chosen = map[int64]bool{}
		for _, n := range steps {
			j.chosen[n] = true
		}
	}

	return j
}

// Ranges returns how many ranges are held.
func (j *Job) Ranges() int {
	n := 0
	for _, s := range j.steps {
		for _, rs := range s.ranges {
			n += len(rs)
		}
	}

	return n
}

// Replay plays all steps: as they were, alike, and with each repair. Times are summed
// over the steps before they are divided. progress may be nil. The ranges are used up. It is an
// error when no step can be replayed: no communication with groups was recorded, or too many of
// its records are missing.
func (j *Job) Replay(repairs []Repair, progress func(done, total int)) (*verdict.WhatIf, error) {
	ranks := j.ranks()
	steps := j.graphs(ranks)
	if len(steps) == 0 {
		return nil, errors.New("replay: no step has matching communication records of its ranks; turn Communication on for a few steps")
	}

	r := newReplay(j, ranks, steps)
	r.skipped, r.progress = len(j.steps)-len(steps), progress
	r.result(repairs)
	r.playing = true
	return r.result(repairs), nil
}

// ranks returns all ranks in order.
func (j *Job) ranks() []int {
	seen := map[int]bool{}
	for _, s := range j.steps {
		for rank := range s.ranges {
			seen[rank] = true
		}
	}

	return slices.Sorted(maps.Keys(seen))
}
