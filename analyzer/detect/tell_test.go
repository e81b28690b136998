package detect

import (
	"testing"

	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// TestTell: without anything to tell a verdict stays as it is; of a mixture nothing else is said, whether somebody
// analyzes or watches.
func TestTell(t *testing.T) {
	v := verdict.New("j")
	v.Decided, v.Healthy = true, true
	Tell(v, nil, nil)
	if !v.Decided || len(v.Findings) > 0 {
		t.Errorf("nothing to tell: %+v", v)
	}

	off := []frame.Off{{FromNs: 1e18, ToNs: 2e18, All: true}}
	Tell(v, off, &frame.Overlap{Ranks: []int{0, 1}, Who: [2]string{"a", "b"}})
	if !v.Decided || len(v.Findings) != 2 {
		t.Errorf("two runs of some ranks, and recording was off: %+v", v)
	}

	Tell(v, off, &frame.Overlap{Ranks: []int{0, 1}, Who: [2]string{"a", "b"}, Mixed: true})
	if v.Decided || len(v.Findings) != 1 || v.Findings[0].Kind != verdict.OverlappingRuns {
		t.Errorf("a mixture: %+v", v)
	}
}
