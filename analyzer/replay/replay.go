// Package replay plays one step of a job again, with other work than was measured:
// how long would it take if this rank worked like its peers?
//
// The graph comes from the layout. Ranks that tensor, context or expert groups
// couple work in lockstep: a pass takes as long as their slowest. The stages of a
// pipeline are joined by its schedule, one forward and one backward in turn (1F1B),
// with equal micro-batches. What is joined like that is a lane, a replica in the
// usual layout; lanes meet only at the step's end, where gradients are reduced, so
// the slowest lane is the step.
//
// Invariant: transfers are left out, for they are the same with and without a slow
// rank. A difference of two plays is time; a play alone is no step time.
//
// Caveat: unequal micro-batches within a step and transfers between stages make a
// pipeline slower than this, about alike on all lanes.
package replay

import (
	"cmp"
	"math"
	"slices"

	"github.com/laggard-dev/laggard/analyzer/frame"
)

// Graph says who waits for whom within a step. It is read only but for its
// buffers: use it from one goroutine.
type Graph struct {
	lanes  []lane
	laneOf []int32   // row → lane, -1 absent
	unitOf []int32   // row → its unit within the lane
	known  bool      // the layout tells who waits for whom
	stages int       // of the longest lane
	usual  []float64 // per stage: stands for a unit that has no work
	all    []int32
	clock  clock
}

// lane is ranks that wait for each other within a step: units in stage order.
type lane struct {
	units []unit
	rows  []int32
}

// unit is ranks of one stage that work in lockstep.
type unit struct {
	stage int
	rows  []int32
}

// Work is what the ranks do by themselves in one step, by row, in seconds. NaN is
// unknown: the rank is as its mates, a unit of which nobody is known as its stage
// in other lanes.
type Work struct {
	Before  []float64 // before the first pass: loading data; nil = nothing
	Passes  []float64 // forward and backward
	Forward float64   // share of Passes that is forward
	Micro   int       // micro-batches; 0 = 1
}

// New makes the graph of a layout.
func New(l *frame.Layout) *Graph {
	n := len(l.Ranks)
	g := &Graph{laneOf: make([]int32, n), unitOf: make([]int32, n), known: known(l)}
	lanes, units := frame.NewSets(n), frame.NewSets(n)
	if g.known {
		couple(l, lanes, units)
	}

	stage := func(r int32) int {
		if !g.known {
			return 0
		}

		return l.Roles[l.Role[r]].Stage
	}
	index := map[int32]int32{}
	for r := range int32(n) {
		g.laneOf[r] = -1
		if !l.Present[r] || l.Role[r] < 0 {
			continue
		}

		root := lanes.Find(r)
		if _, ok := index[root]; !ok {
			index[root] = int32(len(index))
		}

		g.laneOf[r] = index[root]
		g.all = append(g.all, r)
	}

	slices.SortStableFunc(g.all, func(a, b int32) int {
		return cmp.Or(cmp.Compare(g.laneOf[a], g.laneOf[b]), cmp.Compare(stage(a), stage(b)), cmp.Compare(units.Find(a), units.Find(b)))
	})
	// Two sets of one stage in one lane (expert groups join replicas) work side by side.
	g.lanes = make([]lane, len(index))
	for _, r := range g.all {
		at := &g.lanes[g.laneOf[r]]
		k := len(at.units) - 1
		if k < 0 || at.units[k].stage != stage(r) || units.Find(at.units[k].rows[0]) != units.Find(r) {
			at.units, k = append(at.units, unit{stage: stage(r)}), k+1
		}

		at.units[k].rows, at.rows = append(at.units[k].rows, r), append(at.rows, r)
		g.unitOf[r], g.stages = int32(k), max(g.stages, stage(r)+1)
	}

	g.usual, g.clock = make([]float64, g.stages), newClock(g.stages)
	return g
}

// couple joins the ranks of each unit, which wait for each other in every layer, and those of
// each lane, which wait for each other within a step: units, and replicas that are pipelines.
func couple(l *frame.Layout, lanes, units *frame.Sets) {
	for i := range l.Groups {
		switch l.Groups[i].Dim {
		case "tp", "cp", "ep":
			units.Join(l.Groups[i].Rows...)
			lanes.Join(l.Groups[i].Rows...)
		}
	}

	if l.Stages > 1 {
		for _, rows := range l.Replicas {
			lanes.Join(rows...)
		}
	}
}

