package feed

import "testing"

// TestFindOverlap tells two runs from processes that follow each other, from one that
// lives on while its successor works, and from clocks that differ.
func TestFindOverlap(t *testing.T) {
	const s = int64(1e9)
	at := func(rank uint32, from, to int64, steps int32) *process {
		return &process{Rank: rank, ID: uint64(from), EarlyNs: 1000*s + from*s, LateNs: 1000*s + to*s, Steps: steps}
	}
	for _, tt := range []struct {
		name  string
		list  []*process
		found int // ranks
		mixed bool
	}{
		{"one after the other", []*process{at(0, 0, 100, 100), at(0, 101, 200, 100), at(1, 0, 100, 100), at(1, 101, 200, 100)}, 0, false},
		{"the old one lives on for some steps", []*process{at(0, 0, 106, 106), at(0, 100, 200, 100)}, 0, false},
		{"the successor's clock is behind", []*process{at(0, 0, 100, 100), at(0, 60, 300, 240)}, 0, false},
		{"two runs", []*process{at(0, 0, 100, 100), at(0, 10, 90, 40), at(1, 0, 100, 100), at(1, 10, 90, 40)}, 2, true},
		{"the second begins later", []*process{at(0, 0, 100, 100), at(0, 40, 300, 260), at(1, 0, 100, 100), at(1, 40, 300, 260)}, 2, true},
		{"a short third within the first", []*process{at(0, 0, 300, 300), at(0, 310, 320, 10), at(0, 100, 130, 30)}, 1, false},
		{"one rank", []*process{at(3, 0, 100, 100), at(3, 0, 100, 100)}, 1, false},
		{"hardly a step", []*process{at(0, 0, 100, 100), at(0, 10, 90, 3)}, 0, false},
		{"no times", []*process{{Rank: 0, Steps: 100}, {Rank: 0, Steps: 100}}, 0, false},
	} {
		o := findOverlap(tt.list, 4)
		found, mixed := 0, false
		if o != nil {
			found, mixed = len(o.Ranks), o.Mixed
		}

		if found != tt.found || mixed != tt.mixed {
			t.Errorf("%s: %d ranks, mixed %v, want %d, %v", tt.name, found, mixed, tt.found, tt.mixed)
		}
	}
}
