package detect

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/laggard-dev/laggard/analyzer/detect/level"
	"github.com/laggard-dev/laggard/analyzer/detect/residual"
	"github.com/laggard-dev/laggard/analyzer/detect/robust"
	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

func (e *Engine) seenFP() bool { return e.seen[frame.FP] }

// fillFindings says what is wrong with the job and no node's fault.
func (e *Engine) fillFindings(v *verdict.Verdict, common *common) {
	e.stageFinding(v)
	e.workFinding(v)
	if n := len(common.experts); n > 0 {
		addFinding(v, verdict.Finding{Kind: verdict.WorkloadImbalance, Ranks: common.experts,
			Detail: fmt.Sprintf("ranks that hold the same expert take longer together (%d of them clearly), and nobody else on their nodes: it gets more tokens", n)})
	}

	e.slowFinding(v, common)
	e.storageFinding(v)
}

func addFinding(v *verdict.Verdict, f verdict.Finding) {
	if f.Ranks == nil {
		f.Ranks = []int{}
	}

	f.JobImpact = math.Round(min(1, max(0, f.JobImpact))*1e4) / 1e4
	v.Findings = append(v.Findings, f)
}

// stageFinding compares the stages' usual times: the same stage long on all
// replicas is the layout's fault.
func (e *Engine) stageFinding(v *verdict.Verdict) {
	if e.layout.Stages < 2 {
		return
	}

	for _, s := range []signal{compute, own} {
		times := e.level.ByStage(int(s), e.layout.Stages)
		if len(times) < 2 {
			continue
		}

		limit := stageRatio
		if s == own {
			limit = stageSelfRatio
		}

		stages, ratio, share := heavy(times, limit)
		if s == compute && !e.heavyItself(stages) {
			return // its forward passes wait inside: for a slow rank, not for its layers
		}

		if len(stages) == 0 {
			return
		}

		excess := share * e.stageBusy(stages)
		if excess < level.LeastImpact {
			return // the better signal decides
		}

		impact := e.unevenStages(excess)
		f := verdict.Finding{Kind: verdict.StageImbalance, JobImpact: impact, Stages: stages, Ratio: math.Round(ratio*1e3) / 1e3}
		for r := range e.n {
			if g := e.layout.Role[r]; g >= 0 && slices.Contains(stages, e.layout.Roles[g].Stage) {
				f.Ranks = append(f.Ranks, e.layout.Ranks[r])
			}
		}

		f.Detail = stageSentence(s, times, stages, ratio, impact, e.layout.Certain)
		addFinding(v, f)
		return
	}
}

// heavyItself reports whether own time, where it is known, agrees at least half
// way that the stages are heavy.
func (e *Engine) heavyItself(stages []int) bool {
	times := e.level.ByStage(int(own), e.layout.Stages)
	if len(times) < 2 || len(stages) == 0 {
		return true
	}

	also, _, _ := heavy(times, 1+(stageRatio-1)/2)
	return slices.ContainsFunc(stages, func(s int) bool { return slices.Contains(also, s) })
}

// heavy returns the stages that take limit times the median of the others or
// more, the ratio of the heaviest, and the share of its time that an even split
// would save.
func heavy(times []float64, limit float64) (stages []int, worst, share float64) {
	for s, t := range times {
		others := slices.Delete(slices.Clone(times), s, s+1)
		r := t / robust.Median64(others)
		if r >= limit {
			stages = append(stages, s)
			worst = max(worst, r)
		}
	}

	sum := 0.0
	for _, t := range times {
		sum += t
	}

	top := slices.Max(times)
	return stages, worst, 1 - sum/float64(len(times))/top
}

// stageBusy is the share of the step in which the heavy stages work.
func (e *Engine) stageBusy(stages []int) float64 {
	if len(stages) == 0 || e.stepMedian <= 0 {
		return 0
	}

	var rows []int32
	for g := range e.layout.Roles {
		if slices.Contains(stages, e.layout.Roles[g].Stage) {
			rows = append(rows, e.layout.Roles[g].Rows...)
		}
	}

	rows = sample(rows, 0)
	if x := e.recent.Over(frame.Self, rows, threshold.Window, nil); x == x {
		return min(1, x/e.stepMedian)
	}

	x := e.recent.Over(frame.FP, rows, threshold.Window, nil)
	if b := e.recent.Over(frame.Backward, rows, threshold.Window, nil); b == b {
		x += b
	} else {
		x *= 3
	}

	if x != x {
		return 1
	}

	return min(1, x/e.stepMedian)
}

func stageSentence(s signal, times []float64, stages []int, ratio, impact float64, certain bool) string {
	what := "compute"
	if s == own {
		what = "own"
	}

	var b strings.Builder
	fmt.Fprintf(&b, "stage %s takes %.2f times the %s time of the other stages on every replica (", join(stages), ratio, what)
	for i, t := range times {
		if i > 0 {
			b.WriteString(", ")
		}

		fmt.Fprintf(&b, "%.4g s", t)
	}

	b.WriteString(" a step by stage)")
	switch {
	case impact < 0.005: // in words 0 %
		b.WriteString("; an even split would save nothing: with so few micro-batches the pipeline takes as long either way")
	case len(stages) == 1:
		mean := 0.0
		for _, t := range times {
			mean += t / float64(len(times))
		}

		fmt.Fprintf(&b, ": move about %.0f %% of its layers to the others", 100*(1-mean/times[stages[0]]))
	}

	if !certain {
		b.WriteString("; stages were guessed from times, no groups are known")
	}

	return b.String()
}

