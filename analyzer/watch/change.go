package watch

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/laggard-dev/laggard/analyzer/report"
	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// States of rows of the table of verdicts beside those of verdict: a finding
// that is there, anything that is no longer, and those of the job itself.
const (
	StatePresent   = "present"
	StateEnded     = "ended"
	StateHealthy   = "healthy"
	StateUnhealthy = "unhealthy" // exit code 3
	StateUndecided = "undecided" // exit code 4
)

// statement is what was said of one node, link or finding, or, with none of the three
// names, of the job. Group names a link, Finding is the kind of a finding.
type statement struct {
	Node, Group, Finding string
	State, Cause         string  // StateEnded when it is no longer said
	Impact               float64 // at most, where groups aren't known
	// Since is the first step of the episode; of what has none the step it was said at.
	Since int64
}

// subject is of whom a statement is, without what it says.
func (s statement) subject() statement {
	return statement{Node: s.Node, Group: s.Group, Finding: s.Finding}
}

// repeats reports whether s says what was said: the same state and cause, and a cost
// within the tolerance of the cost itself. What was stored last may be read long after.
func (s statement) repeats(was statement) bool {
	return s.State == was.State && s.Cause == was.Cause && math.Abs(s.Impact-was.Impact) <= max(0.005, 0.15*was.Impact)
}

// Change is a statement that is new or differs from what was said last.
type Change struct {
	Job string
	statement
	Was    string // state before, "" new
	Detail string
	Body   any // verdict.Node, verdict.Link, verdict.Finding, *verdict.Verdict; nil when ended
}

// compare returns what changed from the statements said last to v, and the
// statements of v. Slowdown drifts from look to look and is no change; cost is one
// once it has left its tolerance.
func compare(said []statement, v *verdict.Verdict) ([]Change, []statement) {
	// By subject. What is left in it at the end is no longer said.
	old := map[statement]statement{}
	for _, s := range said {
		old[s.subject()] = s
	}

	var now []statement
	var changes []Change
	say := func(s statement, detail string, body any) {
		if slices.ContainsFunc(now, func(x statement) bool { return x.subject() == s.subject() }) {
			return // two links of one name: the first speaks
		}

		was, ok := old[s.subject()]
		delete(old, s.subject())
		if job := s.subject() == (statement{}); ok && s.repeats(was) && !(job && len(changes) > 0) {
			// The statement of before stays: by it the next look measures how far cost has drifted.
			now = append(now, was)
			return
		}

		now = append(now, s)
		changes = append(changes, Change{v.Job, s, was.State, detail, body})
	}
	for _, n := range v.Nodes {
		say(statement{Node: n.Node, State: n.State, Cause: n.Cause, Impact: n.Most(), Since: n.SinceStep}, n.Detail, n)
	}

	for _, l := range v.Links {
		name := l.Group
		if name == "" {
			name = fmt.Sprint(l.Ranks)
		}

		say(statement{Group: name, State: l.State, Cause: verdict.Communication, Impact: l.Most(), Since: l.SinceStep}, l.Detail, l)
	}

	for _, f := range v.Findings {
		say(statement{Finding: f.Kind, State: StatePresent, Impact: f.JobImpact, Since: v.Steps.Last}, f.Detail, f)
	}

	for _, s := range said { // in the order they were said
		if was, ok := old[s.subject()]; ok && s.subject() != (statement{}) {
			s = was.subject()
			s.State, s.Cause, s.Since = StateEnded, was.Cause, was.Since
			changes = append(changes, Change{Job: v.Job, statement: s, Was: was.State})
		}
	}

	// The job comes last: it is said again with every change, so that what all culprits
	// cost together stands beside what each does.
	say(statement{State: stateOf(v), Impact: v.Most(), Since: v.Steps.Last}, report.Headline(v), v)
	return changes, now
}

// MessageKey names what changes of one job say, whoever says it and when: of each node, link
// and finding its state, its cause and the first step of its episode. What it costs is left
// out. The job's own state counts only where it changed alone: it is said with each change.
func MessageKey(changes []Change) string {
	var parts []string
	for i, c := range changes {
		if i == 0 || c.subject() != (statement{}) {
			parts = append(parts, c.Job, c.Node, c.Group, c.Finding, c.State, c.Cause, strconv.FormatInt(c.Since, 10))
		}
	}

	return record.HashID(parts...).String()
}

// stateOf is the state of the job itself.
func stateOf(v *verdict.Verdict) string {
	switch {
	case !v.Decided:
		return StateUndecided
	case v.Healthy:
		return StateHealthy
	}

	return StateUnhealthy
}

// row makes the change a row of the table of verdicts. Its time is that of the
// step it was decided at, so that a change that is sent again is the same row.
func (c *Change) row(at int64, step int64) row.Verdict {
	r := row.Verdict{Job: c.Job, AtNs: at, Step: uint64(max(0, step)), Node: c.Node, Finding: c.Finding, Group: c.Group,
		State: c.State, Cause: c.Cause, Detail: c.Detail, ImpactPPM: uint32(math.Round(min(1, max(0, c.Impact)) * 1e6))}
	if c.Body != nil {
		body, err := json.Marshal(c.Body)
		if err != nil {
			panic("BUG: marshal verdict: " + err.Error())
		}

		r.Body = string(body)
	}

	return r
}
