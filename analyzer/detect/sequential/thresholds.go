package sequential

import "github.com/laggard-dev/laggard/analyzer/detect/threshold"

// Windows, in analysed steps.
const (
	// maxBlocks is the longest lane (256 steps): pure data parallelism with 12 % sequence
	// noise needs 64 to 128 steps to see 10 %, 256 to see 5 %.
	maxBlocks = 32
	// suspectEvery is how often a suspect's window is tested.
	suspectEvery = 2
	// suspectLasts steps without a window that confirms it are no suspicion any more. Who is
	// suspect teaches no noise; of two or three ranks that all are, nobody would.
	suspectLasts = 4 * threshold.Window
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
	// SuspectZ is the z from which a suspect is shown: one in a thousand, of the few
	// that the sequential test caught.
	SuspectZ = 3.0
	// recoverySteps without slowness end an episode.
	recoverySteps = 20
	// transientSteps is the longest episode that is an event, not a condition.
	transientSteps = 30
	// eventEffect is the least effect of an event, what its slow steps have over all of its steps: what is
	// smaller and passes is noise nobody can check.
	eventEffect = 0.08
	eventSigmas = 3.0
)

// pureNoise: where every rank is a replica of its own, nothing is shared that could be removed badly, so how far
// lanes lie apart is all there is of it, and 96 steps must do for 10 % under 12 % noise; under more than this they
// can't. In 25,000 node-hours of such jobs with noise of 8 to 15 % five nodes are named.
const pureNoise = 0.16

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
	// laneFloor is the same between a device over 128 steps and more and its own past, where no
	// more is measured: over the longest gap ranks of recorded jobs move by less than 0.0025 in
	// nine of ten looks.
	laneFloor = 0.004
	// fewUnits over the root of their number is by how much of itself the variance of so
	// many units may differ from that of all.
	fewUnits = 2.5
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
	// LongShare of MinEffect is the least effect of the longest lanes (128 steps and more):
	// 3 % over a thousand steps is worth as much as 5 % at once.
	// Then slowShare of the blocks must show longEach of it: a transient moves the mean.
	LongShare  = 2.0 / 3
	longEach   = 0.7
	LongBlocks = 16
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

// Noise and spread.
const (
	// noiseSample ranks of a role, and noisePool of all, tell the noise of one step;
	// over the 32 steps that count that is thousands.
	noiseSample = 128
	noisePool   = 2048
	// wideMost MADs are the largest spread that the 80th percentile may claim: it sees
	// the few ranks of small roles better, and breaks when a fifth of them is slow.
	wideMost = 2
	// latelySteps tell what a slow rank's part of its replica's work is: as few as
	// forget a fault that ends before its mates are suspect.
	latelySteps = 5
	// warmUp steps of a process whose start was recorded: caches, JIT, allocator.
	warmUp = 10
)

// Intermittent faults.
const (
	// SpikeEffect and spikeSigmas: a step that is slow by itself.
	SpikeEffect = 0.08
	spikeSigmas = 5.0
	// spikeRate of the steps, in at least spikeEpisodes separate episodes, of each of
	// which the first spikeLength steps are evidence: a long one is no habit.
	spikeRate     = 0.008
	spikeEpisodes = 2.2
	spikeLength   = 4
	// spikePause ordinary steps end an episode: within a passing slow time some steps are no
	// longer than others', where somebody else was later. From transientSteps on it is no passing time, and each
	// ordinary step ends one: who is slow every second step is slow again and again.
	spikePause = 4
	// spikeMemory is the length of the count, steps.
	spikeMemory = 1000
	// spikeOdds is the chance, over all units and steps, of so much evidence in health.
	spikeOdds = 1e-3
	// spikeHigh times what the 90th percentile of the peers loses a step.
	spikeHigh = 2.0
)

// slowSizes are the sizes of slow steps that are told apart: small ones are common,
// large ones rare. Peers are credited with leastRate of each.
const slowSizes = 4

var (
	sizeFrom  = [slowSizes]float32{0, 0.12, 0.2, 0.35}
	leastRate = [slowSizes]float64{0.002, 0.001, 0.0004, 0.0002}
)
