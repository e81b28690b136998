package detect

import (
	"math"
	"slices"

	"github.com/laggard-dev/laggard/analyzer/detect/robust"
	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
)

// pace follows how long a step of the job takes. It tells single steps that are an
// event of their own (an evaluation, a stall) from a job that has changed: what
// newLevel steps in a row have in common is the new level.
type pace struct {
	Past []float64 // seconds of the last steps that counted, at most window
	Next int       // where the next one goes
	Far  []float64 // steps in a row beyond the bound, seconds
}

// take takes the time of a step, seconds, and reports whether it counts. A new level
// replaces all that was known of the old one.
func (p *pace) take(t, usual float64) bool {
	if usual > 0 && math.Abs(math.Log(t/usual)) > math.Log(quarantine) {
		p.Far = append(p.Far, t)
		if len(p.Far) < newLevel {
			return t < usual // a short step costs nobody anything
		}

		*p = pace{Past: p.Far, Next: len(p.Far)}
		return true
	}

	p.Far = nil
	return true
}

// median adds a step that counted and returns the median of those known, seconds.
func (p *pace) median(t float64) float64 {
	if len(p.Past) < threshold.Window {
		p.Past = append(p.Past, t)
	} else {
		p.Past[p.Next%threshold.Window] = t
	}

	p.Next++
	return robust.Median64(p.Past)
}

// between is what a step takes between those in which somebody is slow who comes and goes, seconds.
func (p *pace) between() float64 {
	if len(p.Past) == 0 {
		return 0
	}

	past := slices.Sorted(slices.Values(p.Past))
	return past[int((1-threshold.SlowShare)*float64(len(past)))]
}