// known reports whether the layout tells who waits for whom: its groups are known,
// or there is but one, of everybody.
func known(l *frame.Layout) bool {
	if l.From != "inferred" {
		return true
	}

	present := l.Recorded()
	return l.Certain && l.Stages == 1 && slices.ContainsFunc(l.Groups, func(g frame.Group) bool { return len(g.Rows) == present })
}

// Known reports whether the groups are known: without, every rank is a lane.
func (g *Graph) Known() bool { return g.known }

// Lanes returns the number of lanes.
func (g *Graph) Lanes() int { return len(g.lanes) }

// Lane returns the lane of a row, -1 when it takes no part.
func (g *Graph) Lane(row int) int { return int(g.laneOf[row]) }

// Rows returns the rows of a lane, All those of all lanes.
func (g *Graph) Rows(k int) []int32 { return g.lanes[k].rows }

// All returns the rows of all lanes.
func (g *Graph) All() []int32 { return g.all }

// First returns the rows of a lane's first stage, which is through last: the
// pipeline drains towards it.
func (g *Graph) First(k int) []int32 {
	if len(g.lanes[k].units) == 0 || g.lanes[k].units[0].stage != 0 {
		return nil
	}

	return g.lanes[k].units[0].rows
}

// Mates returns the rows that work in lockstep with a row, itself among them.
func (g *Graph) Mates(row int) []int32 {
	if g.laneOf[row] < 0 {
		return nil
	}

	return g.lanes[g.laneOf[row]].units[g.unitOf[row]].rows
}

// Learn takes from a step what stands for units of which nobody was measured.
func (g *Graph) Learn(w *Work) {
	clear(g.usual)
	counts := make([]float64, g.stages) // of units that were measured
	for k := range g.lanes {
		for i := range g.lanes[k].units {
			u := &g.lanes[k].units[i]
			if x := u.slowest(w.Passes); x == x {
				g.usual[u.stage] += x
				counts[u.stage]++
			}
		}
	}

	for s := range g.usual {
		g.usual[s] /= max(1, counts[s])
	}
}

// Usual is what Learn took, by stage: write to it to take it again.
func (g *Graph) Usual() []float64 { return g.usual }

// Even is when lane k were through if its stages had equal work.
func (g *Graph) Even(k int, w *Work) float64 {
	g.load(k, w)
	c, sum := &g.clock, 0.0
	for _, x := range c.passes {
		sum += x
	}

	for s := range c.passes {
		c.passes[s] = sum / float64(len(c.passes))
	}

	return g.run(w)
}

// End is when lane k is through, seconds after the step's start.
func (g *Graph) End(k int, w *Work) float64 {
	g.load(k, w)
	return g.run(w)
}

// load gives the clock the work of a lane.
func (g *Graph) load(k int, w *Work) {
	c := &g.clock
	clear(c.passes)
	clear(c.before)
	for i := range g.lanes[k].units {
		u := &g.lanes[k].units[i]
		if x := u.slowest(w.Passes); x == x {
			c.passes[u.stage] = max(c.passes[u.stage], x)
		}

		if w.Before != nil {
			if b := u.slowest(w.Before); b == b {
				c.before[u.stage] = max(c.before[u.stage], b)
			}
		}
	}

	for s, x := range c.passes {
		if x == 0 {
			c.passes[s] = g.usual[s]
		}
	}
}

// run returns how long the lane takes that was put on the clock, seconds: without a pipeline loading and passes,
// one after the other.
func (g *Graph) run(w *Work) float64 {
	c := &g.clock
	if g.stages == 1 {
		return c.before[0] + c.passes[0]
	}

	return c.pipeline(w.Forward, max(1, w.Micro))
}

// slowest is the largest known value among the unit's rows, NaN when none is.
func (u *unit) slowest(v []float64) float64 {
	x := math.NaN()
	for _, r := range u.rows {
		if y := v[r]; y == y && !(x >= y) {
			x = y
		}
	}

	return x
}
