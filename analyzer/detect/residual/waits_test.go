package residual

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/laggard-dev/laggard/analyzer/frame"
)

// grid is eight replicas of eight tensor ranks.
func grid() *frame.Layout {
	const side = 8
	l := &frame.Layout{Stages: 1, Roles: make([]frame.Role, side)}
	for r := range side * side {
		q, at := r/side, r%side
		l.Ranks, l.Role, l.Replica = append(l.Ranks, r), append(l.Role, int32(at)), append(l.Replica, int32(q))
		l.Roles[at].Rows, l.Roles[at].Size = append(l.Roles[at].Rows, int32(r)), side
		if at == 0 {
			l.Groups = append(l.Groups, frame.Group{Dim: "tp", Size: side})
			l.Replicas = append(l.Replicas, nil)
		}

		l.Groups[q].Rows, l.Replicas[q] = append(l.Groups[q].Rows, int32(r)), append(l.Replicas[q], int32(r))
	}

	return l
}

// warmSteps is how long a process warms up here.
const warmSteps = 10

// TestCovariate_VictimsTeachNothing lets seven of 64 ranks wait, step after step, for
// a slow mate of their tensor group: their long forward has nothing to do with their
// tokens, and the tokens must go on explaining everybody else's.
func TestCovariate_VictimsTeachNothing(t *testing.T) {
	l := grid()
	n := len(l.Ranks)
	c, ref := NewCovariate(l, 1), NewReference(l)
	rng := rand.New(rand.NewPCG(5, 5))
	tokens, work, logs, waited := make([]float32, n), make([]float32, n), make([]float32, n), make([]bool, n)
	left := 0.0
	for step := range 400 {
		for q := range 8 {
			x := 0.06 * rng.NormFloat64()
			for r := q * 8; r < q*8+8; r++ {
				tokens[r], work[r] = float32(2048*math.Exp(x)), float32(x+0.005*rng.NormFloat64())
				if waited[r] = q == 0 && r > 0 && step >= 100; waited[r] {
					work[r] += 0.4
				}
			}
		}

		c.Prepare(tokens, true)
		c.Remove(0, work)
		ref.Relative(work, logs)
		c.Learn(0, logs, waited, slowOne{row: 0})
		if step > 300 {
			for r := 8; r < n; r++ {
				left = max(left, math.Abs(float64(logs[r])))
			}
		}
	}

	if left > 0.05 {
		t.Errorf("%.3f of a healthy rank's work is left after its tokens were taken out, want noise of 0.005", left)
	}
}

// TestInner_FewLooksAreNoHabit lets a rank wait long in its first steps, and in two
// more that happen to be looked at, while its forward is as long as everybody's. What
// it waits for a mate that pauses later is still not its own work.
func TestInner_FewLooksAreNoHabit(t *testing.T) {
	l := grid()
	in := NewWaits(l)
	n := len(l.Ranks)
	raw, tp, logs, warm := make([]float32, n), make([]float32, n), make([]float32, n), make([]uint8, n)
	for r := range warm {
		warm[r] = warmSteps
	}

	// step lets the ranks of the first group wait for rank 0, and reports whether rank
	// 3's forward is taken for a wait.
	step := func(wait float32, slow bool) bool {
		for r := range raw {
			raw[r], tp[r], logs[r] = 3.6, 0.8, 0
			if r < 8 && slow {
				raw[r], logs[r] = 3.6+wait, float32(math.Log(float64(3.6+wait)/3.6))
			}

			if r > 0 && r < 8 {
				tp[r] += 0.7 * wait // they are not the fastest either
			}
		}

		c := &frame.Column{Layout: l}
		c.V[frame.FP], c.V[frame.TP] = raw, tp
		in.Find(c, raw, logs, warm, 0.03)
		for r := range warm {
			warm[r] = max(warm[r], 1) - 1
		}

		return in.Waited[3]
	}
	for range warmSteps {
		step(2, false)
	}

	for k := range 2 * innerEvery {
		wait := float32(0.05)
		if (k+warmSteps+1+3)%innerEvery == 0 {
			wait = 0.5
		}

		if step(wait, false) {
			t.Fatalf("step %d: a forward like everybody's is taken for a wait", k)
		}
	}

	if !step(0.6, true) {
		t.Error("a wait of 0.6 s for a pausing mate counts as the rank's own work")
	}
}

// TestInner_CutOff holds who may wait for a rank without records: members of its
// groups, who works with them, and the only one recorded of a group.
func TestInner_CutOff(t *testing.T) {
	l := &frame.Layout{Ranks: []int{0, 1, 2, 3, 4, 5, 6, 8}, Groups: []frame.Group{
		{Dim: "tp", Rows: []int32{0, 1}, Size: 2}, {Dim: "tp", Rows: []int32{2, 3}, Size: 2}, {Dim: "tp", Rows: []int32{4, 5}, Size: 2},
		{Dim: "cp", Rows: []int32{0, 2}, Size: 3}, {Dim: "cp", Rows: []int32{1, 3}, Size: 2}, {Dim: "cp", Rows: []int32{4, 6}, Size: 2}, {Dim: "cp", Rows: []int32{5, 7}, Size: 2},
		{Dim: "dp", Rows: []int32{0, 4}, Size: 9},
	}}
	in := NewWaits(l)
	for r, want := range []bool{true, true, true, true, true, true, true, true} {
		if in.Cut[r] != want {
			t.Errorf("cut[%d]=%v, want %v", r, in.Cut[r], want)
		}
	}

	l.Groups[3].Size = 2
	l.Groups = append(l.Groups, frame.Group{Dim: "tp", Rows: []int32{6, 7}, Size: 2})
	if in = NewWaits(l); slices.Contains(in.Cut, true) {
		t.Errorf("cut=%v where all members are recorded: a group across replicas is not inside a forward pass", in.Cut)
	}

	l.Groups[2].Size = 4
	for r, want := range []bool{false, false, false, false, true, true, true, true} {
		if in = NewWaits(l); in.Cut[r] != want {
			t.Errorf("cut[%d]=%v, want %v", r, in.Cut[r], want)
		}
	}
}
