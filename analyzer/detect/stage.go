package detect

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/laggard-dev/laggard/analyzer/detect/history"
	"github.com/laggard-dev/laggard/analyzer/detect/level"
	"github.com/laggard-dev/laggard/analyzer/detect/robust"
	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// stageFinding compares the stages' usual times: the same stage long on all
// replicas is the layout's fault.
func (e *Engine) stageFinding(v *verdict.Verdict) {
	if e.layout.Stages < 2 {
		return
	}

	for _, s := range []signal{compute, own} {
		times := e.level.ByStage(int(s), e.layout.Stages)
		if len(times) < 2 {
			continue
		}

		limit := stageRatio
		if s == own {
			limit = stageSelfRatio
		}

		stages, ratio, share := heavy(times, limit)
		if s == compute && !e.heavyItself(stages) {
			return // its forward passes wait inside: for a slow rank, not for its layers
		}

		if slices.ContainsFunc(stages, e.becameHeavy) {
			return // nobody moved layers meanwhile
		}

		if len(stages) == 0 {
			return
		}

		excess := share * e.stageBusy(stages)
		if excess < level.LeastImpact {
			return // the better signal decides
		}

		impact := e.costs.UnevenStages(excess)
		f := verdict.Finding{Kind: verdict.StageImbalance, JobImpact: impact, Stages: stages, Ratio: math.Round(ratio*1e3) / 1e3}
		for r := range e.n {
			if g := e.layout.Role[r]; g >= 0 && slices.Contains(stages, e.layout.Roles[g].Stage) {
				f.Ranks = append(f.Ranks, e.layout.Ranks[r])
			}
		}

		f.Detail = stageSentence(s, times, stages, ratio, impact, e.layout.Certain)
		addFinding(v, f)
		return
	}
}

// becameHeavy reports whether ranks of a stage take longer beside the other stages than they did, or than others did for it
// on another node.
func (e *Engine) becameHeavy(stage int) bool {
	for g := range e.layout.Roles {
		if e.layout.Roles[g].Stage == stage && (e.alone[compute].Active(g) || e.alone[own].Active(g)) {
			return true
		}
	}

	return false
}

// heavyItself reports whether own time, where it is known, agrees at least half
// way that the stages are heavy.
func (e *Engine) heavyItself(stages []int) bool {
	times := e.level.ByStage(int(own), e.layout.Stages)
	if len(times) < 2 || len(stages) == 0 {
		return true
	}

	also, _, _ := heavy(times, 1+(stageRatio-1)/2)
	return slices.ContainsFunc(stages, func(s int) bool { return slices.Contains(also, s) })
}

// heavy returns the stages that take limit times the median of the others or
// more, the ratio of the heaviest, and the share of its time that an even split
// would save.
func heavy(times []float64, limit float64) (stages []int, worst, share float64) {
	for s, t := range times {
		others := slices.Delete(slices.Clone(times), s, s+1)
		r := t / robust.Median64(others)
		if r >= limit {
			stages = append(stages, s)
			worst = max(worst, r)
		}
	}

	sum := 0.0
	for _, t := range times {
		sum += t
	}

	top := slices.Max(times)
	return stages, worst, 1 - sum/float64(len(times))/top
}

// stageBusy is the share of the step in which the heavy stages work.
func (e *Engine) stageBusy(stages []int) float64 {
	if len(stages) == 0 || e.stepMedian <= 0 {
		return 0
	}

	var rows []int32
	for g := range e.layout.Roles {
		if slices.Contains(stages, e.layout.Roles[g].Stage) {
			rows = append(rows, e.layout.Roles[g].Rows...)
		}
	}

	rows = history.Sample(rows)
	if x := e.recent.Over(frame.Self, rows, threshold.Window, nil); x == x {
		return min(1, x/e.stepMedian)
	}

	x := e.recent.Over(frame.FP, rows, threshold.Window, nil)
	if b := e.recent.Over(frame.Backward, rows, threshold.Window, nil); b == b {
		x += b
	} else {
		x *= 3
	}

	if x != x {
		return 1
	}

	return min(1, x/e.stepMedian)
}

func stageSentence(s signal, times []float64, stages []int, ratio, impact float64, certain bool) string {
	what := "compute"
	if s == own {
		what = "own"
	}

	var b strings.Builder
	fmt.Fprintf(&b, "stage %s takes %.2f times the %s time of the other stages on every replica (%s a step by stage)", list("%d", stages), ratio, what, list("%.4g s", times))
	switch {
	case impact < 0.005: // in words 0 %
		b.WriteString("; an even split would save nothing: with so few micro-batches the pipeline takes as long either way")
	case len(stages) == 1:
		mean := 0.0
		for _, t := range times {
			mean += t / float64(len(times))
		}

		fmt.Fprintf(&b, ": move about %.0f %% of its layers to the others", 100*(1-mean/times[stages[0]]))
	}

	if !certain {
		b.WriteString("; stages were guessed from times, no groups are known")
	}

	return b.String()
}

// list puts values into words, each in that format.
func list[T int | float64](format string, v []T) string {
	var s []string
	for _, x := range v {
		s = append(s, fmt.Sprintf(format, x))
	}

	return strings.Join(s, ", ")
}
