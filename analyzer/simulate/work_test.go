package simulate

import (
	"math"
	"testing"
)

// A replica with more work takes as much longer on each of its ranks, and records as many more tokens.
func TestWork_Replicas(t *testing.T) {
	for name, w := range map[string]Work{"even": {}, "uneven": {SequenceSD: 0.05}} {
		t.Run(name, func(t *testing.T) {
			w.Replicas, w.Tokens = []float64{1, 1.2, 1, 1}, 1_000_000
			c := Config{Steps: 200, Shape: Shape{DP: 4, PP: 2, RanksPerNode: 4}, Work: w}
			rows, _ := mustRows(t, c)
			var forward, tokens [8]float64
			for i := range rows.Steps {
				x := &rows.Steps[i]
				forward[x.Rank] += float64(x.FPNs)
				tokens[x.Rank] += float64(x.Tokens)
			}

			for _, more := range []int{1, 5} {
				if f, n := forward[more]/forward[more+1], tokens[more]/tokens[more+1]; math.Abs(f-1.2) > 0.03 || math.Abs(n-1.2) > 0.03 {
					t.Errorf("rank %d: forward passes %.3f times as long, %.3f times the tokens, want 1.2", more, f, n)
				}
			}
		})
	}
}
