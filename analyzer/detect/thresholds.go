package detect

import "github.com/laggard-dev/laggard/analyzer/detect/threshold"

// Every threshold of the detector stands with its reason in the file of thresholds of
// the package that uses it. Effects are natural logarithms of ratios (0.05 is about 5 %)
// or, for the data loader, shares of a step; counts are analysed steps.

// Config is what an operator may change while the detector runs.
type Config = threshold.Config

// Default returns the thresholds that the evaluation was made with.
func Default() Config { return threshold.Default() }

// Windows, in analysed steps.
const (
	// maxBlocks is the longest lane (256 steps): pure data parallelism with 12 % sequence
	// noise needs 64 to 128 steps to see 10 %, 256 to see 5 %.
	maxBlocks = 32
	// suspectEvery is how often a suspect's window is tested.
	suspectEvery = 2
)

// gaps are the blocks between a window and the past that it is compared with, for which
// it is measured how far healthy units go from their past meanwhile: from none to what
// the longest lane holds.
var gaps = [...]int{0, 4, 12, 20}

// lanes are the lengths of the slow lanes in blocks. What 64 steps just miss shows
// in 80, not only in 96: a lane never begins with the fault.
var lanes = [...]int{8, 10, 12, 16, 24, 32}

// Suspicion: a winsorised CUSUM in units of half the design effect.
const (
	// suspectAt is how far the CUSUM must climb, at most 1 a step: five steps, twice
	// that with one or two peers.
	suspectAt = 5.0
	fewPeers  = 2
	cusumDown = -3.0
	// fewStep is how far one step may lift the CUSUM of a unit with few peers that
	// is far above its own past as well: what a third rank could not vouch for, two
	// references do. Confirming takes twice as long all the same.
	fewStep = 2.0
	// cusumOdds is the logarithm of the odds against crossing in health, a step:
	// exp(-14) is one false suspicion in a million rank-steps under Gaussian tails.
	// It raises the height where noise is large: with 12 % sequence noise nobody
	// becomes suspect of 10 % in a few steps, and the slow lanes decide.
	cusumOdds = 14
	// cusumHighest is the height (a noise of 4 %) from which the CUSUM looks for
	// larger effects instead: with units of 1.2 times the noise, suspectAt has the
	// same odds.
	cusumHighest = 40
	// suspectZ is the z from which a suspect is shown: one in a thousand, of the few
	// that the sequential test caught.
	suspectZ = 3.0
	// calmSteps without slowness end an episode.
	calmSteps = 20
	// transientSteps is the longest episode that is an event, not a condition.
	transientSteps = 30
	// eventEffect is the least mean effect of an event: what is smaller and passes
	// is noise nobody can check.
	eventEffect = 0.08
	eventSigmas = 3.0
)

// pureRelief lowers LongAlarm where every rank is a replica of its own: nothing is
// shared that could be removed badly, so ranks are independent and their lanes
// Gaussian, and 96 steps must do for 10 % under 12 % noise. 4.5 leaves 0.3 false
// alarms in 1,000 node-hours of jobs with 5 % noise or more, fewer below.
const pureRelief = 0.4

// Window test.
const (
	// boldEffects: 20 % in each of eight steps needs no more statistics.
	boldEffects = 4
	// settledSteps: an episode younger than this is not called degraded unless it
	// began with the record; a dozen slow steps are a transient.
	settledSteps = 16
	// sigmaFloor is the least noise of a step: clocks and rounding.
	sigmaFloor = 0.004
	// tauFloor is the least harmless persistent spread between devices.
	tauFloor = 0.005
	// usualLooks at how far ranks lie apart, one every evaluateEvery steps, tell what is
	// usual: a fault is degraded long before it is in half of them.
	usualLooks = 64
	// changeSample units, in turn, tell how far healthy ones go from their past.
	changeSample = 128
	// fewTauFloor is the same where there are too few ranks to see the spread.
	fewTauFloor = 0.01
	// fewOwnFloor: a rank against its own past drifts less than two devices differ.
	fewOwnFloor = 0.006
	// tailFreedom: p-values are those of a t distribution, which has heavier tails.
	// A window of correlated steps has fewer independent ones and heavier tails.
	// That of tailFreedom is for a window of 32; lanes have it longer by their length.
	tailFreedom  = 20
	leastFreedom = 4
	// peerGain is how much slower than its peers a rank must be to be named when
	// the change against its own past gave it away.
	peerGain = 0.01
)

