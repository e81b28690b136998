// Package verdict is the contract of `laggard analyze -o json` and `laggard explain -o json`: what was
// decided, about whom, on what evidence, and what a replay says of it.
//
// Invariant: fields may be added, never renamed; SchemaVersion is 1. Lists are
// never null. Nothing here knows of Kubernetes, of a store or of statistics.
package verdict

import "slices"

// SchemaVersion is the version of the JSON.
const SchemaVersion = 1

// States of a node or link, at the last step analyzed.
const (
	Degraded     = "degraded"     // slow, and it lasts
	Suspect      = "suspect"      // slow, not for long enough to be sure
	Intermittent = "intermittent" // slow again and again
	Recovered    = "recovered"    // was degraded or intermittent, and is slow no more
)

// Blamed reports whether a node or link of that state is slow as of now, beyond suspicion.
func Blamed(state string) bool { return state == Degraded || state == Intermittent }

// Causes of a node's state, by what was measured to be longer than on its peers. What to do
// about each is in deploy/docs/causes.md.
const (
	Compute       = "compute"       // forward, backward, or all own work
	HostDelay     = "host"          // the gaps between device work
	DataLoader    = "dataloader"    // waiting for the next batch
	Checkpoint    = "checkpoint"    // saving
	Communication = "communication" // the slow groups have this node in common
	Unattributed  = "unattributed"  // slow, and nothing recorded says where
)

// Kinds of findings: about the job, never about a node.
const (
	WorkloadImbalance = "workload-imbalance" // unequal work that goes around among ranks
	StageImbalance    = "stage-imbalance"    // a pipeline stage has more to do than others
	JobSlow           = "job-slow"           // all ranks became slower together
	LowCoverage       = "low-coverage"       // too little was recorded to decide
	SharedStorage     = "shared-storage"     // loading or saving is slow on many nodes at once
	RecordingOff      = "recording-off"      // the switch was off for some steps
	OverlappingRuns   = "overlapping-runs"   // two runs recorded under one job name at once
)

// Exit codes of `laggard analyze`: scripts branch on them, so they mean the same for good.
const (
	ExitHealthy   = 0
	ExitError     = 1 // nothing could be read, or written
	ExitUsage     = 2 // a flag or an argument is wrong
	ExitDegraded  = 3 // a node or link is slow and may cost --min-impact of the step time
	ExitUndecided = 4 // too little is known to say either
)

// FromRanks is the word of Verdict.WorldSizeFrom: the ranks that were recorded were counted.
const FromRanks = "ranks"

// Verdict is the decision on one job.
type Verdict struct {
	SchemaVersion int    `json:"schema_version"`
	Source        string `json:"source,omitempty"` // as given on the command line
	Job           string `json:"job"`
	Attempts      int    `json:"attempts"` // incarnations that began together count as one
	WorldSize     int    `json:"world_size"`
	// WorldSizeFrom is FromRanks where neither the recorders nor a topology or rank table
	// told the world's size; ranks above the highest that was recorded are unknown then.
	WorldSizeFrom string `json:"world_size_from,omitempty"`
	// Recorded is how many of the ranks have measured work; 0 where none has.
	Recorded int   `json:"ranks_recorded,omitempty"`
	Steps    Steps `json:"steps"`
	// Coverage is measured rank-steps / Σ over attempts (world size × steps seen), 0…1.
	Coverage float64 `json:"coverage"`
	// JobImpact is the share of step time the job would save without all culprits
	// together, JobImpactMax the same at most where it isn't recorded who waits for whom, else 0.
	JobImpact    float64 `json:"job_impact"`
	JobImpactMax float64 `json:"job_impact_max,omitempty"`
	Decided      bool    `json:"decided"` // false exactly with exit code 4
	Healthy      bool    `json:"healthy"` // false exactly with exit code 3 or 4
	// Roles says where the roles came from: "topology" when parallel groups are
	// recorded or given, "inferred" when there are none.
	Roles string `json:"roles,omitempty"`
	// Unread says what of the files was not understood; nil where that is nothing.
	Unread   *Unread   `json:"unread,omitempty"`
	Nodes    []Node    `json:"nodes"` // culprits only, never a victim
	Links    []Link    `json:"links"`
	Findings []Finding `json:"findings"`
	Events   []Event   `json:"events"`
	// Arrivals say who entered collectives last, where too little was measured for a verdict and
	// single ranges were recorded; else nil.
	Arrivals *Arrivals `json:"arrivals,omitempty"`
}

