package frame

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/laggard-dev/laggard/schemas/row"
)

// TestOffTimes: what ranks say of it becomes stretches of the job; a process that took a
// rank's place ends what its predecessor left open.
func TestOffTimes(t *testing.T) {
	rank := func(rank uint32, started int64, off ...string) *row.Rank {
		return &row.Rank{Rank: rank, Incarnation: uint64(started), StartedNs: started, Off: off}
	}
	for _, tt := range []struct {
		name  string
		ranks []*row.Rank
		want  []Off
	}{
		{"never", []*row.Rank{rank(0, 1), rank(1, 1)}, nil},
		{"all, a little apart", []*row.Rank{rank(0, 1, "100:200"), rank(1, 1, "105:195")}, []Off{{100, 200, []int{0, 1}, true}}},
		{"twice", []*row.Rank{rank(0, 1, "100:200", "300:400")}, []Off{{100, 200, []int{0}, true}, {300, 400, []int{0}, true}}},
		{"one rank", []*row.Rank{rank(0, 1), rank(1, 1, "100:")}, []Off{{100, 0, []int{1}, false}}},
		{"still", []*row.Rank{rank(1, 1, "100:110", "150:"), rank(0, 1, "151:")}, []Off{{100, 110, []int{1}, false}, {150, 0, []int{0, 1}, true}}},
		{"until it was started again", []*row.Rank{rank(0, 500), rank(0, 1, "100:")}, []Off{{100, 500, []int{0}, true}}},
		{"nonsense", []*row.Rank{rank(0, 1, "", "x:y", "100", "100:x", ":")}, nil},
	} {
		if d := cmp.Diff(tt.want, OffTimes(tt.ranks)); d != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, d)
		}
	}
}
