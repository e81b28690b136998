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
	"github.com/laggard-dev/laggard/analyzer/detect/cost"
	"github.com/laggard-dev/laggard/analyzer/detect/history"
	"github.com/laggard-dev/laggard/analyzer/detect/level"
	"github.com/laggard-dev/laggard/analyzer/detect/link"
	"github.com/laggard-dev/laggard/analyzer/detect/residual"
	"github.com/laggard-dev/laggard/analyzer/detect/robust"
	"github.com/laggard-dev/laggard/analyzer/detect/saves"
	"github.com/laggard-dev/laggard/analyzer/detect/sequential"
	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/analyzer/replay"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// signal is what a rank is judged by.
type signal = history.Signal

const (
	compute = history.Compute
	own     = history.Own
	loading = history.Loading
	signals = history.Signals
)

var signalMetric = [signals]string{"fp", "self", "dataloader"}

// Engine judges one job, step by step. It is not safe for concurrent use.
type Engine struct {
	cfg    threshold.Config
	layout *frame.Layout
	base   *frame.Layout // the first one with these roles: the parts are made for it
	job    string
	n      int

	// What the job had so far.
	columns, analysed   int
	firstStep, lastStep int64
	attempts            int
	expected, measured  int
	off                 int // rank-steps that nobody recorded because recording was off
	worldSize           int
	quarantined         int
	saving              float64 // share of steps with a checkpoint
	sinceSave           int
	pace                pace
	stepMedian          float64 // of the last steps that counted, seconds
	lastTime            float64 // of the last analysed step, seconds
	seen                [frame.MetricCount]bool
	measuredAt          [frame.MetricCount]int   // columns until each metric was last recorded
	measuredStep        [frame.MetricCount]int64 // and the step
	estimated, hostOnly bool
	judged              []uint16 // valid steps of each rank in any self signal

	tracks   [signals]*sequential.Test
	wholes   [2]*sequential.Test       // replicas as wholes, where their common part of compute and own is removed
	alone    [signals]*sequential.Test // roles at home against the rest of the job
	ref      [signals]*residual.Reference
	sharing  [signals]*residual.Sharing // between the stages of a replica
	experts  [signals]*residual.Sharing // between those that hold the same expert
	tokens   *residual.Covariate
	inner    *residual.Waits
	backward *residual.Backward
	exposure *residual.Exposure
	saver    *saves.Watch
	links    *link.Watch
	level    *level.Job
	storage  *level.Loading

	recent    *history.Window
	graph     *replay.Graph
	costs     *cost.Book
	marks     []mark
	history   []verdict.Node // of ranks whose confirmed episodes ended, bounded
	events    []event        // transients, bounded
	carried   map[string]carry
	inGroup   [frame.MetricCount][]int32    // row → group of the dimension, made on demand
	cases     [signals]map[int]verdict.Node // row → what is said of it, while it is slow in the signal
	home      []int32                       // of each role the node that has most of it, -1 where peers elsewhere tell
	residents [][]int32                     // the rows of each role on it, or all
	aloneV    []float32

	v     [signals][]float32 // residuals of the step at hand
	logs  [2][]float32       // of compute and own: absolute logs of the step at hand
	work  []float32          // measured compute of the step at hand
	buf   []float32
	over  [signals][]sequential.Episode // ended in the step at hand
	leads [2][]bool                     // of compute and own: of whom the step at hand can tell
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
	Signal   signal
	Degraded bool
	Judged   bool // its new ranks turned out slow as well
	At       int  // analysed steps when it was left
	Case     verdict.Node
}

// bounds of what is kept for a job's whole life.
const (
	maxHistory = 1024
	maxEvents  = 1024
)

// New returns an engine for a job with that layout, nil where the first step brings it.
func New(cfg threshold.Config, layout *frame.Layout) *Engine {
	e := &Engine{cfg: cfg, costs: cost.New(), carried: map[string]carry{}, firstStep: -1, lastStep: -1, sinceSave: afterSave}
	e.closeCases()
	if layout != nil {
		e.setLayout(layout)
	}

	return e
}

