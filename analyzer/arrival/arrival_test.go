package arrival

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/laggard-dev/laggard/schemas/row"
)

// played is a job whose ranks enter so much after the first of them, by clocks that are off by so
// much, ns. Collectives end within a µs.
func played(late, off []int64, groups [][]int, steps int) *Job {
	random := rand.New(rand.NewPCG(1, 2))
	j := NewJob()
	for rank := range late {
		r := row.Rank{Rank: uint32(rank), Node: fmt.Sprintf("n%d", rank)}
		for k, g := range groups {
			var members []uint32
			in := false
			for _, m := range g {
				members = append(members, uint32(m))
				in = in || m == rank
			}

			if in {
				r.Groups = append(r.Groups, fmt.Sprintf("dp:g:%d:0:%d", k, len(g)))
				r.GroupRanks = append(r.GroupRanks, members)
			}
		}

		j.Take([]row.Rank{r}, nil)
	}

	for step := range steps {
		for k, g := range groups {
			at := int64(step*1e9 + k*1e8)
			last := int64(0)
			for _, m := range g {
				last = max(last, late[m])
			}

			for _, m := range g {
				start := at + late[m] + off[m]
				end := at + last + 1e6 + random.Int64N(1000) + off[m]
				j.Take(nil, []row.Record{{Rank: uint32(m), Kind: "Communication", Op: "allreduce", Group: fmt.Sprintf("g:%d", k), Step: int64(step), StartNs: start, DurNs: end - start}})
			}
		}
	}

	return j
}

// Clocks that are seconds apart change nothing.
func TestOrderWhateverTheClocks(t *testing.T) {
	late := []int64{0, 4e6, 1e6, 7e6}
	all := [][]int{{0, 1, 2, 3}}
	for _, off := range [][]int64{{0, 0, 0, 0}, {0, 3e9, -2e9, 1e6}, {5e9, 5e9, 5e9, -5e9}} {
		a := played(late, off, all, 3).Order()
		if a.Collectives != 3 || a.Steps != 3 || !a.Clear || a.Unsure > 3e-6 {
			t.Errorf("%+v", a)
		}

		for i, rank := range []int{3, 1, 2, 0} {
			r := a.Ranks[i]
			if r.Rank != rank || r.Node != fmt.Sprintf("n%d", rank) || abs(r.Late-float64(late[rank])/1e9) > 3e-6 || abs(r.Waited-(7e-3-float64(late[rank])/1e9)) > 3e-6 {
				t.Errorf("clocks %v: place %d: %+v, want rank %d", off, i, r, rank)
			}

			if (r.Last == 3) != (rank == 3) {
				t.Errorf("rank %d was last %d times", r.Rank, r.Last)
			}
		}

		if d := a.Ranks[0].Offset - a.Ranks[3].Offset; abs(d-float64(off[3]-off[0])/1e9) > 3e-6 {
			t.Errorf("clocks %v: ranks 3 and 0 differ by %v s", off, d)
		}
	}
}

// Ranks that meet only over others are aligned over them.
func TestOrderOverGroups(t *testing.T) {
	late := []int64{0, 2e6, 0, 5e6}
	a := played(late, []int64{0, 1e9, 3e9, -1e9}, [][]int{{0, 1}, {1, 2}, {2, 3}}, 4).Order()
	if a == nil || a.Unsure > 5e-6 || a.Ranks[0].Rank != 3 && a.Ranks[0].Rank != 1 {
		t.Fatalf("%+v", a)
	}

	for _, r := range a.Ranks {
		if want := map[int]float64{0: 0, 1: 2e-3, 2: 0, 3: 5e-3}[r.Rank]; abs(r.Late-want) > 1e-5 {
			t.Errorf("rank %d is late by %v s, want %v", r.Rank, r.Late, want)
		}
	}
}

// Where nobody is later than clocks are sure of, it says so; where nothing is shared, nothing.
func TestNothingToTell(t *testing.T) {
	if a := played([]int64{0, 0, 0}, []int64{0, 1e9, 0}, [][]int{{0, 1, 2}}, 5).Order(); a == nil || a.Clear {
		t.Errorf("nobody is late, and %+v", a)
	}

	j := NewJob()
	j.Take(nil, []row.Record{{Rank: 1, Kind: "Communication", Op: "allreduce", DurNs: 5}, {Rank: 2, Kind: "Communication", Op: "send", DurNs: 5}, {Rank: 3, Kind: "Step"}})
	if a := j.Order(); a != nil {
		t.Errorf("%+v", a)
	}
}

func abs(x float64) float64 { return max(x, -x) }