func join(v []int) string {
	var s []string
	for _, x := range v {
		s = append(s, fmt.Sprint(x))
	}

	return strings.Join(s, ", ")
}

// workFinding says that replicas get unequal work, now these, now those.
func (e *Engine) workFinding(v *verdict.Verdict) {
	n := len(e.layout.Replicas)
	if n < 2 || e.analysed < threshold.MinValid {
		return
	}

	k := int(compute)
	if e.level.SpreadN[k] == 0 {
		k = int(own)
	}

	s := e.level.Bulk[k]
	limit := workSpread
	several := e.sharing[k].Usable
	explained := e.tokens.Explains(k)
	if several && !explained {
		if g := e.sharing[k].Together(); g < residual.SharedCorrelation {
			return // stages disagree: noise, not work
		}
	} else if !explained {
		limit = soloSpread
	}

	if s < limit {
		return
	}

	impact := e.unevenLanes()
	if impact < level.LeastImpact {
		return
	}

	why := "the stages of a replica go together, so it is the micro-batches (sequence lengths), not a rank"
	if !several {
		why = "it changes from step to step on all ranks, as unequal sequence lengths do"
	}

	if explained {
		why = "the recorded tokens explain it"
	}

	addFinding(v, verdict.Finding{Kind: verdict.WorkloadImbalance, JobImpact: impact,
		Detail: fmt.Sprintf("the work of the %d replicas differs by %.1f %% from step to step and rotates; %s", n, 100*s, why)})
}

// slowFinding says that the whole job became slower than its own past.
func (e *Engine) slowFinding(v *verdict.Verdict, common *common) {
	if n := len(common.sudden); n > 0 {
		addFinding(v, verdict.Finding{Kind: verdict.JobSlow,
			Detail: fmt.Sprintf("%d nodes became slow within %d steps: a common cause (fabric, storage, power), not so many bad nodes", n, commonSteps)})
		return
	}

	if n := len(common.standing); n > 0 {
		addFinding(v, verdict.Finding{Kind: verdict.JobSlow,
			Detail: fmt.Sprintf("at least %d of the job's %d nodes are slower than their peers, too many to be bad by themselves: a common cause (a mix of hardware, configuration, storage)", n, common.nodes)})
		return
	}

	step, since := e.level.Change(level.Step)
	if step < math.Log1p(level.Rise) {
		if step, since = e.level.Along(); step < math.Log1p(level.Rise) {
			return
		}
	}

	impact := 1 - math.Exp(-step)
	known := 0.0
	for _, n := range v.Nodes {
		if n.State == verdict.Degraded {
			known = max(known, n.JobImpact)
		}
	}

	for _, l := range v.Links {
		known = max(known, l.JobImpact)
	}

	if known >= impact/2 {
		return // somebody explains it
	}

	say := func(what string, rise float64, at int64) {
		addFinding(v, verdict.Finding{Kind: verdict.JobSlow, JobImpact: impact,
			Detail: fmt.Sprintf("since step %d a step takes %.1f %% longer than before: %s by %.1f %% on all ranks alike", min(at, since), 100*math.Expm1(step), what, 100*math.Expm1(rise))})
	}
	work, at := e.level.Change(level.Compute)
	selfs, at2 := e.level.Change(level.Own)
	link, at3 := e.level.Change(level.Link)
	switch {
	case work >= 0.8*math.Log1p(level.Rise):
		say("computing takes longer", work, at)
	case selfs >= 0.8*math.Log1p(level.Rise):
		say("own time is longer", selfs, at2)
	case link >= math.Log1p(e.cfg.LinkRise) && len(v.Links) == 0:
		say("transfers take longer", link, at3)
	case !e.seen[frame.FP] && !e.seen[frame.Self] && len(v.Nodes) == 0:
		addFinding(v, verdict.Finding{Kind: verdict.JobSlow, JobImpact: impact,
			Detail: fmt.Sprintf("since step %d a step takes %.1f %% longer than before; only step times were recorded, so why is not known", since, 100*math.Expm1(step))})
	}
}

// storageFinding says that data or checkpoints are slow for changing or all ranks.
func (e *Engine) storageFinding(v *verdict.Verdict) {
	if e.storage.Rotates() {
		addFinding(v, verdict.Finding{Kind: verdict.SharedStorage, JobImpact: e.storage.Cost,
			Detail: fmt.Sprintf("in %.0f %% of the steps some rank waits long for data, on %d nodes in turn: the storage they share, not one of them", 100*e.storage.Slow, len(e.storage.Top))})
		return
	}

	if rise, since := e.level.Change(level.Load); rise >= level.LoadShare {
		addFinding(v, verdict.Finding{Kind: verdict.SharedStorage, JobImpact: rise,
			Detail: fmt.Sprintf("since step %d all ranks wait longer for data, by %.1f %% of a step", since, 100*rise)})
		return
	}

	if since, slow := e.saver.AllSlow(); slow {
		addFinding(v, verdict.Finding{Kind: verdict.SharedStorage,
			Detail: fmt.Sprintf("since step %d all ranks take at least twice as long to save a checkpoint", since)})
	}
}

