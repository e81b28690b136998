// Package cost says what slow ranks cost a job: the steps since they became slow are played
// once more with the blamed working as their peers do, and the difference is entered.
//
// Invariants: a fault costs no more than the others wait for it. A step is played from
// what a window of steps keeps, so rows from any source cost the same. While nobody is
// blamed nothing is played.
//
// Caveat: where it isn't recorded who waits for whom, or for how long, a cost is the least
// it can be, and the most stands beside it.
package cost

import (
	"maps"
	"slices"

	"github.com/laggard-dev/laggard/analyzer/detect/history"
	"github.com/laggard-dev/laggard/analyzer/detect/residual"
	"github.com/laggard-dev/laggard/analyzer/detect/robust"
	"github.com/laggard-dev/laggard/analyzer/detect/sequential"
	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/analyzer/replay"
)

// Fault is a rank that is blamed, and how its work is told from its peers'.
type Fault struct {
	Row    int
	Node   string
	Has    [history.Signals]bool
	From   int  // analysed steps before it
	Spiky  bool // it comes and goes: the steps that show it count
	Slight bool // it shares the node of a culprit
	// Effect is a lasting effect on its passes as a logarithm, and Late on what it waits for data as a share of a step,
	// where no test of ranks holds it, else 0.
	Effect, Late float64
}

// Account sums up what a node, or all together, cost.
type Account struct {
	Time  float64 // seconds of the steps since
	Saved float64 // of them, without the faults
	Most  float64 // the same at most: more where it isn't recorded who waits for whom
	Own   bool    // own time was recorded in some of them
}

// Bounds are the cost as a share of step time: at least, and at most.
func (a Account) Bounds() (least, most float64) {
	return robust.Share(a.Saved, a.Time), robust.Share(a.Most, a.Time)
}

// Book is what the blamed cost so far. A step is settled when it leaves the window,
// so it is known by then who is to blame for it; those in the window are added when
// somebody asks.
type Book struct {
	// What steps are replayed from.
	layout   *frame.Layout
	graph    *replay.Graph
	recent   *history.Window
	tests    [history.Signals]*sequential.Test
	backward *residual.Backward
	exposure *residual.Exposure

	faults   []Fault
	accounts map[string]Account  // by node; "" is all together
	clock    float64             // seconds of all steps so far
	spells   map[string]*Account // of nodes that were slow in single steps, since the first of them
	habits   habits
	played   [threshold.Window]played // the steps of the window, as far as they were played

	did     replay.Work // of the step that is played
	ends    []float64   // of its lanes
	plain   []float64   // the same as played, without what the step shows
	waits   []float64
	charged []Fault
	mended  []mended
	struck  map[int]float64   // when each lane with a culprit was through, as played
	usual   map[int32]float64 // own time of roles in the window of usualAt steps
	usualAt int
	buf     []float32
}

// New returns a book without a job.
func New() *Book {
	return &Book{accounts: map[string]Account{}, spells: map[string]*Account{}, struck: map[int]float64{}, usual: map[int32]float64{}}
}

// Assign takes another layout, and what follows its steps; Forget comes with it where rows mean other ranks.
func (b *Book) Assign(l *frame.Layout, g *replay.Graph, recent *history.Window, tests [history.Signals]*sequential.Test, backward *residual.Backward, exposure *residual.Exposure) {
	b.layout, b.graph, b.recent, b.tests, b.backward, b.exposure = l, g, recent, tests, backward, exposure
}

// Forget closes what is told by rows.
func (b *Book) Forget() {
	b.faults, b.habits, b.played, b.usualAt = nil, habits{}, [threshold.Window]played{}, -1
}

// Clock is the seconds of all steps so far.
func (b *Book) Clock() float64 { return b.clock }

// Settle adds the step that is about to leave the window.
func (b *Book) Settle() {
	if len(b.faults) == 0 || b.recent.Count < threshold.Window {
		return
	}

	b.enter(b.recent.Count-threshold.Window, b.faults, b.accounts)
}

// SettleAll adds all steps of the window: rows are about to mean other ranks.
func (b *Book) SettleAll(faults []Fault) {
	if len(faults) == 0 {
		return
	}

	if !b.Learned() {
		b.Learn()
	}

	for i := max(0, b.recent.Count-threshold.Window); i < b.recent.Count; i++ {
		b.enter(i, faults, b.accounts)
	}
}

// Blame renews who is blamed, and closes the accounts of those who are well again. Who
// is recovering stays charged: it may be well for some steps only, which then cost
// nothing. slow tells whose account stays open without a charge.
func (b *Book) Blame(faults []Fault, recovering, slow func(node string) bool) {
	of := func(faults []Fault, node string) bool {
		return slices.ContainsFunc(faults, func(f Fault) bool { return f.Node == node })
	}
	now := len(faults)
	for _, f := range b.faults {
		if !of(faults[:now], f.Node) && recovering(f.Node) {
			faults = append(faults, f)
		}
	}

	b.faults = faults
	for node := range b.accounts {
		if node != "" && !of(faults, node) && !slow(node) {
			delete(b.accounts, node)
		}
	}

	if len(b.accounts) == 1 && len(faults) == 0 {
		delete(b.accounts, "")
	}
}

// Settled is Price without the steps in the window, where others are known.
func (b *Book) Settled(faults []Fault) map[string]Account {
	for _, f := range faults {
		if b.accounts[f.Node].Time == 0 {
			return b.Price(faults)
		}
	}

	return b.accounts
}

// Price says what the blamed cost by now, each node alone, and all together as "".
func (b *Book) Price(faults []Fault) map[string]Account {
	if len(faults) == 0 {
		return nil
	}

	return b.withWindow(maps.Clone(b.accounts), faults, 0)
}

// PriceNow says what faults cost together in the steps of the window alone.
func (b *Book) PriceNow(faults []Fault) Account {
	return b.withWindow(map[string]Account{}, faults, 0)[""]
}

// Closed is what a node that is well again cost; it was well in so many last steps.
func (b *Book) Closed(node string, well int) Account {
	return b.withWindow(maps.Clone(b.accounts), b.faults, well)[node]
}

// withWindow adds what faults cost in the steps of the window to accounts, without the last ones, in which all was well.
func (b *Book) withWindow(accounts map[string]Account, faults []Fault, well int) map[string]Account {
	defer b.learnedHere()()
	for i := max(0, b.recent.Count-threshold.Window); i < b.recent.Count-well; i++ {
		b.enter(i, faults, accounts)
	}

	return accounts
}
