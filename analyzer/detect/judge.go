package detect

import (
	"math"
	"slices"
	"sync"

	"github.com/laggard-dev/laggard/analyzer/detect/sequential"
	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
	"github.com/laggard-dev/laggard/analyzer/frame"
)

// judge turns the step into residuals and feeds everything that watches.
func (e *Engine) judge(c *frame.Column, t float64) {
	e.costs.Settle()
	e.recent.Add(c, t)
	e.follow(c, t)
	e.costs.EnterSpikes(t, e.pace.between(), [signals]bool{compute: true, own: e.v[own] != nil && e.recent.Has(frame.Self), loading: true}, e.spikes)
	e.watchWholes(c)
	e.watchAlone(c, t)
	e.level.Observe(c, t, e.stepMedian, e.links.Common())
	e.storage.Observe(c, t, e.layout.Node, e.tracks[loading])
	e.adopt()
	e.refresh()
}

// follow makes the residuals of each signal and feeds its track, and the links: they
// know nothing of each other, so where there are many ranks they go side by side.
// Ended episodes are filed in the order of the signals. t is the step's time in
// seconds.
func (e *Engine) follow(c *frame.Column, t float64) {
	e.work = e.raw(c)
	e.countJudged(c)
	if tok := c.V[frame.Tokens]; tok != nil {
		e.tokens.Prepare(tok, c.V[frame.FP] != nil, c.V[frame.Self] != nil)
	}

	if e.n < apartRanks {
		for s := range signals {
			e.followSignal(s, c, t)
		}

		e.links.Observe(c, t)
	} else {
		var others sync.WaitGroup
		others.Go(func() { e.followSignal(compute, c, t) })
		others.Go(func() { e.followSignal(loading, c, t) })
		others.Go(func() { e.links.Observe(c, t) })
		e.followSignal(own, c, t)
		others.Wait()
	}

	for s := range signals {
		for _, ep := range e.over[s] {
			e.ended(s, ep, c)
		}
	}
}

// followSignal takes one signal from its raw times to its track's states.
func (e *Engine) followSignal(s signal, c *frame.Column, t float64) {
	e.over[s] = e.over[s][:0]
	if !e.feature(s, c, t) {
		return
	}

	tr := e.tracks[s]
	var leads []bool
	switch s {
	case compute:
		leads = e.sighted(c)
	case own:
		leads = e.leaders(c.V[frame.Self], t)
	}

	tr.Observe(e.v[s], leads, c.Step, func(ep sequential.Episode) { e.over[s] = append(e.over[s], ep) })
	e.recent.Place[s][(e.recent.Count-1)%threshold.Window] = int32(tr.Steps())
}

// sighted marks whose forward time counts in this step where it is slow: not that of a rank some of
// whose inner groups' members are missing, or whose work slow ranks alone tell.
func (e *Engine) sighted(c *frame.Column) []bool {
	leads := e.leads[compute]
	for r, x := range e.v[compute] {
		leads[r] = !e.inner.Cut[r] && (!(x > sequential.SpikeEffect) || !e.inner.Blind(c, r) && !e.sharing[compute].Untold(r))
	}

	return leads
}

// leaders marks whose self time counts in this step where it is more than it was: it is larger than any of its role on
// other nodes by half of that at least, nobody elsewhere in its pipeline exceeds its own past by more, and the
// step took longer for it. A rank that waits for somebody is never all of that; of several nodes that
// pause together the last one would always be that of the older hardware.
func (e *Engine) leaders(v []float32, step float64) []bool {
	leads, res, usual := e.leads[own], e.v[own], e.pace.between()
	excess := func(r int32) float32 {
		return v[r] * (1 - float32(math.Exp(float64(e.tracks[own].Centre(int(r))-res[r]))))
	}
	for g := range e.layout.Roles {
		rows := e.layout.Roles[g].Rows
		for _, r := range rows {
			if leads[r] = !(res[r] > sequential.SpikeEffect); leads[r] {
				continue
			}

			mine := excess(r)
			elsewhere := func(p int32) bool { return e.layout.Node[p] != e.layout.Node[r] }
			leads[r] = step-usual >= awaitedShare*float64(mine) &&
				!slices.ContainsFunc(rows, func(p int32) bool { return elsewhere(p) && v[p] > v[r]-mine/2 }) &&
				!slices.ContainsFunc(e.layout.Replicas[e.layout.Replica[r]], func(p int32) bool { return elsewhere(p) && excess(p) > mine })
		}
	}

	return leads
}
