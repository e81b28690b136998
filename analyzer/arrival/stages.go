package arrival

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/laggard-dev/laggard/analyzer/detect/robust"
	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

const (
	// uneven is the ratio of a stage's work to that of the others from which a few steps tell it: less
	// than analyzer/detect asks for, for here the ranks of a stage must agree as well.
	uneven = 1.05
	// stagePeers is how many ranks a stage has at least, that one of them can't be the whole difference.
	stagePeers = 2
)

// Stages compares the work of pipeline stages over steps that are too few for a verdict. The zero
// value is ready to use.
type Stages struct {
	layout *frame.Layout // of the last step
	steps  int
	sum    map[frame.Metric][]float64 // by row, seconds; NaN where a step is missing
}

// Observe takes the next step of the job. Steps whose stages are guessed are left out, and a new
// layout begins anew: sums of other ranks say nothing of it.
func (s *Stages) Observe(c *frame.Column) {
	if l := c.Layout; l.Stages <= 1 || l.From == "inferred" || !l.Certain {
		return
	}

	if s.layout != c.Layout {
		s.layout, s.steps, s.sum = c.Layout, 0, map[frame.Metric][]float64{}
		for _, m := range []frame.Metric{frame.FP, frame.Self, frame.Step, frame.Exposed} {
			s.sum[m] = make([]float64, len(c.Layout.Ranks))
		}
	}

	s.steps++
	for m, sum := range s.sum {
		for r := range sum {
			// A NaN stays one in the sum: a rank of which a step is missing is not compared.
			x := math.NaN()
			if c.V[m] != nil {
				x = float64(c.V[m][r])
			}

			sum[r] += x
		}
	}
}

// Finding says which stages have more work than the others; nil where none has, or the layout doesn't
// tell. Every rank of a heavy stage works longer than every rank of the others, by more than ranks of
// one stage differ: that is the layout. Where all of them are on one node it may be the node, and nothing
// is said.
func (s *Stages) Finding() *verdict.Finding {
	if s.layout == nil {
		return nil
	}

	what := "compute"
	heavy, work := s.heavy(frame.FP)
	if work == nil {
		what = "own"
		heavy, work = s.heavy(frame.Self)
	} else if own := s.stages(frame.Self); own != nil && medianOf(own, heavy, true) < (1+(uneven-1)/2)*medianOf(own, heavy, false) {
		return nil // its forward passes wait inside
	}

	f := &verdict.Finding{Kind: verdict.StageImbalance, Stages: heavy, Ranks: []int{}}
	nodes := map[int32]bool{}
	for r, rank := range s.layout.Ranks {
		if g := s.layout.Role[r]; g >= 0 && s.layout.Present[r] && slices.Contains(heavy, s.layout.Roles[g].Stage) {
			f.Ranks = append(f.Ranks, rank)
			nodes[s.layout.Node[r]] = true
		}
	}

	if len(nodes) == 0 || len(nodes) == 1 && !nodes[frame.None] {
		return nil
	}

	least, most := medianOf(work, heavy, false), medianOf(work, heavy, true)
	f.Ratio = math.Round(most/least*1e3) / 1e3
	f.JobImpact = math.Round(s.saved(work, heavy)*1e4) / 1e4
	names, times := make([]string, len(heavy)), make([]string, len(work))
	for i, h := range heavy {
		names[i] = fmt.Sprint(h)
	}

	for i, w := range work {
		times[i] = fmt.Sprintf("%.4g ms", 1e3*robust.Median64(w))
	}

	steps := "1 step"
	if s.steps > 1 {
		steps = fmt.Sprintf("%d steps", s.steps)
	}

	f.Detail = fmt.Sprintf("every rank of stage %s takes longer than every rank of the others: %.2f times the %s time (%s a step by stage), seen in %s",
		strings.Join(names, ", "), f.Ratio, what, strings.Join(times, ", "), steps)
	return f
}

// stages are the mean times of a metric by stage, sorted; nil where they are not known of every rank.
func (s *Stages) stages(m frame.Metric) [][]float64 {
	work := make([][]float64, s.layout.Stages)
	for r, sum := range s.sum[m] {
		g := s.layout.Role[r]
		if g < 0 || !s.layout.Present[r] {
			continue
		}

		if !(sum > 0) {
			return nil
		}

		st := s.layout.Roles[g].Stage
		work[st] = append(work[st], sum/float64(s.steps))
	}

	for _, w := range work {
		if len(w) < stagePeers {
			return nil
		}

		slices.Sort(w)
	}

	return work
}

// heavy returns the stages whose time stands out from the others', and the times of all.
func (s *Stages) heavy(m frame.Metric) (stages []int, work [][]float64) {
	work = s.stages(m)
	for st := range work {
		var others []float64
		for i, w := range work {
			if i != st {
				others = append(others, robust.Median64(w))
			}
		}

		if robust.Median64(work[st]) >= uneven*robust.Median64(others) {
			stages = append(stages, st)
		}
	}

	if !heavier(work, stages) {
		return nil, work
	}

	return stages, work
}

// heavier reports whether all of the ranks of some stages lie above all of the others, by more than ranks of a
// stage differ.
func heavier(work [][]float64, stages []int) bool {
	low, high, spread := math.Inf(1), math.Inf(-1), 0.0
	for st, w := range work {
		spread = max(spread, w[len(w)-1]-w[0])
		if slices.Contains(stages, st) {
			low = min(low, w[0])
		} else {
			high = max(high, w[len(w)-1])
		}
	}

	return low-high > spread
}

// saved is the share of the step that an even split would save: no more than the other stages wait.
func (s *Stages) saved(work [][]float64, heavy []int) float64 {
	top, all := 0.0, 0.0
	for _, w := range work {
		top, all = max(top, robust.Median64(w)), all+robust.Median64(w)/float64(len(work))
	}

	steps := s.stages(frame.Step)
	if steps == nil {
		return 0
	}

	save := top - all
	if exposed := s.stages(frame.Exposed); exposed != nil {
		save = min(save, medianOf(exposed, heavy, false))
	}

	longest := 0.0
	for _, w := range steps {
		longest = max(longest, robust.Median64(w))
	}

	return save / longest
}

// medianOf is the median over the ranks of the named stages, or of the others.
func medianOf(work [][]float64, stages []int, named bool) float64 {
	var all []float64
	for st, w := range work {
		if slices.Contains(stages, st) == named {
			all = append(all, w...)
		}
	}

	return robust.Median64(all)
}
