package detect

import (
	"math"

	"github.com/laggard-dev/laggard/analyzer/detect/robust"
	"github.com/laggard-dev/laggard/analyzer/frame"
)

// saveCosts is what slow saves cost. All ranks meet after a save, so it lasts as long
// as the slowest of them needs: without a slow saver it lasts as long as the next one
// needs, which on storage with heavy tails is often not much less. A save is settled
// when the savers forget it; those that they keep are played when somebody asks.
type saveCosts struct {
	At       [keptSaves]float64   // when the kept saves began, on the ledger's clock
	Accounts map[string]*saveCost // of nodes that save slowly; "" of all that are guilty together
}

// saveCost sums up what the slow saves of a node cost since they began. Most is the
// same had its saves taken no time, where no wait is recorded that tells of them.
type saveCost struct {
	Began, Saved, Most float64
}

func (a *saveCost) add(saved, most float64) { a.Saved, a.Most = a.Saved+saved, a.Most+most }

func newSaveCosts() saveCosts { return saveCosts{Accounts: map[string]*saveCost{}} }

// keepSave makes room for a save and notes when it began.
func (e *Engine) keepSave(slot int) {
	for node, a := range e.ledger.Saves.Accounts {
		a.add(e.savedIn(slot, a, e.slowSavers(node)))
	}

	e.ledger.Saves.At[slot] = e.ledger.Clock + e.line.Pause
}

// openSaves opens the accounts of nodes that save slowly, and closes the others.
func (e *Engine) openSaves() {
	l := &e.ledger.Saves
	runs, guilty := map[string][]float64{}, ""
	for r := range e.n {
		if node := e.nodeOf(r); e.saver.run[r] > 0 {
			runs[node] = append(runs[node], float64(e.saver.run[r]))
			if e.saver.guilty(r) {
				guilty = node
			}
		}
	}

	for node := range l.Accounts {
		if runs[node] == nil && (node != "" || guilty == "") {
			delete(l.Accounts, node)
		}
	}

	for node, run := range runs {
		a := l.Accounts[node]
		if a == nil {
			a = &saveCost{}
			l.Accounts[node] = a
		}

		// A rank's run may begin by chance, or anew: the middle one tells the fault's.
		if k := int(robust.Median64(run)); k <= keptSaves {
			a.Began = l.At[(e.saver.saves-k)%keptSaves]
		}
	}

	if guilty != "" && l.Accounts[""] == nil {
		a := *l.Accounts[guilty]
		l.Accounts[""] = &a
	}
}

// slowSavers says by how much, as a logarithm, the saves of a node's ranks exceed
// their peers': all its slow ranks by the same, for they share what slows them. Ranks
// of whom it isn't sure count while it is sure of none. "" is all guilty nodes.
func (e *Engine) slowSavers(of string) map[int]float64 {
	out := map[int]float64{}
	byNode := map[int32][]int{}
	sure := of == ""
	for r := range e.n {
		if e.saver.guilty(r) && (of == "" || e.nodeOf(r) == of) {
			sure = true
			byNode[e.layout.Node[r]] = append(byNode[e.layout.Node[r]], r)
		}
	}

	for r := range e.n {
		if !sure && e.saver.run[r] > 0 && e.nodeOf(r) == of {
			byNode[e.layout.Node[r]] = append(byNode[e.layout.Node[r]], r)
		}
	}

	for _, rows := range byNode {
		rise := 0.0
		for _, r := range rows {
			rise += float64(e.saver.rise[r]) / float64(len(rows))
		}

		for _, r := range rows {
			out[r] = max(0, rise)
		}
	}

	return out
}

// savedIn is how many seconds sooner a kept save had ended had the slow savers been
// as fast as the others, and at most; 0 for one before the account began.
func (e *Engine) savedIn(slot int, a *saveCost, slow map[int]float64) (saved, most float64) {
	if e.ledger.Saves.At[slot] < a.Began {
		return 0, 0
	}

	now, then, others := math.Inf(-1), math.Inf(-1), math.Inf(-1)
	for r, x := range e.saver.recent[slot*e.n:][:e.n] {
		if x != x {
			continue
		}

		y, guilty := slow[r]
		now, then = max(now, float64(x)), max(then, float64(x)-y)
		if !guilty {
			others = max(others, float64(x))
		}
	}

	if saved = robust.Finite(math.Exp(now)-math.Exp(then), 0); e.graph.Known() && e.measuredAt[frame.Exposed] > 0 {
		return saved, saved
	}

	return saved, robust.Finite(math.Exp(now)-math.Exp(others), 0)
}

// savesCost is what the slow saves of a node cost, at least and at most, as a share of
// the time since they began; of all nodes together for "".
func (e *Engine) savesCost(node string) (least, most float64) {
	a := e.ledger.Saves.Accounts[node]
	slow := e.slowSavers(node)
	if a == nil || len(slow) == 0 {
		return 0, 0
	}

	sum := *a
	for k := range min(e.saver.saves, keptSaves) {
		sum.add(e.savedIn(k, a, slow))
	}

	return account{Time: e.ledger.Clock + e.line.Pause - a.Began, Saved: sum.Saved, Most: sum.Most}.bounds()
}
