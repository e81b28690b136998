package link

// Links.
const (
	linkWindow = 24 // steps whose median is a group's transfer now
	linkMates  = 32 // groups of the dimension that are looked at for a common rise
	linkSpread = 5.0
	linkNoise  = 0.05
	linkBase   = 16 // healthy steps that make a group's own baseline
	linkDrift  = 0.01
	// A group whose transfers have risen and fallen before, in linkGusts of the steps,
	// meets congestion; one in thirty such bursts lasts as long as a window, and
	// gustyPasses tests in a row (40 steps more) tell those from a slow wire.
	linkGusts   = 0.01
	gustyPasses = 6
	// gustSigmas of what a transfer differs by from one step to the next: jitter of 10 % is no gust,
	// nor are gloo's calls on shared processors, which differ by a third.
	gustSigmas = 3
	// gustOdds is the logarithm of a million: one gust in so many is taken for a slow link, and a job
	// has thousands. fewGusts steps of them tell the mean; mostPasses (160 steps) are
	// enough whatever they were. A gust has leastGust steps or more.
	gustOdds   = 13.8
	leastGust  = 3
	fewGusts   = 8
	mostPasses = 20
	// gustHeights of the highest gust's rise, in logarithms, were none of them.
	gustHeights = 1.5
	// lonePasses is the same for a group that has no equal to compare it with.
	lonePasses = 4
	minClass   = 3 // groups of a class that make a comparison
)
