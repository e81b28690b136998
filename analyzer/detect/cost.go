package detect

import (
	"slices"

	"github.com/laggard-dev/laggard/analyzer/detect/robust"
	"github.com/laggard-dev/laggard/analyzer/detect/saves"
	"github.com/laggard-dev/laggard/analyzer/detect/sequential"
	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
	"github.com/laggard-dev/laggard/analyzer/frame"
)

// fault is a rank that is blamed, and how its work is told from its peers'.
type fault struct {
	Row    int
	Node   string
	Has    [signals]bool
	From   int     // analysed steps before it
	Spiky  bool    // it comes and goes: the steps that show it count
	Slight bool    // it shares the node of a culprit
	Effect float64 // lasting effect as a logarithm where no track of ranks holds it, else 0
}

// account sums up what a node, or all together, cost.
type account struct {
	From  int     // analysed steps before it
	Time  float64 // seconds of the steps since
	Saved float64 // of them, without the faults
	Most  float64 // the same at most: more where it isn't recorded who waits for whom
}

// ledger is what the blamed cost so far. A step is settled when it leaves the window,
// so it is known by then who is to blame for it; those in the window are added when
// somebody asks. While nobody is blamed nothing is played.
type ledger struct {
	Faults   []fault
	Accounts map[string]*account
	All      account
	Clock    float64           // seconds of all steps so far
	Spells   map[string]*spell // of nodes that were slow in single steps
	Habits   habits
	Played   [threshold.Window]played // the steps of the window, as far as they were played
}

func newLedger() ledger {
	return ledger{Accounts: map[string]*account{}, Spells: map[string]*spell{}}
}

// played is a step that was played as it was.
type played struct {
	At                 int       // number of the analysed step + 1; 0 = none
	Ends, Plain, Usual []float64 // when each lane was through, as played, and what stands for the unmeasured
}

// price is what the blamed cost: each node alone, and all together.
type price struct {
	nodes map[string]account
	all   account
}

// blame lists the faults of those who are accused, and of those who come and go.
func (e *Engine) blame(culprits []candidate) []fault {
	var out []fault
	add := func(f fault) {
		f.Node = e.nodeOf(f.Row)
		if k := slices.IndexFunc(out, func(o fault) bool { return o.Row == f.Row }); k < 0 {
			out = append(out, f)
		} else {
			for s := range signals {
				out[k].Has[s] = out[k].Has[s] || f.Has[s]
			}
		}
	}
	for i := range culprits {
		c := &culprits[i]
		f := fault{Row: c.row, From: e.recent.Count}
		for s := range signals {
			if f.Has[s] = c.has[s]; c.has[s] {
				f.From = max(0, min(f.From, e.recent.Count-e.tracks[s].Age(c.row)))
			}
		}

		add(f)
	}

	out = e.withMates(out)
	for q := range e.whole.Len() {
		if e.whole.Active(q) && e.singleNode(e.layout.Replicas[q]) >= 0 {
			effect, _ := e.whole.Last(q)
			for _, r := range e.layout.Replicas[q] {
				add(fault{Row: int(r), From: max(0, e.recent.Count-e.whole.Age(q)), Effect: effect})
			}
		}
	}

	for g := range e.alone.Len() {
		if rows := e.layout.Roles[g].Rows; e.alone.Active(g) && e.singleNode(rows) >= 0 {
			effect, _ := e.alone.Last(g)
			for _, r := range rows {
				add(fault{Row: int(r), From: max(0, e.recent.Count-e.alone.Age(g)), Effect: effect})
			}
		}
	}

	return out
}

// withMates adds the other ranks of the blamed nodes: what slows a host slows all of
// it, also those of whom it is not sure yet.
func (e *Engine) withMates(faults []fault) []fault {
	first := map[int32]fault{}
	rows := map[int]bool{}
	for _, f := range faults {
		rows[f.Row] = true
		n := e.layout.Node[f.Row]
		o, ok := first[n]
		if !ok {
			o = f
		}

		for s := range signals {
			o.Has[s] = o.Has[s] || f.Has[s]
		}

		o.From = min(o.From, f.From)
		first[n] = o
	}

	for r := range e.n {
		if f, ok := first[e.layout.Node[r]]; ok && len(first) > 0 && !rows[r] && e.layout.Present[r] {
			f.Row, f.Slight = r, true
			faults = append(faults, f)
		}
	}

	return faults
}

// spell is what the slow steps of a node cost.
type spell struct {
	Since       float64 // on the ledger's clock
	Saved, Most float64
}

// bookSpikes enters what the nodes that are slow in the step at hand cost: should
// they come and go, the cost is known when that is. A step that isn't longer than
// others cost nothing, and only the lane that was through last can have cost it.
func (e *Engine) bookSpikes(t float64) {
	i := e.recent.Count - 1
	span := e.recent.Spans[i%threshold.Window]
	e.ledger.Clock += span
	if len(e.ledger.Faults) > 0 && e.knowsHabits() {
		e.play(i, true)
	}

	if e.graph.Known() && t < spikeStep*e.stepMedian || e.analysed <= threshold.Window || !e.knowsHabits() {
		return
	}

	e.play(i, true)
	rows := e.graph.All()
	if e.graph.Known() {
		last := 0
		for l, x := range e.ends {
			if x > e.ends[last] {
				last = l
			}
		}

		rows = e.graph.Rows(last)
	}

	seen := map[int32]bool{}
	for _, r := range rows {
		n := e.layout.Node[r]
		if n < 0 || seen[n] || !e.spikes(int(r)) {
			continue
		}

		seen[n] = true
		e.charged = e.charged[:0]
		for k := range e.n {
			if e.layout.Node[k] == n && e.spikes(k) {
				f := fault{Row: k, Spiky: true, Has: [signals]bool{compute: true, own: e.v[own] != nil && e.recent.Has(frame.Self), loading: true}}
				e.charged = append(e.charged, f)
			}
		}

		e.recall(i)
		saved, most := e.without(i, e.charged, t)
		node := e.layout.Nodes[n]
		s := e.ledger.Spells[node]
		if s == nil {
			s = &spell{Since: e.ledger.Clock - span}
			e.ledger.Spells[node] = s
		}

		s.Saved, s.Most = s.Saved+saved, s.Most+most
	}
}

