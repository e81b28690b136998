package verdict

import "testing"

// TestExit_EquallySlowNodes: two nodes of which each alone costs nothing, for the other
// is as slow, are harmful together; a small one beside a large one is not.
func TestExit_EquallySlowNodes(t *testing.T) {
	two := &Verdict{Decided: true, JobImpact: 0.2, Nodes: []Node{{State: Degraded, JobImpact: 0.002}, {State: Degraded, JobImpact: 0.001}}}
	if got := two.Exit(0.01); got != ExitDegraded {
		t.Errorf("Exit()=%d, want %d", got, ExitDegraded)
	}

	if got := two.Counts(&two.Nodes[1], 0.01); got != 0.2 {
		t.Errorf("Counts()=%v, want 0.2", got)
	}

	one := &Verdict{Decided: true, JobImpact: 0.2, Nodes: []Node{{State: Degraded, JobImpact: 0.2}, {State: Degraded, JobImpact: 0.001}}}
	if got := one.Counts(&one.Nodes[1], 0.01); got != 0.001 {
		t.Errorf("Counts()=%v beside a harmful one, want 0.001", got)
	}
}
