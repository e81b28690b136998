package frame

import "fmt"

// None is the index of "no role", "no replica", "no node".
const None = int32(-1)

// Layout says who is who from one column on: which rank ran on which node, in
// which process, in which role of which replica, and in which groups it
// communicated. Row indices are those of Frame.Ranks. It is read only.
type Layout struct {
	Attempt     int
	World       int   // ranks of the job in this attempt
	Ranks       []int // global rank of each row
	Present     []bool
	Incarnation []uint64 // of each row, 0 = none in this attempt
	// Fresh marks rows whose process start was recorded and is not long before
	// its first step here: its first steps are warm-up.
	Fresh   []bool
	Node    []int32 // index into Nodes
	Nodes   []string
	Role    []int32 // index into Roles
	Roles   []Role
	Replica []int32 // index into Replicas
	// Replicas lists the rows that process the same micro-batches.
	Replicas [][]int32
	// Partial marks replicas some of whose pipeline stages have no rank here.
	Partial []bool
	Groups  []Group
	// From says where the roles come from: "topology", a file or the identities of the
	// processes, or "inferred". It is the same word for the same groups, whichever file or
	// store they stand in.
	From string
	// Certain is false where roles were guessed from times alone.
	Certain bool
	// Stages is the number of pipeline stages, 1 without a pipeline.
	Stages int
}

// Role is a set of ranks that do the same work: only they are compared.
type Role struct {
	Stage int
	Model string // device model where the job has several, else ""
	Rows  []int32
	Size  int // ranks the role has, recorded or not, as far as groups tell
}

// Name is how sentences speak of the role.
func (r *Role) Name(stages int) string {
	var s string
	if stages > 1 {
		s = fmt.Sprintf("stage %d", r.Stage)
	} else {
		s = "the job"
	}

	if r.Model != "" {
		s += " on " + r.Model
	}

	return s
}

// Group is a communication group with at least two recorded ranks.
type Group struct {
	Name string
	Dim  string // tp, pp, dp, cp, ep, "" unknown
	Rows []int32
	// Size is how many ranks the group has, recorded or not.
	Size int
	// Class groups that should be equally fast: same dimension, size, stage.
	Class int
}

// NodeOf is the name of the node on which the row runs, "" when it is not known.
func (l *Layout) NodeOf(row int) string {
	if n := l.Node[row]; n >= 0 {
		return l.Nodes[n]
	}

	return ""
}

// OneCommunicator reports whether all collectives that were seen are of all ranks, in one communicator: nobody waits for some
// of them alone. Groups of a mesh may share a name, so two names may hide smaller ones.
func (l *Layout) OneCommunicator() bool {
	return len(l.Groups) == 1 && l.Groups[0].Metric() != PP && len(l.Groups[0].Rows) == len(l.Ranks)
}

// Recorded is how many ranks are present.
func (l *Layout) Recorded() int {
	n := 0
	for _, p := range l.Present {
		if p {
			n++
		}
	}

	return n
}

// Complete reports whether every rank of the group can be seen: only then the
// shortest member's time is the transfer, else the one all wait for may be missing.
func (g *Group) Complete() bool { return len(g.Rows) == g.Size }

// Metric is what its ranks' communication is counted as.
func (g *Group) Metric() Metric { return dimMetric[g.Dim] }

// The dimensions as identities and topology files write them.
var dimMetric = map[string]Metric{"tp": TP, "pp": PP, "dp": DP, "cp": CP, "ep": EP, "": Other}

// Inner are the dimensions whose collectives lie inside the forward pass: all members
// are as slow as the slowest.
var Inner = [3]Metric{TP, CP, EP}