// decide says whether enough was seen to call anything healthy.
func (e *Engine) decide(v *verdict.Verdict, common *common) {
	expected, judged, bold := 0, 0, 0
	for r, p := range e.layout.Present {
		if !p {
			continue
		}

		expected++
		if e.judged[r] >= threshold.MinValid {
			judged++
		}

		if e.judged[r] > 0 {
			bold++
		}
	}

	found := len(v.Links) > 0 || slices.ContainsFunc(v.Nodes, func(n verdict.Node) bool { return n.State != verdict.Recovered })
	// What was switched off is no coverage, and says nothing of the steps recorded since.
	covered := e.expected > 0 && round4(float64(e.measured)/float64(e.expected)) >= e.cfg.MinCoverage
	hidden := cmp.Or(e.hidden(), e.links.Unjudged())
	v.Decided = found || expected > 1 && 2*judged >= expected && covered && hidden == "" && !common.undecidable()
	// Below it only a culprit is news: a suspect is none, nor is one that costs too little.
	v.Decided = v.Decided && (covered || v.Exit(e.cfg.MinImpact) == verdict.ExitDegraded)
	if !covered && e.columns > 0 {
		e.low(v, fmt.Sprintf("%.0f %% of the expected rank-steps (steps × the ranks of the job) were measured; a slow rank may be among those that were not", 100*v.Coverage))
	}

	if n := len(common.pairs); n > 0 && !found {
		e.low(v, fmt.Sprintf("rank %d has one peer, is slower than it, and always was: nobody can tell which of the two is not as it should be", common.pairs[0]))
	} else if !found && common.undecidable() {
		e.low(v, fmt.Sprintf("%d of %d nodes are slower than the others and none has a healthy past here: too few nodes to tell bad ones from another model", len(common.standing), common.nodes))
	}

	switch {
	case e.columns == 0:
		e.low(v, "no step was recorded")
	case !e.seen[frame.FP] && !e.seen[frame.Self]:
		e.low(v, "only step times were recorded: everybody waits for the slowest, so they tell nothing of a single rank; record FP or Communication")
	case !found && expected <= 1:
		e.low(v, "one rank alone was recorded: there is nobody to compare it with")
	case !found && 2*judged < expected:
		e.low(v, fmt.Sprintf("%d of %d ranks have the %d valid steps that a decision needs (%d have any)", judged, expected, threshold.MinValid, bold))
	case found && e.seen[frame.Self] && !e.live(frame.Self):
		e.low(v, fmt.Sprintf("Communication is no longer recorded (since step %d): what was found with it is repeated until it is measured again; laggard trace on --words CommunicationOperator", e.measuredStep[frame.Self]+1))
	case hidden != "":
		e.low(v, hidden)
	case !e.layout.Certain:
		e.low(v, "no groups are known: a rank that was slow from the start can't be told from a heavier pipeline stage when others are as slow; give --topology")
	case !e.seen[frame.Self]:
		e.low(v, "no Communication was recorded: a slow backward pass, a slow host and slow links can't be seen; laggard trace on --words CommunicationOperator")
	case !e.seen[frame.FP]:
		e.low(v, "no FP was recorded: slow computing and a slow host can't be told apart, and an unrecorded wait looks like work")
	}
}

// hidden says what a light recording (no Communication, so no own time) may hide, ""
// where what it shows is enough: forward times of a device tell a slow device, but host
// times only that it was given work, and a step that grew for no recorded reason may
// have any.
func (e *Engine) hidden() string {
	const remedy = "; laggard trace on --words CommunicationOperator"
	if e.live(frame.Self) || !e.seen[frame.FP] {
		return ""
	}

	if e.hostOnly {
		return "no Communication is recorded, and forward passes with host times only: of work on an accelerator that is the time to enqueue it, so a slow rank may be hidden" + remedy
	}

	step, since := e.level.Change(level.Step)
	if step < math.Log1p(e.cfg.MinImpact) {
		return ""
	}

	work, _ := e.level.Change(level.Compute)
	load, _ := e.level.Change(level.Load)
	if math.Max(work, load) >= identityShare*step {
		return ""
	}

	return fmt.Sprintf("since step %d a step takes %.1f %% longer than before, and what is recorded does not say why%s", since, 100*math.Expm1(step), remedy)
}

// live reports whether the metric was recorded in the last window of steps.
func (e *Engine) live(m frame.Metric) bool {
	return e.seen[m] && e.columns-e.measuredAt[m] < threshold.Window
}

func (e *Engine) low(v *verdict.Verdict, text string) {
	addFinding(v, verdict.Finding{Kind: verdict.LowCoverage, Detail: text})
}
