package marker

import "slices"

// State is what a Pairer knows beyond the ranges that wait for a line. Those are
// rebuilt by reading again the lines from Earliest on; until Live is called
// nothing may be settled, expired or drained. Orphans are lines whose start was not
// seen, Index numbers the processes, and the rest are counts of the account.
type State struct {
	Processes []*Process `json:"processes,omitempty"` // that began last first
	Gone      []*Process `json:"gone,omitempty"`
	Orphans   []Marker   `json:"orphans,omitempty"`
	Index     uint32     `json:"index"`
	Unmatched uint64     `json:"unmatched,omitempty"`
	Clipped   uint64     `json:"clipped,omitempty"`
}

// State returns the state for a reader that begins at low, which is not after Earliest;
// where processes began before low is forgotten. It is valid until the Pairer is used again.
func (p *Pairer) State(low Place) State {
	for _, q := range slices.Concat(p.gone, p.live) {
		if q.Begun.Before(low) {
			q.Begun = Place{}
		}
	}

	return State{Processes: p.live, Gone: p.gone, Orphans: p.inOrder(), Index: p.index, Unmatched: p.Unmatched, Clipped: p.Clipped}
}

// Restore makes a fresh Pairer what State described, to be fed the lines from
// Earliest on and then told so by Live.
func (p *Pairer) Restore(s State) {
	p.index, p.Unmatched, p.Clipped = s.Index, s.Unmatched, s.Clipped
	p.gone, p.live, p.after = s.Gone, s.Processes, s.Orphans
	for _, q := range slices.Concat(p.gone, p.live) {
		q.open = make(map[uint64]*Range)
		for _, r := range q.Overdue {
			r.Process = q
			q.open[r.ID] = r
		}
	}

	p.replay = true
}

// waits reports whether a line that is read again found no start when it was new, though
// one may be here: what was seen behind it must not decide about it now.
func (p *Pairer) waits(at Place) bool {
	_, found := slices.BinarySearchFunc(p.after, at, func(o Marker, at Place) int { return o.compare(at) })
	return found
}

// Live ends reading again: the lines that follow are new.
func (p *Pairer) Live() {
	if !p.replay {
		return
	}

	// What found no start among the lines read again had found it before them.
	p.orphans = nil
	for _, o := range p.after {
		p.await(o)
	}

	p.after, p.replay = nil, false
}