// Arrivals are the order in which ranks entered the collectives of a few steps: no verdict. Clocks
// are aligned by the ends of collectives that end on all their members together.
type Arrivals struct {
	Collectives int `json:"collectives"` // seen on two ranks and more
	Steps       int `json:"steps"`
	// Unsure is within what nine in ten ends agree by aligned clocks; Clear says that the longest
	// delay stands out from it.
	Unsure float64   `json:"unsure_s"`
	Clear  bool      `json:"clear"`
	Ranks  []Arrival `json:"ranks"` // who waited least comes first
}

// Arrival is one rank's.
type Arrival struct {
	Rank   int     `json:"rank"`
	Node   string  `json:"node"`
	Late   float64 `json:"late_s"`   // behind the first to enter, at most in one collective
	Waited float64 `json:"waited_s"` // for the last to enter, per step
	Last   int     `json:"last"`     // collectives that it entered last
	Offset float64 `json:"offset_s"` // of its clock
}

// Unread counts what the verdict could not rest on.
type Unread struct {
	Lines int `json:"lines"` // that are neither laggard's nor TaskD's
	Of    int `json:"of"`    // lines that were read
	Torn  int `json:"torn"`  // files that end in the middle of a line
}

// Steps is the range of steps seen, and how many of them were analyzed.
type Steps struct {
	First    int64 `json:"first"`
	Last     int64 `json:"last"`
	Analyzed int   `json:"analyzed"`
	// When the first and the last step began, as all times here RFC 3339 in UTC by
	// the clock of a host in the job; "" unknown.
	FirstTime string `json:"first_time,omitempty"`
	LastTime  string `json:"last_time,omitempty"`
}

// Node is a culprit.
type Node struct {
	Node  string `json:"node"`
	State string `json:"state"`
	Cause string `json:"cause"`
	Ranks []int  `json:"ranks"`
	// Slowdown is against peers of the same role, 1.0 = equal.
	Slowdown float64 `json:"slowdown"`
	// JobImpact is the share of step time the job would save had it worked like its
	// peers since SinceStep, 0…1; at least that much where it isn't recorded who waits for whom.
	JobImpact float64 `json:"job_impact"`
	// JobImpactMax is the same at most in that case, else 0.
	JobImpactMax float64    `json:"job_impact_max,omitempty"`
	SinceStep    int64      `json:"since_step"`
	DetectedStep int64      `json:"detected_step"` // when the rank became suspect in the confirmed episode
	UntilStep    int64      `json:"until_step,omitempty"`
	SinceTime    string     `json:"since_time,omitempty"`
	DetectedTime string     `json:"detected_time,omitempty"`
	UntilTime    string     `json:"until_time,omitempty"`
	Confidence   float64    `json:"confidence"` // 0…1
	Devices      int        `json:"devices,omitempty"`
	Evidence     []Evidence `json:"evidence"`
	Detail       string     `json:"detail,omitempty"` // one sentence a person can check
}

// Most is what the node costs at most: its JobImpact where groups are known.
func (n *Node) Most() float64 { return max(n.JobImpact, n.JobImpactMax) }

// Most is what the link costs at most.
func (l *Link) Most() float64 { return max(l.JobImpact, l.JobImpactMax) }

// Most is what all culprits cost at most: JobImpact where groups are known.
func (v *Verdict) Most() float64 { return max(v.JobImpact, v.JobImpactMax) }

