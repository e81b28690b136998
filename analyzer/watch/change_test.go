package watch

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// TestCompare follows one job from look to look: what is said of it is said once, again
// when its cost has left its tolerance, and the job comes last with every change.
func TestCompare(t *testing.T) {
	v := verdict.New("j")
	slow := verdict.Node{Node: "node-1", State: verdict.Degraded, Cause: verdict.Compute, JobImpact: 0.02}
	var said []statement
	look := func(name string, want ...string) []Change {
		t.Helper()
		changes, now := compare(said, v)
		said = now
		var got []string
		for _, c := range changes {
			got = append(got, c.Node+c.Finding+" "+c.State)
		}

		if !slices.Equal(got, want) {
			t.Errorf("%s: said %q, want %q", name, got, want)
		}

		return changes
	}
	look("nothing is decided", " undecided")
	v.Decided, v.Healthy = true, true
	look("healthy", " healthy")
	look("still healthy")
	v.Nodes, v.JobImpact, v.Healthy = []verdict.Node{slow}, 0.02, false
	for _, c := range look("a culprit", "node-1 degraded", " unhealthy") {
		if c.Impact != 0.02 {
			t.Errorf("%q costs %v, want 0.02", c.Node, c.Impact)
		}
	}

	v.Nodes[0].JobImpact, v.JobImpact = 0.024, 0.024
	look("its cost drifts")
	v.Nodes[0].JobImpact, v.JobImpact = 0.0255, 0.0255
	look("its cost drifted on", "node-1 degraded", " unhealthy")
	v.JobImpact = 0.04
	last := look("all together cost more", " unhealthy")
	r := last[0].row(7, 8)
	var body verdict.Verdict
	if err := json.Unmarshal([]byte(r.Body), &body); err != nil || body.JobImpact != 0.04 || len(body.Nodes) != 1 {
		t.Errorf("body of the job's row: %q, %v", r.Body, err)
	}

	if r.ImpactPPM != 40000 || r.State != StateUnhealthy || r.Detail != "Degraded: node-1 slows this job down." {
		t.Errorf("the job's row: %+v", r)
	}

	v.Nodes, v.JobImpact, v.Healthy = nil, 0, true
	look("it is gone", "node-1 ended", " healthy")
	v.Findings = []verdict.Finding{{Kind: verdict.JobSlow}}
	look("a finding", "job-slow present", " healthy")
}

// TestMessageKey: a message's key is that of what it says, whoever says it, when, and at what
// cost; of another episode, and where the job's state alone changed at another step, it differs.
func TestMessageKey(t *testing.T) {
	v := verdict.New("j")
	key := func(said []statement, since, last int64, impact float64) string {
		t.Helper()
		v.Steps.Last, v.JobImpact = last, impact
		v.Nodes = []verdict.Node{{Node: "node-1", State: verdict.Degraded, Cause: verdict.Compute, JobImpact: impact, SinceStep: since}}
		changes, _ := compare(said, v)
		return MessageKey(changes)
	}
	v.Decided = true
	first := key(nil, 20, 70, 0.02)
	if later := key(nil, 20, 75, 0.03); later != first {
		t.Errorf("another watcher's message of the episode has key %s, want %s", later, first)
	}

	if next := key(nil, 90, 120, 0.02); next == first {
		t.Errorf("the next episode has the key of the first: %s", next)
	}

	r := row.Verdict{Job: "j", Node: "node-1", State: verdict.Degraded, Cause: verdict.Compute, Step: 70, Body: `{"since_step":20}`}
	v.Nodes = nil
	ended := func(since int64) string {
		changes, _ := compare([]statement{{Node: "node-1", State: verdict.Degraded, Cause: verdict.Compute, Since: since}}, v)
		return MessageKey(changes)
	}
	changes, _ := compare([]statement{statementOf(&r)}, v)
	if got := MessageKey(changes); got != ended(20) || got == ended(90) {
		t.Errorf("the end of an episode that another watcher said has key %s, want %s and not %s", got, ended(20), ended(90))
	}

	alone := func(step int64) string {
		v.Steps.Last = step
		changes, _ := compare(nil, v)
		return MessageKey(changes)
	}
	if alone(10) == alone(20) {
		t.Error("the job alone has one key for ever")
	}
}
