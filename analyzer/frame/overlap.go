package frame

// Overlap says that two runs are recorded under one job name: processes of one rank,
// which can only follow each other, recorded the same time.
type Overlap struct {
	Ranks []int // with such processes, ascending
	Mixed bool  // they are at least half of the ranks: the rows are of two jobs
	// Who are the two of the lowest rank as a person finds them, in the order of their starts, and
	// FirstNs and LastNs their earliest and latest start of a step.
	Who             [2]string
	FirstNs, LastNs int64
}
