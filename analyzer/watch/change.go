package watch

import (
	"encoding/json"
	"fmt"
	"math"

	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// States of rows of the table of verdicts beside those of verdict: a finding
// that is there, and anything that is no longer.
const (
	StatePresent = "present"
	StateEnded   = "ended"
)

// statement is what was said of one node, link or finding.
type statement struct {
	Node, Group, Finding string
	State, Cause         string
}

func (s statement) subject() statement {
	return statement{Node: s.Node, Group: s.Group, Finding: s.Finding}
}

// Change is a statement that is new or differs from what was said last.
type Change struct {
	Job  string
	Node string // "" for a link or finding
	// Group names a link, Finding the kind of a finding.
	Group, Finding string
	State, Cause   string  // StateEnded when it is no longer said
	Was            string  // state before, "" new
	Impact         float64 // at most, where groups aren't known
	Detail         string
	Body           any // verdict.Node, verdict.Link, verdict.Finding; nil when ended
}

// compare returns what changed from the statements said last to v, and the
// statements of v. Slowdown and impact drift from look to look; only another
// state or cause is a change.
func compare(said []statement, v *verdict.Verdict) ([]Change, []statement) {
	old := map[statement]statement{}
	for _, s := range said {
		old[s.subject()] = s
	}
	var now []statement
	var changes []Change
	say := func(s statement, c Change) {
		for i := range now {
			if now[i].subject() == s.subject() {
				return // two links of one name: the first speaks
			}
		}
		now = append(now, s)
		was, ok := old[s.subject()]
		delete(old, s.subject())
		if ok && was == s {
			return
		}
		c.Job, c.Node, c.Group, c.Finding, c.State, c.Cause, c.Was = v.Job, s.Node, s.Group, s.Finding, s.State, s.Cause, was.State
		changes = append(changes, c)
	}
	for i := range v.Nodes {
		n := v.Nodes[i]
		say(statement{Node: n.Node, State: n.State, Cause: n.Cause}, Change{Impact: n.Most(), Detail: n.Detail, Body: n})
	}
	for _, l := range v.Links {
		name := l.Group
		if name == "" {
			name = fmt.Sprint(l.Ranks)
		}
		say(statement{Group: name, State: l.State, Cause: verdict.Communication}, Change{Impact: l.JobImpact, Detail: l.Detail, Body: l})
	}
	for _, f := range v.Findings {
		say(statement{Finding: f.Kind, State: StatePresent}, Change{Impact: f.JobImpact, Detail: f.Detail, Body: f})
	}
	for _, s := range said { // in the order they were said
		if was, ok := old[s.subject()]; ok {
			delete(old, s.subject())
			changes = append(changes, Change{Job: v.Job, Node: was.Node, Group: was.Group, Finding: was.Finding,
				State: StateEnded, Cause: was.Cause, Was: was.State})
		}
	}
	return changes, now
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
