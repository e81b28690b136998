package rollup

import (
	"testing"

	"laggard/schemas/record"
)

// TestBackwardLessBlocked: a trainer that waits for gradients inside its backward
// call has not worked meanwhile; communication before backward and communication
// that says nothing leave it as it is.
func TestBackwardLessBlocked(t *testing.T) {
	backward := []interval{{from: 100, to: 200}, {from: 300, to: 400}}
	tests := []struct {
		name    string
		blocked []blocked
		want    int64
	}{
		{"nothing blocked", nil, 200},
		{"inside", []blocked{{from: 150, exposed: 30}, {from: 300, exposed: 20}}, 150},
		{"outside", []blocked{{from: 50, exposed: 30}, {from: 200, exposed: 30}, {from: 400, exposed: 30}}, 200},
		{"on the other side", []blocked{{from: 150, exposed: 30, side: record.Device}}, 200},
		{"more than there is", []blocked{{from: 150, exposed: 1000}}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			sum := sums{backward: 200}
			if got := sum.work(&scratch{backward: backward, blocked: tt.blocked}); got != tt.want {
				t.Errorf("work = %d, want %d", got, tt.want)
			}
		})
	}
}
