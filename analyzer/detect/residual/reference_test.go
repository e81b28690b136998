package residual

import (
	"testing"

	"github.com/laggard-dev/laggard/analyzer/detect/robust"
	"github.com/laggard-dev/laggard/analyzer/frame"
)

// TestReference_ByTheSizeOfTheRole: the fastest of the others in roles of two and three,
// their median in larger ones, nobody where a rank is alone; a rank that was not measured
// has no residual and is no peer.
func TestReference_ByTheSizeOfTheRole(t *testing.T) {
	for _, c := range []struct {
		v, want []float32
		middle  float32
	}{
		{[]float32{7}, []float32{robust.NaN}, 7},
		{[]float32{1, 4}, []float32{-3, 3}, 2.5},
		{[]float32{1, 4, 9}, []float32{-3, 3, 8}, 4},
		{[]float32{1, 4, 9, 16}, []float32{-8, -5, 5, 12}, 6.5},
		{[]float32{1, robust.NaN, 9, 16}, []float32{-11.5, robust.NaN, 0.5, 11}, 9},
		{[]float32{robust.NaN, 4}, []float32{robust.NaN, robust.NaN}, 4},
	} {
		l := &frame.Layout{Roles: []frame.Role{{Size: len(c.v)}}}
		for r := range c.v {
			l.Roles[0].Rows = append(l.Roles[0].Rows, int32(r))
		}

		ref, out := NewReference(l), make([]float32, len(c.v))
		ref.Relative(c.v, out)
		for r, x := range out {
			if x != c.want[r] && (x == x || c.want[r] == c.want[r]) {
				t.Errorf("%v relative to peers: %v, want %v", c.v, out, c.want)
				break
			}
		}

		if ref.Middle[0] != c.middle {
			t.Errorf("%v: middle %v, want %v", c.v, ref.Middle[0], c.middle)
		}
	}
}
