package cost

import (
	"github.com/laggard-dev/laggard/analyzer/detect/history"
	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
)

// spikeStep: a step that much longer than usual may have waited for a slow rank.
const spikeStep = 1.01

// EnterSpikes enters what the nodes that are slow in the step at hand cost, by the signals
// that tell it: should they come and go, the cost is known when that is. The step took t
// seconds, usual ones take usual. One that isn't longer than others cost nothing, and only
// the lane that was through last can have cost it.
func (b *Book) EnterSpikes(t, usual float64, tell [history.Signals]bool, slow func(row int) bool) {
	i := b.recent.Count - 1
	span := b.recent.Spans[i%threshold.Window]
	b.clock += span
	for _, a := range b.spells {
		a.Time += span
	}

	if len(b.faults) > 0 && b.Learned() {
		b.play(i, true)
	}

	if b.graph.Known() && t < spikeStep*usual || b.recent.Count <= threshold.Window || !b.Learned() {
		return
	}

	b.play(i, true)
	seen := map[int32]bool{}
	for _, r := range b.throughLast() {
		n := b.layout.Node[r]
		if n < 0 || seen[n] || !slow(int(r)) {
			continue
		}

		seen[n] = true
		b.charged = b.charged[:0]
		for k := range b.layout.Node {
			if b.layout.Node[k] == n && slow(k) {
				b.charged = append(b.charged, Fault{Row: k, Spiky: true, Has: tell})
			}
		}

		b.recall(i)
		saved, most := b.without(i, b.charged, t)
		node := b.layout.Nodes[n]
		a := b.spells[node]
		if a == nil {
			a = &Account{Time: span}
			b.spells[node] = a
		}

		a.Saved, a.Most = a.Saved+saved, a.Most+most
	}
}

// throughLast are the rows of the lane that was through last in the step that was played;
// all of them where it isn't known who waits for whom.
func (b *Book) throughLast() []int32 {
	if !b.graph.Known() {
		return b.graph.All()
	}

	last := 0
	for k, x := range b.ends {
		if x > b.ends[last] {
			last = k
		}
	}

	return b.graph.Rows(last)
}

// CameAndWent is the cost of a node's slow steps as a share of the time since the first;
// ok where there were any.
func (b *Book) CameAndWent(node string) (least, most float64, ok bool) {
	a := b.spells[node]
	if a == nil {
		return 0, 0, false
	}

	least, most = a.Bounds()
	return least, most, true
}
