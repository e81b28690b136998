package frame

import (
	"errors"
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

// TestStepsOff: steps that nobody recorded because recording was off are counted; other
// gaps are none of ours.
func TestStepsOff(t *testing.T) {
	build := func(off ...string) *Frame {
		t.Helper()
		b := NewBuilder()
		for rank := range uint32(2) {
			b.AddRank(&row.Rank{Job: "j", Rank: rank, Incarnation: 7 + uint64(rank), WorldSize: 2, StartedNs: 1, Version: 1, Off: off})
			for _, step := range []uint64{1, 2, 3, 4, 5, 21, 22, 23, 24, 25} {
				b.AddStep(&row.Step{Job: "j", Rank: rank, Incarnation: 7 + uint64(rank), Step: step, StartNs: int64(step) * 1000, StepNs: 900, FPNs: 1})
			}
		}
		f, err := b.Build(nil)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	for _, tt := range []struct {
		off  []string
		want int
	}{
		{nil, 0}, {[]string{"6500:20500"}, 15}, {[]string{"2500:2600"}, 0}, {[]string{"26000:"}, 0},
	} {
		got := 0
		_ = build(tt.off...).Each(func(c *Column) error {
			got += c.Off
			return nil
		})
		if got != tt.want {
			t.Errorf("off %q: %d steps, want %d", tt.off, got, tt.want)
		}
	}
	b := NewBuilder()
	if _, err := b.Build(nil); !errors.Is(err, ErrEmpty) {
		t.Errorf("nothing at all: %v", err)
	}
	b.AddRank(&row.Rank{Job: "j", Incarnation: 7, WorldSize: 1, StartedNs: 1, Version: 1, Off: []string{"5:"}})
	if f, err := b.Build(nil); err != nil || len(f.Off) != 1 || f.Job != "j" {
		t.Errorf("off from the start: %+v, %v", f, err)
	}
}
