package sequential

import (
	"math/rand/v2"
	"strings"
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
		{"a stage on one node", [4]float32{10, 15, 9, 8}, false},
		{"one rank of a stage on one node", [4]float32{1, 16, 0, 1}, true},
	} {
		cfg := threshold.Default()
		rows := make([]int32, first+4)
		for r := range rows {
			rows[r] = int32(r)
		}

		tr := New(&cfg, first+4, Units{Roles: [][]int32{rows[:first], rows[first:]}, Sizes: []int{first, 4}, Stage: []int32{0, 1}})
		for r := range rows {
			tr.Node, tr.spikes[r].Looked = append(tr.Node, int32(r/2)), 300
			if strings.HasSuffix(c.name, "on one node") {
				tr.Node[r] = int32(r / first)
			}
		}

		for k, n := range c.Counts {
			s := &tr.spikes[first+k]
			s.Slow, s.Episodes, s.Size[1] = n, n, n
		}

		if got := tr.Intermittent(first + 1); got != c.want {
			t.Errorf("%s: intermittent=%v, want %v", c.name, got, c.want)
		}
	}
}

// TestIntermittent_Lasts: who is a little slow for eighty steps, in most of them enough to be slow by one step alone, but
// not in every fifth, for somebody else was later then, does not come and go.
func TestIntermittent_Lasts(t *testing.T) {
	cfg := threshold.Default()
	rows := []int32{0, 1, 2, 3, 4, 5, 6, 7}
	for seed := range uint64(8) {
		rng := rand.New(rand.NewPCG(seed, 1))
		tr := New(&cfg, len(rows), Units{Roles: [][]int32{rows}, Sizes: []int{len(rows)}, Stage: []int32{0}, Node: rows})
		e := make([]float32, len(rows))
		for k := range 240 {
			for r := range e {
				if e[r] = float32(0.008 * rng.NormFloat64()); r == 3 && k >= 80 && k < 160 && k%5 > 0 {
					e[r] += 0.09
				}
			}

			tr.Observe(e, nil, int64(k), func(Episode) {})
		}

		if x := tr.Spikes(3); tr.Intermittent(3) {
			t.Errorf("seed %d: intermittent after %.0f slow steps in %.0f episodes", seed, x.Slow, x.Episodes)
		}
	}
}

// TestIntermittent_OnePassingTime: of fourteen slow steps every third is none, for somebody
// else was later then. That is one episode, which makes nobody intermittent; bursts of
// two steps every twenty are one each.
func TestIntermittent_OnePassingTime(t *testing.T) {
	for name, c := range map[string]struct {
		slow func(step int) bool
		want bool
	}{
		"once":            {func(k int) bool { return k >= 100 && k < 114 && k%3 > 0 }, false},
		"again and again": {func(k int) bool { return k >= 100 && k%20 < 2 }, true},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := threshold.Default()
			rows := []int32{0, 1, 2, 3, 4, 5, 6, 7}
			tr := New(&cfg, len(rows), Units{Roles: [][]int32{rows}, Sizes: []int{len(rows)}, Stage: []int32{0}})
			tr.Node = rows
			for k := range 300 {
				for r := range rows {
					slow := r == 3 && c.slow(k)
					tr.spikes[r].add(0.4, slow, !slow, int64(k))
				}
			}

			if got := tr.Intermittent(3); got != c.want {
				t.Errorf("intermittent=%v after %v slow steps in %v episodes, want %v", got, tr.spikes[3].Slow, tr.spikes[3].Episodes, c.want)
			}
		})
	}
}

// TestIntermittent_UnitsThatCannotTell: of all units but two nobody can tell in any step whether they are slow
// themselves. They are no healthy peers of one that has a slow step now and then, as the other one has.
func TestIntermittent_UnitsThatCannotTell(t *testing.T) {
	for name, c := range map[string]struct{ told, want bool }{"two can": {}, "all can": {told: true, want: true}} {
		tt, e := peers(16)
		leads := make([]bool, len(e))
		rng := rand.New(rand.NewPCG(5, 1))
		for step := range 400 {
			for r := range e {
				leads[r] = c.told || r < 2
				if e[r] = float32(0.005 * rng.NormFloat64()); r < 2 && (step+7*r)%25 == 24 {
					e[r] += 0.3
				}
			}

			tt.Observe(e, leads, int64(step), func(Episode) {})
		}

		if got := tt.Intermittent(0); got != c.want {
			t.Errorf("%s: intermittent=%v, want %v", name, got, c.want)
		}
	}
}

// TestIntermittent_NewerHardware: units on a newer node pause as often as others, and a pause of theirs hides behind
// what the older ones take in any step, so that nobody can be told to be slow himself. One of the older node that pauses
// half as often again as some of them is not slow again and again; one that pauses three times as often is.
func TestIntermittent_NewerHardware(t *testing.T) {
	for every, want := range map[int]bool{12: false, 6: true} {
		tt, e := peers(16)
		tt.Node = make([]int32, 16)
		leads := make([]bool, len(e))
		rng := rand.New(rand.NewPCG(5, 1))
		for step := range 400 {
			for r := range e {
				e[r], leads[r] = float32(0.005*rng.NormFloat64()), true
				tt.Node[r] = int32(r / 8)
				switch {
				case r == 0 && step%every == every-1:
					e[r] = 0.2
				case r >= 8 && (step+7*r)%18 == 0:
					e[r], leads[r] = 0.2, false
				}
			}

			tt.Observe(e, leads, int64(step), func(Episode) {})
		}

		if got := tt.Intermittent(0); got != want {
			t.Errorf("every %d steps: intermittent=%v, want %v", every, got, want)
		}
	}
}
