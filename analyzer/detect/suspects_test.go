package detect

import (
	"testing"

	"github.com/laggard-dev/laggard/schemas/verdict"
)

// TestVerdict_Suspect holds that a fault is shown as a suspicion before it is
// confirmed, and that a suspicion changes neither health nor the exit code; and that
// what passes is shown as one at no later step.
func TestVerdict_Suspect(t *testing.T) {
	for _, c := range []struct {
		name string
		last int // of the slow steps
		want string
	}{
		{"a fault that stays", 1 << 20, verdict.Degraded},
		{"a passing one", 72, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := newJob(3)
			j.shape(4, 8, 1, 4)
			j.steps = 130
			bad := j.rank(1, 3, 0)
			j.fault = func(r, _, step int) effect {
				if r == bad && step >= 60 && step <= c.last {
					return effect{forward: 1.3, backward: 1.3}
				}

				return effect{}
			}
			cols := columns(j.frame())
			e := New(Default(), cols[0].Layout)
			suspectFrom, decidedAt, state := int64(0), int64(0), ""
			for _, col := range cols {
				e.Observe(col)
				v := e.Verdict()
				state = ""
				for _, n := range v.Nodes {
					if n.Node != nodeName(j.node(bad)) {
						t.Fatalf("step %d: %s is %s", col.Step, n.Node, n.State)
					}

					state = n.State
					if n.State != verdict.Suspect {
						if decidedAt == 0 {
							decidedAt = col.Step
						}

						continue
					}

					if suspectFrom == 0 {
						suspectFrom = col.Step
					}

					if len(n.Ranks) != 1 || n.Ranks[0] != bad || n.Cause != verdict.Compute || n.SinceStep < 59 || n.SinceStep > 61 || len(n.Evidence) == 0 {
						t.Fatalf("step %d: %+v", col.Step, n)
					}

					if !v.Healthy || v.Decided && v.Exit(0) != verdict.ExitHealthy {
						t.Fatalf("step %d: a suspicion changes the health: exit %d", col.Step, v.Exit(0))
					}
				}
			}

			if suspectFrom < 62 || suspectFrom > 72 {
				t.Errorf("suspect from step %d, want a few steps after 60", suspectFrom)
			}

			if state != c.want {
				t.Errorf("state at the end %q, want %q", state, c.want)
			}

			if c.want != "" && decidedAt <= suspectFrom {
				t.Errorf("decided at step %d, suspect from %d", decidedAt, suspectFrom)
			}
		})
	}
}