// Baselines.
const (
	// baseBlocks make a rank's own baseline: 64 healthy steps.
	baseBlocks = 8
	// minBase blocks (32 steps) are enough to use it; its error counts.
	minBase = 4
	// baseDrift is how far it may follow in one block; a thermal ramp is faster.
	baseDrift = 0.001
	// creepBlocks blocks that are twice creepUnit, or creepSigmas of a block's noise, above
	// it stop it from learning; as many from creepMost down let it go on.
	creepUnit   = 0.004
	creepSigmas = 1.5
	creepBlocks = 3
	creepMost   = 8
	// longShare of MinEffect is the least effect of the longest lanes (128 steps and more):
	// 3 % over a thousand steps is worth as much as 5 % at once.
	// Then slowShare of the blocks must show longEach of it: a transient moves the mean.
	longShare  = 2.0 / 3
	longEach   = 0.7
	longBlocks = 16
	// centreSteps is the memory of a unit's centre. Its first openSteps count as they
	// are: clipped by the noise, the centre of a unit that was slow from the start
	// would creep up for a hundred steps and pass for noise of its own.
	centreSteps = 32
	openSteps   = 8
	// settleSteps until a unit's centre is known well enough to measure its noise.
	settleSteps = 16
	// baseLimit bounds it: what is slower than that is not a habit of a device. Self
	// time has other habits, waits that no range records, and no such bound.
	baseLimit = 0.03
)

// apartRanks is the number of ranks from which the signals are followed side by
// side: below, starting a goroutine costs more than it saves.
const apartRanks = 2000

// Roles and masking.
const (
	// noiseSample ranks of a role, and noisePool of all, tell the noise of one step;
	// over the 32 steps that count that is thousands.
	noiseSample = 128
	noisePool   = 2048
	// wideMost MADs are the largest spread that the 80th percentile may claim: it sees
	// the few ranks of small roles better, and breaks when a fifth of them is slow.
	wideMost = 2
	// commonShare of the job's nodes that are as slow as one of them have a common
	// cause: clusters have a few bad nodes in a hundred. In a job of fewer than
	// smallJob nodes two may be bad as well as half of them be another model.
	commonShare = 0.2
	smallJob    = 8
	// popularShare of a rank's effect in those that hold the same expert makes it the
	// expert's: a faulty rank has no part in the others.
	popularShare = 0.35
	// commonNodes that become suspect within commonSteps have a common cause
	// (a switch, a storage), unless the record begins with it.
	commonNodes = 4
	commonSteps = 3
	// sharedCorrelation is the least correlation between stages of a replica, or
	// with tokens, at which the common part is taken for work and removed.
	sharedCorrelation = 0.5
	// sharedNoise is the variance of the noise in the middle of a replica's other
	// stages to that of one rank: three stages' median has 0.45 of it, and one stage
	// all of it.
	sharedNoise = 0.6
	// sharedMost is the steepest line that is believed: a real pair of stages has 1.52.
	sharedMost = 3
	// usualDevs spreads are the most by which a rank counts in what experts share.
	usualDevs = 3
	// untoldLoad is the part of an expert's load that its other holders don't tell: they
	// are few, and have noise of their own.
	untoldLoad = 0.5
	// sharedColumns must have been seen before.
	sharedColumns = 4
	// latelySteps tell what a slow rank's part of its replica's work is: as few as
	// forget a fault that ends before its mates are suspect.
	latelySteps = 5
)

