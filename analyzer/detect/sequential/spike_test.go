package sequential

import (
	"testing"

	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
)

// TestIntermittent_ShareOfTheStage counts slow steps of ranks of two stages. Where the
// ranks of the last stage all have some, twelve are no more than one's share.
func TestIntermittent_ShareOfTheStage(t *testing.T) {
	const first = 28 // ranks of stage 0, none of which is ever slow; two ranks a node
	for _, c := range []struct {
		name   string
		Counts [4]float32 // of stage 1
		want   bool
	}{
		{"one rank", [4]float32{1, 16, 0, 1}, true},
		{"its stage as well", [4]float32{7, 12, 9, 7}, false},
		{"its whole host", [4]float32{15, 16, 0, 1}, true},
	} {
		cfg := threshold.Default()
		rows := make([]int32, first+4)
		for r := range rows {
			rows[r] = int32(r)
		}

		tr := New(&cfg, first+4, Units{Roles: [][]int32{rows[:first], rows[first:]}, Sizes: []int{first, 4}, Stage: []int32{0, 1}})
		for r := range rows {
			tr.Node, tr.slowly.Looked[r] = append(tr.Node, int32(r/2)), 300
		}

		for _, list := range [][]float32{tr.slowly.Slow, tr.slowly.Episodes, tr.slowly.Size[1]} {
			copy(list[first:], c.Counts[:])
		}

		if got := tr.Intermittent(first + 1); got != c.want {
			t.Errorf("%s: intermittent=%v, want %v", c.name, got, c.want)
		}
	}
}
