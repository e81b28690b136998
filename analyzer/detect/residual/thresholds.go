package residual

// Shared work.
const (
	// SharedCorrelation is the least correlation between stages of a replica, or
	// with tokens, at which the common part is taken for work and removed.
	SharedCorrelation = 0.5
	// sharedSure is the correlation from which the line is believed as it is. Between the
	// two it is drawn to 1, as work enters all stages alike, and to none: a job whose
	// correlation wanders about one half must not be judged in other units each time.
	sharedSure = 0.7
	// sharedNoise is the variance of the noise in the middle of a replica's other
	// stages to that of one rank: three stages' median has 0.45 of it, and one stage
	// all of it.
	sharedNoise = 0.6
	// sharedMost is the steepest line that is believed: a real pair of stages has 1.52.
	sharedMost = 3
	// usualDevs spreads are the most by which a rank counts in what is shared, and mostDev
	// (a logarithm) before settledColumns tell how far they spread.
	usualDevs      = 3
	mostDev        = 0.5
	settledColumns = 6
	// youngMemory is the least length of exponential averages while a job is young, steps. It
	// grows with the job: of seventy steps the wild first ones must not tell more than the others.
	youngMemory = 8
	// fastest times its noise is the most by which a rank is faster than its work tells.
	fastest = 3
	// surely times the error of its mean is how far a work must be below what is usual.
	surely = 1
	// popularWeight is what a step weighs in how popular an expert lately was.
	popularWeight = 0.15
	// sharedColumns must have been seen before.
	sharedColumns = 4
)

// Waits inside the backward pass.
const (
	// waitCorrelation: forward and backward passes that go against each other by so much
	// hold each other's waits. In real jobs with a slow rank it is -0.4 to -0.5 (gloo on
	// shared cores), in healthy ones -0.13 to 0.12; work makes it positive.
	waitCorrelation = 0.25
	// backwardColumns must have been seen before.
	backwardColumns = 8
)

// Waits inside the forward pass.
const (
	// VictimShare of a rank's excess that it waits in collectives of its forward pass.
	VictimShare = 0.5
	// UsualShare of it is the most that counts as usual: who waits as long as that for
	// another member is not the one that makes the group slow, however often it was so.
	UsualShare = 1.0 / 3
	// innerEvery: a rank's usual wait inside its forward is looked at every so many
	// steps, and a third of the last usualWaits such looks are at most the usual one: four
	// of seven may be pauses of others or the wild first steps. Where a fifth of a rank's steps hold one, two
	// members make that of two steps in five.
	innerEvery = 8
	usualWaits = 7
)

// Waits in what passes cover.
const (
	// lockstepShare: the ranks of a group that differ by less in their forward passes than by that part of how they differ
	// without the Communication in them end these together.
	lockstepShare = 0.25
	// exposureGroups tell it, and of each so many ranks.
	exposureGroups = 32
	exposureRanks  = 32
	// lostCalls of a group's calls that members lack are no edges of windows, in which processes begin and end.
	lostCalls = 0.02
)
