// Package detect decides which node slows a job down, why, and what it costs.
//
// Everybody waits for the slowest in synchronous training, so step time tells
// nothing of a rank. The engine compares what a rank does itself (forward time,
// own time, data loading, saving) with ranks that do the same work (its role),
// takes out what the ranks of one replica share (the size of their micro-batches),
// and asks for persistence before it says a word.
//
// Invariants: Analyze is the engine fed with the whole history, so the same steps
// in the same order give the same verdict at once or live. Memory is bounded per
// rank. A rank that waits is never named: time that only grew outside measured
// work convicts nobody while somebody else explains it. What was not measured is
// never called healthy.
//
// Caveats: a job that was slow from its first step on has no reference; without
// peers a rank is compared with its own past only. Both are said in the verdict.
package detect

import (
	"math"
	"sync"

	"laggard/analyzer/frame"
)

// signal is what a rank is judged by.
type signal int

const (
	compute signal = iota // forward (and backward where recorded)
	own                   // step - exposed communication - data loading - saving
	loading               // data loader, as a share of the step
	signals
)

var signalMetric = [signals]string{"fp", "self", "dataloader"}

// Engine judges one job, step by step. It is not safe for concurrent use.
type Engine struct {
	cfg    Config
	layout *frame.Layout
	job    string
	n      int

	// What the job had so far.
	columns, analysed   int
	firstStep, lastStep int64
	attempt, attempts   int
	lastStart           int64
	expected, measured  int
	worldSize           int
	quarantined         int
	saving              float64 // share of steps with a checkpoint
	sinceSave           int
	stepMedian          float64 // running median-like step time, seconds
	lastTime            float64 // of the last analysed step, seconds
	seen                [frame.MetricCount]bool
	estimated           bool
	judged              []uint16 // valid steps of each rank in any self signal

	tracks  [signals]*track
	whole   *track // replicas as wholes, where their common part is removed
	alone   *track // roles without peers against the rest of the job
	ref     [signals]*reference
	sharing [signals]*sharing
	tokens  *covariate
	inner   *inner
	saver   *savers
	links   *linkWatch
	wires   *wires
	level   *levels
	storage *storage

	recent  *recent
	history []past  // confirmed and ended episodes, bounded
	events  []event // transients, bounded
	carried map[string]carry
	inGroup [frame.MetricCount][]int32 // row → group of the dimension, made on demand
	cases   map[caseKey]finding
	lonely  bool // some role sits on one node: it has no peers elsewhere
	aloneV  []float32

	v    [signals][]float32 // residuals of the step at hand
	buf  []float32
	buf2 []float32
	over [signals][]episode // ended in the step at hand
}

// past is a confirmed episode that ended.
type past struct {
	Node, Device           string
	Rank                   int
	Signal                 signal
	Since, Detected, Until int64
	Case                   finding // what was known when it was last slow
}

// event is a transient.
type event struct {
	Node        string
	Rank        int
	Signal      signal
	First, Last int64
	AtNs        int64
	At, Steps   int // analysed steps before it, and in it
	Effect      float64
}

// carry is the suspicion that a node takes along when ranks are mapped anew.
type carry struct {
	Signal          signal
	Since, Detected int64
	Degraded        bool
	Judged          bool // its new ranks turned out slow as well
	Effect          float64
	Rank            int
	Until           int64
	At              int // analysed steps when it was left
	Case            finding
}

// bounds of what is kept for a job's whole life.
const (
	maxHistory = 1024
	maxEvents  = 1024
)

// New returns an engine for a job with that layout.
func New(cfg Config, layout *frame.Layout) *Engine {
	e := &Engine{cfg: cfg, carried: map[string]carry{}, cases: map[caseKey]finding{}, firstStep: -1, lastStep: -1, sinceSave: afterSave}
	e.setLayout(layout)
	return e
}

