package detect

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/laggard-dev/laggard/analyzer/detect/level"
	"github.com/laggard-dev/laggard/analyzer/detect/link"
	"github.com/laggard-dev/laggard/analyzer/detect/residual"
	"github.com/laggard-dev/laggard/analyzer/detect/robust"
	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// fillFindings says what is wrong with the job and no node's fault.
func (e *Engine) fillFindings(v *verdict.Verdict, common *common) {
	e.stageFinding(v)
	if len(common.replicas) > 0 {
		e.moreWorkFinding(v, common.replicas)
	} else {
		e.workFinding(v, common)
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

// addFindingf adds a finding, of those that name no ranks, in words.
func addFindingf(v *verdict.Verdict, kind string, impact float64, words string, args ...any) {
	addFinding(v, verdict.Finding{Kind: kind, JobImpact: impact, Detail: fmt.Sprintf(words, args...)})
}

// moreWorkFinding says that replicas have more work than others, step after step.
func (e *Engine) moreWorkFinding(v *verdict.Verdict, replicas []int32) {
	impact, _ := e.costs.UnevenLanes(e.slowLanes(v.Nodes))
	f := verdict.Finding{Kind: verdict.WorkloadImbalance, JobImpact: impact}
	most := 0.0
	for _, q := range replicas {
		for _, r := range e.layout.Replicas[q] {
			f.Ranks, most = append(f.Ranks, e.layout.Ranks[r]), max(most, e.tracks[compute].Standing(int(r)))
		}
	}

	f.Detail = fmt.Sprintf("all %d stages of the replica of rank %d take up to %.2f times as long as those of other replicas, step after step: it gets more work (longer or more sequences); no single device does this on several nodes",
		e.layout.Stages, f.Ranks[0], math.Exp(most))
	addFinding(v, f)
}

// workFinding says that replicas get unequal work, now these, now those. Whether one that is the last in most steps gets
// more of it or is slow, nobody can tell where it is on one node and costs something.
func (e *Engine) workFinding(v *verdict.Verdict, common *common) {
	n := len(e.layout.Replicas)
	if n < 2 || e.analysed < threshold.MinValid {
		return
	}

	// Forward passes that hold waits are as long on all replicas that share them: own
	// time tells what these have to do. Where they hold none, what differs in it alone is no work.
	s, explained, ok := e.workDiffers(compute)
	if !ok {
		if e.seen[frame.FP] && !e.forwardWaits() {
			return
		}

		if s, explained, ok = e.workDiffers(own); !ok {
			return
		}
	}

	impact, last := e.costs.UnevenLanes(e.slowLanes(v.Nodes))
	if impact < level.LeastImpact {
		return
	}

	f := verdict.Finding{Kind: verdict.WorkloadImbalance, JobImpact: impact}
	why := "and rotates; the stages of a replica go together, so it is the micro-batches (sequence lengths), not a rank"
	lane, often := mostOften(last)
	switch {
	case explained:
		why = "and rotates; the recorded tokens explain it"
	case often:
		for _, r := range e.graph.Rows(lane) {
			f.Ranks = append(f.Ranks, e.layout.Ranks[r])
		}

		why = fmt.Sprintf("and the one of rank %d is the last in %d of the last %d steps", f.Ranks[0], last[lane], total(last))
		switch {
		case e.moreTokens(int(e.graph.Rows(lane)[0])) >= e.cfg.MinEffect:
			why += ": it is given more tokens"
		case e.singleNode(e.graph.Rows(lane)) < 0:
			why += ": its ranks on several nodes go together, so it gets more work"
		case e.costs.LastLane(lane) >= e.cfg.MinImpact:
			common.last = f.Ranks
		}
	case !e.sharing[compute].Usable:
		why = "and rotates; it changes from step to step on all ranks, as unequal sequence lengths do"
	}

	f.Detail = fmt.Sprintf("the work of the %d replicas differs by %.1f %% from step to step %s", n, 100*s, why)
	addFinding(v, f)
}

// forwardWaits reports whether ranks wait for each other during their forward passes.
func (e *Engine) forwardWaits() bool {
	return slices.ContainsFunc(e.layout.Groups, func(g frame.Group) bool { return slices.Contains(e.exposure.Blocking(), g.Metric()) })
}

// workDiffers is how much the work of replicas differs from step to step, as a signal tells it, and
// whether recorded tokens explain that; ok where it is much, or grew apart slowly, and is no noise: then
// the stages of a replica go together.
func (e *Engine) workDiffers(k signal) (spread float64, explained, ok bool) {
	spread, explained = e.level.Bulk[k], e.tokens.Explains(int(k))
	switch {
	case e.level.SpreadN[k] == 0:
		return 0, false, false
	case explained:
		return spread, true, spread >= workSpread
	case e.sharing[k].Usable:
		return spread, false, (spread >= workSpread || k == compute && e.apart() >= workSpread) && e.sharing[k].Together() >= residual.SharedCorrelation
	}

	return spread, false, spread >= soloSpread
}

// apart is how much longer than others the replica with most work computes lately, as all its stages show; a logarithm. Own
// time would not tell: it may be a wait.
func (e *Engine) apart() float64 {
	most := 0.0
	for q := range e.wholes[compute].Len() {
		most = max(most, robust.Finite(float64(e.wholes[compute].Middle(q)), 0))
	}

	return most
}

// slowLanes marks the lanes with slow ranks of nodes that are named and not well again.
func (e *Engine) slowLanes(named []verdict.Node) []bool {
	out := make([]bool, e.graph.Lanes())
	for r, rank := range e.layout.Ranks {
		if l := e.graph.Lane(r); l >= 0 && slices.ContainsFunc(named, func(n verdict.Node) bool {
			return n.State != verdict.Recovered && slices.Contains(n.Ranks, rank)
		}) {
			out[l] = true
		}
	}

	return out
}

// mostOften is the lane that was the last in most steps, and whether it was so more often
// than work makes it that comes to each of them in turn.
func mostOften(last []int) (lane int, often bool) {
	for l, k := range last {
		if k > last[lane] {
			lane = l
		}
	}

	steps, share := float64(total(last)), 1/float64(len(last))
	chance := steps*share + oftenSigmas*math.Sqrt(steps*share*(1-share))
	return lane, float64(last[lane]) > max(chance, steps/2)
}

func total(v []int) int {
	n := 0
	for _, x := range v {
		n += x
	}

	return n
}

// slowFinding says that the whole job became slower than its own past.
func (e *Engine) slowFinding(v *verdict.Verdict, common *common) {
	if n := len(common.sudden); n > 0 {
		addFindingf(v, verdict.JobSlow, 0, "%d nodes became slow within %d steps: a common cause (fabric, storage, power), not so many bad nodes", n, commonSteps)
		return
	}

	if len(common.standing) > 0 && !common.undecidable() { // decide says what can't be told
		first := slices.Min(slices.Collect(maps.Keys(common.standing)))
		addFindingf(v, verdict.JobSlow, 0, "%s and others of the job's %d nodes are slower than their peers, too many to be bad by themselves: a common cause (a mix of hardware, configuration, storage)", first, common.nodes)
		return
	}

	known := 0.0
	slow := e.slowLinks()
	if e.fabric(slow) {
		known, _ = e.linkCost(slow)
		addFindingf(v, verdict.JobSlow, known, "since step %d transfers in %s, which holds all ranks, take %.2f times as long as before: the network, or other work on the hosts; none of its links is set apart",
			slow[0].Since, link.Called(slow[0].Name), math.Exp(slow[0].Rise))
	}

	step, since := e.level.Change(level.Step)
	if step < math.Log1p(level.Rise) {
		if step, since = e.level.Along(); step < math.Log1p(level.Rise) {
			return
		}
	}

	impact := 1 - math.Exp(-step)
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
		addFindingf(v, verdict.JobSlow, impact, "since step %d a step takes %.1f %% longer than before: %s by %.1f %% on all ranks alike", min(at, since), 100*math.Expm1(step), what, 100*math.Expm1(rise))
	}
	work, at := e.grew(level.Compute)
	selfs, at2 := e.grew(level.Own)
	transfer, at3 := e.grew(level.Link)
	switch {
	case work >= 0.8*math.Log1p(level.Rise):
		say("computing takes longer", work, at)
	case selfs >= 0.8*math.Log1p(level.Rise):
		say("own time is longer", selfs, at2)
	case transfer >= math.Log1p(e.cfg.LinkRise) && len(slow) == 0:
		say("transfers take longer", transfer, at3)
	case !e.seen[frame.FP] && !e.seen[frame.Self] && len(v.Nodes) == 0:
		addFindingf(v, verdict.JobSlow, impact, "since step %d a step takes %.1f %% longer than before; only step times were recorded, so why is not known", since, 100*math.Expm1(step))
	}
}

// grew is by how much more all ranks take for something than before, and since when; 0 where it is not all of them, or
// may be a wait for some: own time tells whether forward passes hold one.
func (e *Engine) grew(kind int) (rise float64, since int64) {
	rise, since = e.level.Change(kind)
	known := true
	switch kind {
	case level.Compute:
		waits := e.seen[frame.Self] && e.forwardWaits() && e.level.Since(level.Own, since) < rise/2
		known = !waits && e.everywhere(compute, rise)
	case level.Own:
		known = e.ownIsWork() && e.everywhere(own, rise)
	}

	if !known {
		return 0, 0
	}

	return rise, since
}

// everywhere reports whether what grew by rise in a signal did so in all stages: none that is compared with the others
// went half as far from what it was beside them. The middle of few stages grows with half of them.
func (e *Engine) everywhere(s signal, rise float64) bool {
	for g, n := range e.home {
		if x := e.alone[s].AboveHabit(g); n >= 0 && max(x, -x) >= rise/2 {
			return false
		}
	}

	return true
}

// storageFinding says that data or checkpoints are slow for changing or all ranks.
func (e *Engine) storageFinding(v *verdict.Verdict) {
	if e.storage.Rotates() {
		addFindingf(v, verdict.SharedStorage, e.storage.Cost, "in %.0f %% of the steps some rank waits long for data, on %d nodes in turn: the storage they share, not one of them", 100*e.storage.Slow, len(e.storage.Top))
		return
	}

	_, alone := e.loader() // then decide says that nobody can tell
	if rise, since := e.level.Change(level.Load); rise >= level.LoadShare && !alone {
		addFindingf(v, verdict.SharedStorage, rise, "since step %d all ranks wait longer for data, by %.1f %% of a step", since, 100*rise)
		return
	}

	if since, slow := e.saver.AllSlow(); slow {
		addFindingf(v, verdict.SharedStorage, 0, "since step %d all ranks take at least twice as long to save a checkpoint", since)
	}
}
