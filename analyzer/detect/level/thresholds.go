package level

// A job against its own past.
const (
	// levelMemory is the length, steps, of the averages that tell what is usual in a role.
	levelMemory = 1000
	// LeastImpact is the least cost that is worth a finding.
	LeastImpact = 0.03
	// Rise: before and after differ by more than 10 % in every block of the last 32 steps.
	Rise      = 0.10
	jobBlocks = 4
	// jobSigmas of what one block differs from the next.
	jobSigmas = 3
	// runOdds is how likely a run of long blocks may be without a change: where some rank pauses now and then, a fourth
	// of the blocks and more are as long as a change would make all.
	runOdds = 0.001
	// LoadShare of a step, in a quarter of the steps, on changing ranks.
	LoadShare    = 0.05
	storageSteps = 0.2
	storageTop   = 0.5
)
