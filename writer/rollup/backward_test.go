package rollup

import (
	"slices"
	"testing"

	"github.com/laggard-dev/laggard/schemas/record"
)

// TestBackwardLessBlocked: a trainer that waits for gradients inside its backward
// call has not worked meanwhile; communication before backward and communication
// that says nothing leave it as it is.
func TestBackwardLessBlocked(t *testing.T) {
	backward := []interval{{from: 100, to: 200}, {from: 300, to: 400}}
	tests := []struct {
		name    string
		blocked []interval
		want    int64
	}{
		{"nothing blocked", nil, 200},
		{"inside", []interval{{from: 150, to: 180}, {from: 300, to: 320}}, 150},
		{"outside", []interval{{from: 50, to: 80}, {from: 200, to: 300}, {from: 400, to: 430}}, 200},
		{"partly inside", []interval{{from: 50, to: 120}, {from: 190, to: 310}}, 160},
		{"two at once", []interval{{from: 150, to: 180}, {from: 160, to: 190}}, 160},
		{"on the other side", []interval{{from: 150, to: 180, side: record.Device}}, 200},
		{"all of it", []interval{{from: 0, to: 1000}}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			sum := sums{backward: slices.Clone(backward), blocked: tt.blocked}
			if got := sum.work(); got != tt.want {
				t.Errorf("work = %d, want %d", got, tt.want)
			}
		})
	}
}
