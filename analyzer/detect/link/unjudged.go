package link

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
	"github.com/laggard-dev/laggard/analyzer/frame"
)

// Unjudged says why a slow link may stay hidden, "" where it would not: collectives of more than two
// ranks are recorded without the name of their group, one is slow for longer than a moment but
// may be a gust, or a group was slow in too few steps to be compared with its equals.
func (w *Watch) Unjudged() string {
	if slices.ContainsFunc(w.groups, func(g frame.Group) bool { return g.Name == "" && len(g.Rows) > 2 }) {
		return "the recording does not name the groups of ranks that collectives are of: a slow link between some ranks can't be seen in it"
	}

	for g := range w.groups {
		if len(w.groups[g].Rows) == w.n {
			continue // it sets no link apart, slow or not
		}

		// In half of them a gust in a thousand is as long.
		if !w.slow[g] && 2*w.passes[g] >= w.need(g) && w.passes[g] >= threshold.Confirmations {
			return soFar(w.groups[g].Name, w.since[g], float64(w.rise[g]))
		}

		if w.doubtful(g) {
			return fmt.Sprintf("transfers in %s take more than %d times as long as in groups that move as much: too few groups to tell a slow link from a slower network", Called(w.groups[g].Name), wireQuickest)
		}
	}

	for _, key := range slices.Sorted(maps.Keys(w.wires)) {
		x := w.wires[key]
		if 2*x.slowSteps() >= wireRisen && !x.Slow && !w.roseTogether(x) {
			return soFar(x.Name, x.Since, x.Rise)
		}

		if x.Doubt >= wireSteps && !x.Slow {
			return fmt.Sprintf("transfers in %s take longer than in groups of equal volume, in %d steps: too few to tell a slow link from what such groups differ by", Called(x.Name), x.Doubt)
		}
	}

	return ""
}

// Busy reports whether the transfers of some group were longer than they used to be when they were last compared.
func (w *Watch) Busy() bool {
	if len(w.busy) > 0 {
		return true
	}

	for _, x := range w.wires {
		if x.BaseN >= wireBase && x.latest()-x.Base >= math.Log1p(w.cfg.LinkRise) {
			return true
		}
	}

	return false
}

// soFar says that a group has been slow since a step, by a logarithm, but not for long enough.
func soFar(name string, since int64, rise float64) string {
	return fmt.Sprintf("since step %d transfers in %s take %.1f times as long as before: congestion that passes, or a slow link; more steps will tell",
		since, Called(name), math.Exp(rise))
}

// Called is how a sentence calls a group of that name, which may be "".
func Called(name string) string {
	if name != "" {
		return "group " + name
	}

	return "one group"
}
