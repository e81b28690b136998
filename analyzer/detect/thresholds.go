package detect

import "github.com/laggard-dev/laggard/analyzer/detect/threshold"

// Every threshold of the detector stands with its reason in the file of thresholds of
// the package that uses it. Effects are natural logarithms of ratios (0.05 is about 5 %)
// or, for the data loader, shares of a step; counts are analysed steps.

// Default returns the thresholds that the evaluation was made with.
func Default() threshold.Config { return threshold.Default() }

// apartRanks is the number of ranks from which the signals are followed side by
// side: below, starting a goroutine costs more than it saves.
const apartRanks = 2000

// Roles and masking.
const (
	// commonShare of the job's nodes that are as slow as one of them have a common
	// cause: clusters have a few bad nodes in a hundred. In a job of fewer than
	// smallJob nodes two may be bad as well as half of them be another model.
	commonShare = 0.2
	smallJob    = 8
	// likeWork of what a rank takes longer the middle of its replica takes longer as well, where it has more to do.
	likeWork = 0.75
	// kindSpread: less than half of the nodes that always took so much longer are no mix of
	// hardware that a job gets used to.
	kindSpread = 0.15
	// modelSpread is how much longer a host may always take than its peers on fewHosts others: devices of one
	// model and cluster differ by 8 % on average (Sinha et al., "Not All GPUs Are Created Equal", SC 2022), and
	// so few do not tell by how much these do.
	modelSpread = 0.08
	fewHosts    = 3
	// commonNodes that become suspect within commonSteps have a common cause
	// (a switch, a storage), unless the record begins with it.
	commonNodes = 4
	commonSteps = 3
	// untoldLoad is the part of an expert's load that its other holders don't tell: they
	// are few, and have noise of their own.
	untoldLoad = 0.5
)

// Steps that count for nothing.
const (
	// quarantine: a step this many times the median is an event of its own, unless
	// newLevel in a row are: then the job has changed (gradients are accumulated over
	// more micro-batches), and a job that is not looked at is not healthy.
	quarantine = 5.0
	newLevel   = 4
	// afterSave steps after a checkpoint count only when they are like the others,
	// within settleLimit.
	afterSave   = 3
	settleLimit = 0.15
	// savingShare: when more steps than that save a checkpoint, saving is a part of
	// the step and no reason to leave it out.
	savingShare = 0.3
)

// stageLikeness: where roles are not known, ranks within 5 % of each other may be
// one stage.
const stageLikeness = 0.05

// Waits that were not recorded.
const (
	// waitingPeers of a role at least are in communication for longer than one of them, by
	// waitedShare of a step and waitedSigmas times what they differ by: beside the ranks of a
	// job on shared processors less is noise. The last waitedSteps tell whom to look at; it must
	// be so in waitedOften of a window's steps, for where replicas get uneven work another one is
	// late in each.
	waitingPeers = 2
	waitedSteps  = 4
	waitedShare  = 0.05
	waitedSigmas = 6
	waitedOften  = 0.8
	// unrecordedShare of a step in bare communication, on every rank that was recorded, may be
	// the wait for one that was not, where those are unrecordedRanks of the job.
	unrecordedShare = 0.15
	unrecordedRanks = 1.0 / 8
	// inLockstep is the most by which forward passes differ, of what they are longer by, that end together.
	inLockstep = 0.1
	// linkLead times what a rank loses is what links cost that explain it.
	linkLead = 2
)

// Causes.
const (
	// computeShare of the relative excess of self time that forward time must show
	// for the cause to be compute: a slow device slows forward as well.
	computeShare = 0.5
	// hardlyShare of it is so little, where no groups are told, that forward time says nothing of the rank.
	hardlyShare = 1.0 / 3
	// beforeShare of its excess by which the forward of its group's other members is
	// longer than its own: it comes late to it (a third would be all of a delay before
	// forward passes, for two thirds are before backward passes).
	beforeShare = 0.2
	// causeShare of all excess that the named cause must cover.
	causeShare = 0.8
	// estimatedShare is the same where self time is an estimate (TaskD's lines tell no
	// waits): a part of what a slow loader takes is then counted as self time, too.
	estimatedShare = 0.6
	// identityShare of the excess must be missing from the rank's own waiting.
	identityShare = 0.7
	// pipelineLead is how much larger than its pipeline mates' the excess of a rank
	// without forward evidence must be: uncovered waits of victims come close.
	pipelineLead = 1.05
	// mateShare of its excess is the most that its mates elsewhere may show for a
	// rank to be waiting for none of them.
	mateShare = 0.3
	// awaitedShare of its excess must be missing from what the pipeline mates of a
	// rank without forward evidence wait in the gradient reduction.
	awaitedShare = 0.6
	// ownAlarm is the z that such a rank needs: part of its spread are waits.
	ownAlarm = 7
	// unprovenAlarm is the z of a node's ranks together from which such time is no noise, though nothing
	// proves whose it is.
	unprovenAlarm = 6
	// betweenPasses of a step is what ranks of a pipeline do between its passes at most: load data, send, gather parameters.
	betweenPasses = 0.02
	// wireShare: the quickest transfer of a window, which alone is no wait, is half of the usual one at least.
	wireShare = 2
	// shownGrowth of what is waited for slow links steps are longer since at least, for each step fills and drains its
	// pipelines: where they are not, the links were slow before.
	shownGrowth = 0.1
	// shownShare of what somebody could check the window must show of who was slow in a lane of many steps.
	shownShare = 0.25
	// overAlarm is the z from which a condition that is over is told as one: of 1,500 culprits those that had
	// recovered had 19 and more, and healthy ranks that were taken for one 5 to 10. Below it is at most an event,
	// where it was short and strong.
	overAlarm = 10
	// leadEffect is the least effect for which a rank that its own groups wait for
	// needs no more than the usual z: 5 % seldom looks smaller, and of a hundred healthy
	// ranks some lead their group by 3 % for forty steps.
	leadEffect = 0.035
	// beganAlarm and beganShare serve a rank that the job waits for less than that,
	// but that clearly became slow by itself.
	beganAlarm = 10
	beganShare = 0.25
	// usualSample peers tell what is usually waited inside the forward pass.
	usualSample = 33
	// slowestShare of the steps such a rank's node must be the slowest of its role.
	slowestShare = 0.5
	// explainedShare: an active culprit with this share of a rank's excess explains it.
	explainedShare = 0.7
)

// sameWithin is how far raw times may differ from what is left without work before
// evidence speaks of the same work instead of the times as they are.
const sameWithin = 0.005

// Intermittent faults.
const (
	// transientsPerHour on one node are intermittent, and so are as many that fill
	// burstShare of the steps, where they are burstSigmas more than most nodes have.
	transientsPerHour = 3
	burstShare        = 0.035
	burstSigmas       = 3
)

// Findings.
const (
	stageRatio     = 1.15 // heavy stage over the median stage, by measured compute
	stageSelfRatio = 1.25 // by self time, which hides unrecorded waits
	// workSpread is the robust spread of replicas' work that is worth a finding;
	// alone where stages agree, soloSpread where nothing but noise could differ.
	workSpread = 0.03
	soloSpread = 0.05
	// oftenSigmas more than its share of a window's steps one of the replicas is the last where it is no chance: their work
	// may be alike for some steps, so three are too few.
	oftenSigmas = 4
)
