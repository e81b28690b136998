// Package threshold has the numbers that several tests of the detector share: what an
// operator may change, and how long and how often everybody looks. Those of one test
// alone stand with it, in the thresholds.go of its package.
//
// Invariant: each has its reason beside it. Caveat: Default was measured as a whole;
// the suite (benchmarks/eval) tells what a change of one of them costs.
package threshold

// Config holds what an operator may change while the detector runs. Use Default
// and change fields; the zero value is not useful.
type Config struct {
	// Effect is the design effect: the smallest slowdown that is worth finding at
	// once. 5 % of one rank is 5 % of the job.
	Effect float64 `json:"effect"`
	// MinEffect gates a verdict. It lies below Effect, or a true slowdown of
	// exactly Effect would be missed every second time.
	MinEffect float64 `json:"min_effect"`
	// MinImpact is the share of step time from which exit code and Healthy change.
	// It never gates listing.
	MinImpact float64 `json:"min_impact"`
	// Alarm is the z from which a window of 32 steps alarms. 1,000 node-hours make
	// 270,000 independent windows (10 s steps, 8 ranks, 3 signals); 5.3 leaves 0.02
	// false ones under Gaussian tails, and the other gates carry heavy tails.
	Alarm float64 `json:"alarm"`
	// LongAlarm is the same for windows of 64 to 256 steps: there are fewer of them.
	LongAlarm float64 `json:"long_alarm"`
	// Discovery is the false discovery rate over ranks × signals of one evaluation.
	Discovery float64 `json:"discovery"`
	// LinkRise and LinkShare gate a slow link: its transfer rises by the one, and
	// by that share of the step.
	LinkRise  float64 `json:"link_rise"`
	LinkShare float64 `json:"link_share"`
	// MinCoverage is the share of expected rank-steps below which a verdict says
	// that it saw too little.
	MinCoverage float64 `json:"min_coverage"`
}

// Default returns the thresholds that the evaluation was made with.
func Default() Config {
	return Config{
		Effect: 0.05, MinEffect: 0.03, MinImpact: 0.01, Alarm: 5.3, LongAlarm: 4.9, Discovery: 0.01,
		LinkRise: 0.30, LinkShare: 0.03, MinCoverage: 0.75,
	}
}

// Numbers that several tests share, in analysed steps where they count.
const (
	// Window is what a verdict rests on: at 1 % noise it resolves 1 %, and a fault
	// must fill most of it, so what lasts a dozen steps never becomes a verdict.
	Window = 32
	// BlockSteps make one block of what is followed for longer than a window.
	BlockSteps = 8
	// EvaluateEvery is how often each rank's window is tested; ranks take turns, so
	// every step costs the same.
	EvaluateEvery = 8
	MinValid      = 12 // valid steps of a window
	MinBold       = 8  // enough when the effect is four times the design effect
	// SlowShare of a window's steps (or a lane's blocks) must be slow by themselves.
	SlowShare = 0.7
	// Confirmations is how many evaluations in a row must alarm.
	Confirmations = 2
	// Memory is the length of exponential averages, steps.
	Memory = 200
	// MedianPeers is the role size from which the median of the others is the
	// reference; below, the fastest peer is.
	MedianPeers = 4
	// LargeRole: from here on leaving one rank out does not move the median.
	LargeRole = 16
	// PoolSize is the number of ranks from which a role's noise is its own.
	PoolSize = 8
	// SharedProbe: while nothing is shared, only every so many steps ask again.
	SharedProbe = 4
)