// Observe takes the next step of the job. The column is not kept.
func (e *Engine) Observe(c *frame.Column) {
	if c.Layout != nil && c.Layout != e.layout {
		e.setLayout(c.Layout)
	}

	c, anew := e.exposure.Correct(c, e.estimated)
	if anew { // what was own time before says nothing of it
		e.tracks[own].Anew()
	}

	if e.columns == 0 {
		e.firstStep = c.Step
	}

	e.columns++
	e.attempts, e.lastStep = max(e.attempts, c.Attempt+1), c.Step
	e.mark(c.Step, c.StartNs)
	e.count(c)
	t := e.stepTime(c)
	saving := e.saver.Observe(c, e.columns, e.now(), e.savesEnded)
	if t > 0 && !saving && !e.pace.take(t, e.stepMedian) {
		e.setAside(c)
		e.recent.LeaveOut(t)
		return
	}

	if e.leaveOut(saving, t) {
		e.recent.LeaveOut(t)
		return
	}

	if t > 0 {
		e.stepMedian = e.pace.median(t)
	}

	e.analysed++
	e.lastTime = t
	e.judge(c, t)
}

// ObserveTransfer takes one window of one group's communication, after the last
// step of the window was observed. The window is not kept.
func (e *Engine) ObserveTransfer(t *frame.Transfer) {
	if e.layout == nil {
		return // no step was recorded
	}

	e.exposure.ObserveTransfer(t)
	if e.hostOnly && frame.P2P(t.Op) {
		return // how long the host was in the call is not how long the transfer took
	}

	e.links.ObserveTransfer(t, e.stepMedian)
}

// setAside takes a step back that does not count: what was measured in it says
// nothing of a rank.
func (e *Engine) setAside(c *frame.Column) {
	e.quarantined++
	e.measured -= e.measuredIn(c)
}

// measuredIn is the number of ranks whose step time is known.
func (e *Engine) measuredIn(c *frame.Column) int {
	n := 0
	for r, x := range c.V[frame.Step] {
		if e.layout.Present[r] && x == x {
			n++
		}
	}

	return n
}

// count keeps what was measured at all.
func (e *Engine) count(c *frame.Column) {
	for m, v := range c.V {
		if v != nil {
			e.seen[m], e.measuredAt[m], e.measuredStep[m] = true, e.columns, c.Step
		}
	}

	expected := max(e.layout.Recorded(), e.world())
	e.expected += expected
	e.off += c.Off * expected
	e.measured += e.measuredIn(c)
}

// world is the number of ranks of the job. Where neither its processes nor a topology
// tell, it is counted by the ranks that were recorded: they are numbered from 0, so it
// has no fewer than the highest of them says.
func (e *Engine) world() int {
	if n := len(e.layout.Ranks); e.layout.World == 0 && n > 0 {
		return e.layout.Ranks[n-1] + 1
	}

	return e.layout.World
}

// stepTime is the median step time over the ranks, 0 when none is known.
func (e *Engine) stepTime(c *frame.Column) float64 {
	var t float32
	if t, e.buf = robust.SampleMedian(c.V[frame.Step], e.buf); t > 0 {
		return float64(t)
	}

	return 0
}

// leaveOut reports whether the step says nothing about work: a checkpoint was
// saved in it, or it follows one and is unlike the others.
func (e *Engine) leaveOut(saving bool, t float64) bool {
	x := 0.0
	if saving {
		x = 1
	}

	e.saving += (x - e.saving) / float64(min(e.columns, threshold.Memory))
	if e.saving > savingShare && e.columns > threshold.Window {
		return false
	}

	if saving {
		e.sinceSave = 0
		return true
	}

	e.sinceSave++
	return e.sinceSave <= afterSave && e.stepMedian > 0 && t > max(e.stepMedian, e.lastTime)*(1+settleLimit)
}
