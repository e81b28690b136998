package saves

import (
	"math"

	"github.com/laggard-dev/laggard/analyzer/detect/robust"
)

// What slow saves cost: all ranks meet after a save, so it lasts as long as the slowest
// of them needs; without a slow saver it lasts as long as the next one needs, which on
// storage with heavy tails is often not much less. A save is settled when it leaves those
// that are kept; the kept ones are played when somebody asks.

// Now is what is known of a job at some step.
type Now struct {
	Seconds float64 // of all its steps so far
	Waits   bool    // it is recorded who waits for whom, and how long
}

// account sums up what the slow saves of a node cost since they began. Most is the
// same had its saves taken no time, where no wait is recorded that tells of them.
type account struct {
	Began, Saved, Most float64
}

func (a *account) add(saved, most float64) { a.Saved, a.Most = a.Saved+saved, a.Most+most }

// keep makes room for a save and notes when it began.
func (s *Watch) keep(slot int, now Now) {
	for node, a := range s.accounts {
		slow, _ := s.slowRows(node)
		a.add(s.savedIn(slot, a, slow, now.Waits))
	}

	s.began[slot] = now.Seconds
}

// open opens the accounts of nodes that save slowly, and closes the others.
func (s *Watch) open() {
	runs, guilty := map[string][]float64{}, ""
	for r := range s.n {
		if node := s.l.NodeOf(r); s.run[r] > 0 {
			runs[node] = append(runs[node], float64(s.run[r]))
			if s.Guilty(r) {
				guilty = node
			}
		}
	}

	for node := range s.accounts {
		if runs[node] == nil && (node != "" || guilty == "") {
			delete(s.accounts, node)
		}
	}

	for node, run := range runs {
		a := s.accounts[node]
		if a == nil {
			a = &account{}
			s.accounts[node] = a
		}

		// A rank's run may begin by chance, or anew: the middle one tells the fault's.
		if k := int(robust.Median64(run)); k <= min(s.saves, keptSaves) {
			a.Began = s.began[(s.saves-k)%keptSaves]
		}
	}

	if guilty != "" && s.accounts[""] == nil {
		a := *s.accounts[guilty]
		s.accounts[""] = &a
	}
}

// slowRows says by how much, as a logarithm, the saves of a node's ranks exceed their peers', and
// whether it is sure of one: all that are slow there by the same, that of those it is sure of, for
// they share what slows them. "" is all nodes with one.
func (s *Watch) slowRows(of string) (out map[int]float64, sure bool) {
	type slow struct{ guilty, rows []int }
	byNode := map[int32]*slow{}
	for r := range s.n {
		if n := s.l.Node[r]; s.run[r] > 0 && (of == "" || s.l.NodeOf(r) == of) {
			if byNode[n] == nil {
				byNode[n] = &slow{}
			}

			x := byNode[n]
			x.rows = append(x.rows, r)
			if s.Guilty(r) {
				x.guilty, sure = append(x.guilty, r), true
			}
		}
	}

	out = map[int]float64{}
	for _, x := range byNode {
		measured := x.guilty
		if len(measured) == 0 {
			if measured = x.rows; of == "" {
				continue
			}
		}

		rise := 0.0
		for _, r := range measured {
			rise += float64(s.rise[r]/s.often(r)) / float64(len(measured))
		}

		for _, r := range x.rows {
			out[r] = max(0, rise)
		}
	}

	return out, sure
}

// savedIn is how many seconds sooner a kept save had ended had the slow savers been
// as fast as the others, and at most; 0 for one before the account began.
func (s *Watch) savedIn(slot int, a *account, slow map[int]float64, waits bool) (saved, most float64) {
	if s.began[slot] < a.Began {
		return 0, 0
	}

	now, then, others := math.Inf(-1), math.Inf(-1), math.Inf(-1)
	for r, x := range s.recent[slot*s.n:][:s.n] {
		if x != x {
			continue
		}

		y, guilty := slow[r]
		now, then = max(now, float64(x)), max(then, float64(x)-y)
		if !guilty {
			others = max(others, float64(x))
		}
	}

	if saved = robust.Finite(math.Exp(now)-math.Exp(then), 0); waits {
		return saved, saved
	}

	return saved, robust.Finite(math.Exp(now)-math.Exp(others), 0)
}

// Cost is what the slow saves of a node cost, at least and at most, as a share of the
// time since they began, 0 while it isn't sure that they are slow; of all nodes together for "".
func (s *Watch) Cost(node string, now Now) (least, most float64) {
	a := s.accounts[node]
	slow, sure := s.slowRows(node)
	if a == nil || !sure {
		return 0, 0
	}

	sum := *a
	for k := range min(s.saves, keptSaves) {
		sum.add(s.savedIn(k, a, slow, now.Waits))
	}

	time := now.Seconds - a.Began
	return robust.Share(sum.Saved, time), robust.Share(sum.Most, time)
}