// spikes reports whether a rank is slow in the step at hand.
func (e *Engine) spikes(r int) bool {
	for s := range signals {
		if e.recent.Place[s][(e.recent.Count-1)%threshold.Window] > 0 && e.v[s][r] > sequential.SpikeEffect {
			return true
		}
	}

	return false
}

// spikeStep: a step that much longer than usual may have waited for a slow rank.
const spikeStep = 1.01

// settle adds the step that is about to leave the window.
func (e *Engine) settle() {
	if len(e.ledger.Faults) == 0 || e.recent.Count < threshold.Window {
		return
	}

	e.enter(e.recent.Count-threshold.Window, e.ledger.Faults, e.account, &e.ledger.All)
}

// settleAll adds all steps of the window: rows are about to mean other ranks.
func (e *Engine) settleAll(faults []fault) {
	if len(faults) == 0 {
		return
	}

	if !e.knowsHabits() {
		e.ledger.Habits = e.habits()
	}

	for i := max(0, e.recent.Count-threshold.Window); i < e.recent.Count; i++ {
		e.enter(i, faults, e.account, &e.ledger.All)
	}
}

func (e *Engine) account(node string, from int) *account {
	a := e.ledger.Accounts[node]
	if a == nil {
		a = &account{From: from}
		e.ledger.Accounts[node] = a
	}

	return a
}

// blamed renews who is blamed, and closes the accounts of those who are well again. Who
// is only calm for some steps stays charged: they are time that costs nothing.
func (e *Engine) blamed(faults []fault) {
	l := &e.ledger
	now := len(faults)
	for _, f := range l.Faults {
		if !slices.ContainsFunc(faults[:now], func(o fault) bool { return o.Node == f.Node }) && e.recovering(f.Node) {
			faults = append(faults, f)
		}
	}

	l.Faults = faults
	for node := range l.Accounts {
		if _, waits := e.carried[node]; !waits && !slices.ContainsFunc(faults, func(f fault) bool { return f.Node == node }) && !e.slowNow(node) {
			delete(l.Accounts, node)
		}
	}

	if len(l.Accounts) == 0 && len(faults) == 0 {
		l.All = account{}
	}
}

// settled is price without the steps in the window, where others are known.
func (e *Engine) settled(faults []fault) price {
	for _, f := range faults {
		if a := e.ledger.Accounts[f.Node]; a == nil || a.Time == 0 {
			return e.price(faults)
		}
	}

	p := price{nodes: map[string]account{}, all: e.ledger.All}
	for node, a := range e.ledger.Accounts {
		p.nodes[node] = *a
	}

	return p
}

// price says what the blamed cost by now.
func (e *Engine) price(faults []fault) price {
	p := price{nodes: map[string]account{}, all: e.ledger.All}
	if len(faults) == 0 {
		return p
	}

	if old := e.ledger.Habits; !e.knowsHabits() {
		e.ledger.Habits = e.habits()
		defer func() { e.ledger.Habits = old }()
	}

	for node, a := range e.ledger.Accounts {
		p.nodes[node] = *a
	}

	open := map[string]*account{}
	get := func(node string, from int) *account {
		if open[node] == nil {
			a, ok := p.nodes[node]
			if !ok {
				a.From = from
			}

			open[node] = &a
		}

		return open[node]
	}
	for i := max(0, e.recent.Count-threshold.Window); i < e.recent.Count; i++ {
		e.enter(i, faults, get, &p.all)
	}

	for node, a := range open {
		p.nodes[node] = *a
	}

	return p
}

// bounds are the cost as a share of step time: at least, and at most.
func (a account) bounds() (least, most float64) {
	return robust.Share(a.Saved, a.Time), robust.Share(a.Most, a.Time)
}

// costOf is what the node costs, the slow saves of its ranks included.
func (e *Engine) costOf(p *price, node string) (least, most float64) {
	least, most = p.nodes[node].bounds()
	return e.withSaves(least, most, node)
}

// cameAndWent is the cost of slow steps as a share of the time since the first.
func (e *Engine) cameAndWent(s *spell) (least, most float64) {
	return account{Time: e.ledger.Clock - s.Since, Saved: s.Saved, Most: s.Most}.bounds()
}

// withSaves adds what the slow saves of a node cost, of all together for "".
func (e *Engine) withSaves(least, most float64, node string) (float64, float64) {
	a, b := e.saver.Cost(node, e.now())
	return min(1, least+a), min(1, most+b)
}

// now is what the saves ask of the job.
func (e *Engine) now() saves.Now {
	return saves.Now{Seconds: e.ledger.Clock + e.recent.Pause, Waits: e.graph.Known() && e.measuredAt[frame.Exposed] > 0}
}