// setLayout makes everything that depends on who is who. A rank whose process,
// node or role changed begins anew; a node's suspicion waits for it in carried.
func (e *Engine) setLayout(l *frame.Layout) {
	old := e.layout
	if old != nil {
		e.carry(l)
	}
	e.layout, e.n = l, len(l.Ranks)
	e.worldSize = max(e.worldSize, l.World)
	e.inGroup = [frame.MetricCount][]int32{}
	roles := make([][]int32, len(l.Roles))
	sizes := make([]int, len(l.Roles))
	for g := range l.Roles {
		roles[g], sizes[g] = l.Roles[g].Rows, l.Roles[g].Size
	}
	same := old != nil && len(old.Ranks) == len(l.Ranks) && old.World == l.World && sameRoles(old, l)
	for s := range signals {
		e.ref[s] = newReference(roles, sizes)
		if e.v[s] == nil || len(e.v[s]) != e.n {
			e.v[s] = make([]float32, e.n)
		}
		if !same {
			e.tracks[s] = newTrack(&e.cfg, e.n, roles, sizes)
			e.sharing[s] = newSharing(l)
			continue
		}
		e.tracks[s].setRoles(roles, sizes)
	}
	stage := make([]int32, len(l.Roles))
	for g := range l.Roles {
		stage[g] = int32(l.Roles[g].Stage)
	}
	for s := range signals {
		e.tracks[s].tests, e.tracks[s].node, e.tracks[s].stage, e.tracks[s].habits = int(signals)*e.n, l.Node, stage, s == own
		e.tracks[s].pure = l.Stages == 1 && len(l.Replicas) > 0 && len(l.Roles) == 1 && len(l.Replicas) == len(l.Roles[0].Rows)
	}
	if !same {
		e.reset(l, roles, sizes)
	}
	for r := range e.n {
		changed := old == nil || !same || old.Incarnation[r] != l.Incarnation[r]
		if !changed {
			continue
		}
		for s := range signals {
			if same {
				e.tracks[s].forget(r)
			}
			if l.Fresh[r] {
				e.tracks[s].warm[r] = warmUp
			}
		}
	}
}

// reset forgets what a new world or parallel layout makes meaningless.
func (e *Engine) reset(l *frame.Layout, roles [][]int32, sizes []int) {
	e.whole = newTrack(&e.cfg, len(l.Replicas), [][]int32{sequence(len(l.Replicas))}, []int{len(l.Replicas)})
	e.alone = newTrack(&e.cfg, len(l.Roles), [][]int32{sequence(len(l.Roles))}, []int{len(l.Roles)})
	e.alone.selfOnly, e.alone.habits = true, true
	e.aloneV = make([]float32, len(l.Roles))
	e.lonely = false
	for _, rows := range roles {
		e.lonely = e.lonely || e.singleNode(rows) >= 0
	}
	e.tokens = newCovariate(l, roles, sizes)
	e.inner = newInner(l)
	e.saver = newSavers(e.n)
	e.links = newLinkWatch(&e.cfg, l)
	e.wires = &wires{cfg: &e.cfg, Of: map[string]*wire{}}
	e.level = newLevels(l)
	e.storage = newStorage(e.n)
	e.recent = newRecent(e.n)
	e.judged = make([]uint16, e.n)
	e.stepMedian = 0
}

func sequence(n int) []int32 {
	s := make([]int32, n)
	for i := range s {
		s[i] = int32(i)
	}
	return s
}

func sameRoles(a, b *frame.Layout) bool {
	if len(a.Roles) != len(b.Roles) {
		return false
	}
	for r := range a.Role {
		if a.Role[r] != b.Role[r] || a.Replica[r] != b.Replica[r] {
			return false
		}
	}
	return true
}

// Observe takes the next step of the job. The column is not kept.
func (e *Engine) Observe(c *frame.Column) {
	if c.Layout != nil && c.Layout != e.layout {
		e.setLayout(c.Layout)
	}
	if e.columns == 0 {
		e.firstStep = c.Step
	}
	e.columns++
	e.attempt, e.attempts = c.Attempt, max(e.attempts, c.Attempt+1)
	e.lastStep, e.lastStart = c.Step, c.StartNs
	e.count(c)
	t := e.stepTime(c)
	if t > 0 && e.stepMedian > 0 && t > quarantine*e.stepMedian {
		e.quarantined++
		return
	}
	saving := e.saver.observe(e, c, t)
	if e.leaveOut(saving, t) {
		return
	}
	if t > 0 {
		if e.stepMedian == 0 {
			e.stepMedian = t
		}
		e.stepMedian += (t - e.stepMedian) / float64(min(e.analysed+1, window))
	}
	e.analysed++
	e.lastTime = t
	e.judge(c, t)
}

// count keeps what was measured at all.
func (e *Engine) count(c *frame.Column) {
	for m, v := range c.V {
		e.seen[m] = e.seen[m] || v != nil
	}
	step := c.V[frame.Step]
	for r, p := range e.layout.Present {
		if !p {
			continue
		}
		e.expected++
		if step != nil && step[r] == step[r] {
			e.measured++
		}
	}
}

// stepTime is the median step time over the ranks, 0 when none is known.
func (e *Engine) stepTime(c *frame.Column) float64 {
	if t := e.sampleMedian(c.V[frame.Step]); t > 0 {
		return float64(t)
	}
	return 0
}

