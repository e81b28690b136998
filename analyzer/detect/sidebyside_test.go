package detect

import (
	"testing"

	"github.com/laggard-dev/laggard/schemas/verdict"
)

// TestSideBySide_ManyRanks is a job of so many ranks that its signals and links are
// followed side by side: one slow rank is named, and nobody else.
func TestSideBySide_ManyRanks(t *testing.T) {
	j := newJob(11)
	j.shape(1, apartRanks+48, 1, 8)
	j.steps = 60
	want := j.on(777, 12, effect{forward: 1.3, backward: 1.3}).nodes[0]
	v := Analyze(j.frame(), Default())
	if len(v.Nodes) != 1 || v.Nodes[0].Node != want || v.Nodes[0].State != verdict.Degraded {
		t.Fatalf("nodes %+v, want %s alone, degraded", v.Nodes, want)
	}
}