// Evidence is one measured difference.
type Evidence struct {
	Metric string  `json:"metric"` // fp, self, backward, step (slow loading), dataloader, checkpoint, transfer, wait
	Rank   int     `json:"rank"`
	Value  float64 `json:"value_s"` // seconds per step, median
	Peers  float64 `json:"peers_s"` // the same of its peers
	Z      float64 `json:"z"`       // the difference, in units of its usual noise
}

// Link is a slow communication group. Its Slowdown is the shortest time in which one of its
// members was through with an operation, against that of like groups: the time of the wire,
// without waiting for a late rank. Nodes are those that its ranks run on.
type Link struct {
	Group     string   `json:"group"`
	Ranks     []int    `json:"ranks"`
	Nodes     []string `json:"nodes"`
	State     string   `json:"state"`
	Slowdown  float64  `json:"slowdown"`
	JobImpact float64  `json:"job_impact"`
	// JobImpactMax is the same at most where how much of it hides beside other work is not known, else 0.
	JobImpactMax float64 `json:"job_impact_max,omitempty"`
	SinceStep    int64   `json:"since_step"`
	SinceTime    string  `json:"since_time,omitempty"`
	Detail       string  `json:"detail,omitempty"`
}

// Finding is something about the job that no node is to blame for. A JobImpact of 0 is one that
// is not known. Ranks are those that it concerns, none where it is all of them.
type Finding struct {
	Kind      string  `json:"kind"`
	JobImpact float64 `json:"job_impact"`
	Detail    string  `json:"detail"`
	Ranks     []int   `json:"ranks"`
	Stages    []int   `json:"stages,omitempty"` // stage-imbalance: the heavy stages
	Ratio     float64 `json:"ratio,omitempty"`  // stage-imbalance: heavy / median stage
}

// Event is a problem that passed before it lasted: single slow steps of a node, from the first
// to the last, or of the whole job where Node is "".
type Event struct {
	Node      string `json:"node"`
	Kind      string `json:"kind"` // "transient"
	FirstStep int64  `json:"first_step"`
	LastStep  int64  `json:"last_step"`
	FirstTime string `json:"first_time,omitempty"`
	LastTime  string `json:"last_time,omitempty"`
	Cause     string `json:"cause"`
	Ranks     []int  `json:"ranks"`
}

// New returns a verdict on job with every list empty and nothing decided.
func New(job string) *Verdict {
	return &Verdict{
		SchemaVersion: SchemaVersion, Job: job,
		Nodes: []Node{}, Links: []Link{}, Findings: []Finding{}, Events: []Event{},
	}
}

// Counts is the share of step time by which a node is judged harmful: what it costs at most, or all together.
func (v *Verdict) Counts(n *Node, minImpact float64) float64 {
	return max(n.Most(), v.together(minImpact))
}

// together is what all that is slow costs at most, where no node or link alone reaches minImpact, else 0: equally slow ones
// hide each other, each alone costs next to nothing.
func (v *Verdict) together(minImpact float64) float64 {
	alone := slices.ContainsFunc(v.Nodes, func(n Node) bool { return n.Most() >= minImpact }) ||
		slices.ContainsFunc(v.Links, func(l Link) bool { return l.Most() >= minImpact })
	if alone {
		return 0
	}

	return v.Most()
}

// Exit returns the exit code of the verdict: 4 undecided, 3 a node or link is
// degraded or intermittent and may cost minImpact, else 0. Decided must be set.
func (v *Verdict) Exit(minImpact float64) int {
	if !v.Decided {
		return ExitUndecided
	}

	harmful := slices.ContainsFunc(v.Nodes, func(n Node) bool { return Blamed(n.State) && v.Counts(&n, minImpact) >= minImpact }) ||
		slices.ContainsFunc(v.Links, func(l Link) bool { return Blamed(l.State) && max(l.Most(), v.together(minImpact)) >= minImpact })
	if harmful {
		return ExitDegraded
	}

	return ExitHealthy
}