// stepSample ranks tell the median of what all ranks have in common.
const stepSample = 1024

// sampleMedian is the median over ranks, of every few where there are many.
func (e *Engine) sampleMedian(v []float32) float32 {
	stride := len(v)/stepSample + 1
	e.buf = e.buf[:0]
	for i := 0; i < len(v); i += stride {
		if x := v[i]; x == x {
			e.buf = append(e.buf, x)
		}
	}
	return median(e.buf)
}

// leaveOut reports whether the step says nothing about work: a checkpoint was
// saved in it, or it follows one and is unlike the others.
func (e *Engine) leaveOut(saving bool, t float64) bool {
	x := 0.0
	if saving {
		x = 1
	}
	e.saving += (x - e.saving) / float64(min(e.columns, memory))
	if e.saving > savingShare && e.columns > window {
		return false
	}
	if saving {
		e.sinceSave = 0
		return true
	}
	e.sinceSave++
	return e.sinceSave <= afterSave && e.stepMedian > 0 && t > max(e.stepMedian, e.lastTime)*(1+settleLimit)
}

// judge turns the step into residuals and feeds everything that watches.
func (e *Engine) judge(c *frame.Column, t float64) {
	e.recent.add(c)
	e.features(c, t)
	if e.active(own, c) {
		e.leaders(c.V[frame.Self], e.tracks[own], t)
	}
	if e.active(compute, c) {
		e.sighted(c, e.tracks[compute])
	}
	e.follow(c, t)
	e.watchWholes(c)
	e.level.observe(e, c, t)
	e.storage.observe(e, c, t)
	e.adopt()
	e.refresh()
}

// follow feeds the tracks and the links, which know nothing of each other: two at a
// time where there are many ranks. Ended episodes are filed in the order of the
// signals. t is the step's time in seconds.
func (e *Engine) follow(c *frame.Column, t float64) {
	run := func(s signal) {
		e.over[s] = e.over[s][:0]
		if !e.active(s, c) {
			return
		}
		tr := e.tracks[s]
		tr.observe(e.v[s], c.Step, func(ep episode) { e.over[s] = append(e.over[s], ep) })
		for r := range e.n {
			tr.evaluate(r)
		}
	}
	if e.n < apartRanks {
		for s := range signals {
			run(s)
		}
		e.links.observe(c, t)
	} else {
		var other sync.WaitGroup
		other.Go(func() {
			run(compute)
			e.links.observe(c, t)
		})
		run(own)
		run(loading)
		other.Wait()
	}
	for s := range signals {
		for _, ep := range e.over[s] {
			e.ended(s, ep, c)
		}
	}
}

// sighted marks whose spikes in forward time count in this step: not those of a
// rank some of whose inner groups' members are missing.
func (e *Engine) sighted(c *frame.Column, t *track) {
	if t.leads == nil {
		t.leads = make([]bool, e.n)
	}
	for r, x := range e.v[compute] {
		t.leads[r] = x > spikeEffect && !e.inner.blind(c, r)
	}
}

// leaders marks whose spikes in self time count in this step: the rank's node has
// the largest self time of its role, nobody elsewhere in its pipeline exceeds its
// peers by more, and the step took longer for it. A rank that waits for somebody
// is never all of that.
func (e *Engine) leaders(v []float32, t *track, step float64) {
	if t.leads == nil {
		t.leads = make([]bool, e.n)
	}
	res := e.v[own]
	excess := func(r int32) float32 { return v[r] * (1 - float32(math.Exp(-float64(res[r])))) }
	for g := range e.layout.Roles {
		at, top := int32(-1), float32(-1)
		rows := e.layout.Roles[g].Rows
		for _, r := range rows {
			if x := v[r]; x > top {
				at, top = r, x
			}
		}
		for _, r := range rows {
			t.leads[r] = at >= 0 && res[r] > spikeEffect && e.layout.Node[r] == e.layout.Node[at]
			if !t.leads[r] {
				continue
			}
			mine := excess(r)
			if step-e.stepMedian < awaitedShare*float64(mine) {
				t.leads[r] = false
				continue
			}
			for _, p := range e.layout.Replicas[e.layout.Replica[r]] {
				if e.layout.Node[p] != e.layout.Node[r] && excess(p) > mine {
					t.leads[r] = false
					break
				}
			}
		}
	}
}

// active reports whether the signal was recorded by anybody in this step.
func (e *Engine) active(s signal, c *frame.Column) bool {
	switch s {
	case compute:
		return c.V[frame.FP] != nil
	case own:
		return c.V[frame.Self] != nil
	}
	return c.V[frame.DataLoader] != nil && c.V[frame.Step] != nil
}