// Steps that count for nothing.
const (
	// warmUp steps of a process whose start was recorded: caches, JIT, allocator.
	warmUp = 10
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

// Causes.
const (
	// computeShare of the relative excess of self time that forward time must show
	// for the cause to be compute: a slow device slows forward as well.
	computeShare = 0.5
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
	// calmShare of its excess is the most that its mates elsewhere may show for a
	// rank to be waiting for none of them.
	calmShare = 0.3
	// awaitedShare of its excess must be missing from what the pipeline mates of a
	// rank without forward evidence wait in the gradient reduction.
	awaitedShare = 0.6
	// ownAlarm is the z that such a rank needs: part of its spread are waits.
	ownAlarm = 7
	// leadEffect is the least effect for which a rank that its own groups wait for
	// needs no more than the usual z: 5 % seldom looks smaller, and of a hundred healthy
	// ranks some lead their group by 3 % for forty steps.
	leadEffect = 0.035
	// beganAlarm and beganShare serve a rank that the job waits for less than that,
	// but that clearly became slow by itself.
	beganAlarm = 10
	beganShare = 0.25
	// victimShare of a rank's excess that it waits in collectives of its forward pass.
	victimShare = 0.5
	// usualShare of it is the most that counts as usual: who waits as long as that for
	// another member is not the one that makes the group slow, however often it was so.
	usualShare  = 1.0 / 3
	usualSample = 33
	// innerEvery: a rank's usual wait inside its forward is looked at every so many
	// steps, and the median of the last usualWaits such looks is the usual one: three
	// of seven may be pauses of others or the wild first steps.
	innerEvery = 8
	usualWaits = 7
	// slowestShare of the steps such a rank's node must be the slowest of its role.
	slowestShare = 0.5
	// explainedShare: an active culprit with this share of a rank's excess explains it.
	explainedShare = 0.7
)

// sameWithin is how far raw times may differ from what is left without work before
// evidence speaks of the same work instead of the times as they are.
const sameWithin = 0.005

// Checkpoints.
const (
	saves      = 3 // in a row
	keptSaves  = 8
	saveRise   = 0.26 // ln 1.3
	acrossRise = 0.59 // ln 1.8: against savers of other roles, whose files differ
	saveSigmas = 2.0
	saveNoise  = 0.05
	// The score of a save is 1 where it is as slow as makes a slow save, -1 where it is as
	// usual, and lies between saveDown and saveUp. A unit may climb to saveTop times the
	// height, so a few ordinary saves end no habit.
	saveUp   = 3
	saveDown = -2
	saveTop  = 1.3
	// saveOdds is the chance of a false alarm in a job's saves so far. leastScores must be
	// known to tell what the storage does in health, of the last keptScores; before,
	// saveUnknown stands for it. saveTheta and saveSteep bound it.
	saveOdds    = 0.03
	keptScores  = 512
	leastScores = 24
	saveUnknown = 1.0
	saveTheta   = 0.1
	saveSteep   = 2.0
	// saveAlarm is the z of all slow saves in a row together. Saves differ by a fifth
	// on shared storage: three of 512 ranks' in a row above two sigmas are no rarity.
	// The sigma of a few saves is known to a fifth, so 6; 2.5 times as long makes 8.
	saveAlarm = 6.0
	// aloneNoise is the least noise of who saves without peers: a handful of its own
	// saves may agree by chance, where storage makes them differ by 15 % and more.
	aloneNoise = 0.15
	// fewSavers: so many healthy savers tell their spread about their median. Among
	// fewer a slow one moves that by itself, and stays unseen in it.
	fewSavers = 8
	// fewFreedom over the degrees of freedom widens what few savers tell of their noise.
	fewFreedom = 0.7
	// lonelySaves in a row where fewer than four save: two others are no crowd.
	lonelySaves = 5
	// fewSaves corrects a MAD about the median of three to eight saves.
	fewSaves    = 1.3
	storageRise = 0.69 // ln 2: all savers against their own past
)

// Intermittent faults.
const (
	// spikeEffect and spikeSigmas: a step that is slow by itself.
	spikeEffect = 0.08
	spikeSigmas = 5.0
	// spikeRate of the steps, in at least spikeEpisodes separate episodes, of each of
	// which the first spikeLength steps are evidence: a long one is no habit.
	spikeRate     = 0.008
	spikeEpisodes = 2.2
	spikeLength   = 4
	// spikeMemory is the length of the count, steps.
	spikeMemory = 1000
	// spikeOdds is the chance, over all units and steps, of so much evidence in health.
	spikeOdds = 1e-3
	// spikeHigh times the rate of the 90th percentile of the peers.
	spikeHigh = 1.5
	// transientsPerHour on one node are intermittent, and so are as many that fill
	// burstShare of the steps.
	transientsPerHour = 3
	burstShare        = 0.035
)

// slowSizes are the sizes of slow steps that are told apart: small ones are common,
// large ones rare. Peers are credited with leastRate of each.
const slowSizes = 4

var (
	sizeFrom  = [slowSizes]float32{0, 0.12, 0.2, 0.35}
	leastRate = [slowSizes]float64{0.002, 0.001, 0.0004, 0.0002}
)

// Findings.
const (
	stageRatio     = 1.15 // heavy stage over the median stage, by measured compute
	stageSelfRatio = 1.25 // by self time, which hides unrecorded waits
	findingImpact  = 0.03
	// workSpread is the robust spread of replicas' work that is worth a finding;
	// alone where stages agree, soloSpread where nothing but noise could differ.
	workSpread = 0.03
	soloSpread = 0.05
	// jobRise: before and after differ by more than 10 % in every block of the last 32 steps.
	jobRise   = 0.10
	jobBlocks = 4
	// jobSigmas of what one block differs from the next.
	jobSigmas = 3
	// storageShare of a step, in a quarter of the steps, on changing ranks.
	storageShare = 0.05
	storageSteps = 0.2
	storageTop   = 0.5
)
