package record

// Format is the value of Meta.Format that this version writes.
const Format = "laggard/1"

// RankID names one rank of one job, and so the directory of its segments, <job>/<rank>.
type RankID struct {
	Job  string `json:"job"`
	Rank int    `json:"rank"` // global rank
}

// Meta is the identity of a segment's writer: one process of one rank. It is the
// first line of every segment ({"meta":{…}}) and may be repeated in it when
// something was learnt later (parallel groups); the last one counts.
type Meta struct {
	Format      string  `json:"format"`            // Format
	Segment     string  `json:"segment,omitempty"` // 16 hex digits, random per segment: its identity whatever the file is called
	Job         string  `json:"job"`
	Rank        int     `json:"rank"`        // global rank
	Incarnation ID      `json:"incarnation"` // see IncarnationOf
	WorldSize   int     `json:"world_size"`
	LocalRank   int     `json:"local_rank"`
	Node        string  `json:"node"`
	Device      string  `json:"device,omitempty"` // e.g. "cuda:3 NVIDIA H200", "npu:3"; "" = none
	Pod         string  `json:"pod,omitempty"`
	PID         int     `json:"pid"`
	StartedNs   int64   `json:"started_ns"` // process start, ns since the Unix epoch
	BootID      string  `json:"boot_id"`
	Groups      []Group `json:"groups,omitempty"`
	Writer      string  `json:"writer"` // e.g. "python/1", "c/1", "go/1", "taskd"
}

// TaskD is the Writer of files that TaskD wrote: nothing in them says who did, so
// identity and start are those that a reader derives.
const TaskD = "taskd"

// Group is one parallel group that the rank is a member of.
type Group struct {
	Dim   string `json:"dim"`   // tp, pp, dp, cp, ep; other words define no role
	Name  string `json:"name"`  // the communicator's name as Communication records spell it
	Index int    `json:"index"` // the rank's position in Ranks
	Size  int    `json:"size"`
	Ranks []int  `json:"ranks,omitempty"` // global ranks in group order (pp: stage order)
}

// Loss is a control line ({"loss":{…}}): Count records of one ring that were
// emitted and did not arrive, with the reason.
type Loss struct {
	Ring   uint32 `json:"ring"`
	Kind   string `json:"kind"`   // wire word; "" when the kind is unknown (a corrupt slot)
	Reason string `json:"reason"` // one of the Reason constants
	Count  uint64 `json:"count"`
	First  int64  `json:"first,omitempty"` // ns since the Unix epoch of the first loss, 0 unknown
	Last   int64  `json:"last,omitempty"`
}

// MaxLoss is the most records that one loss line can tell of: a billion a second for a
// quarter of an hour, or a million for twelve days, which no writer reaches.
const MaxLoss = 1 << 40

// Plausible reports whether a writer can have lost so much. A line that says more is
// counted as such (Implausible), and what it claims is in no sum.
func (l *Loss) Plausible() bool { return l.Count <= MaxLoss }

// Reasons of a loss, in the ledger and in laggard_records_dropped_total.
const (
	RingFull    = "ring-full"     // the agent was too slow or absent, or its volume full
	NoRing      = "no-ring"       // the process could not make a ring (budget, full tmpfs)
	Corrupt     = "corrupt"       // a slot whose checksum is wrong
	TornLine    = "torn-line"     // a line cut by a crash of its writer
	Aged        = "aged"          // deleted under the disk cap before it was shipped
	Truncated   = "truncated"     // a file that became shorter under the reader
	NameTooLong = "name-too-long" // a range that TaskD's lines can't hold (--format taskd)
	Implausible = "implausible"   // a loss line that claims more than can be lost
	NotSelected = "not-selected"  // raw rows of a kind that --records leaves out (summarised, not lost)
)

// Switch is a control line ({"switch":{…}}): from At on, the kinds that are on.
type Switch struct {
	At            int64 `json:"at"`      // ns since the Unix epoch
	Default       bool  `json:"default"` // Step, FP, SaveCheckpoint, DataLoader
	Communication bool  `json:"communication"`
}

// End is a control line ({"end":{…}}), the last of an incarnation.
type End struct {
	At      int64             `json:"at"`  // ns since the Unix epoch
	How     string            `json:"how"` // "closed" by the recorder, or "killed"
	Emitted map[string]uint64 `json:"emitted,omitempty"`
	Dropped map[string]uint64 `json:"dropped,omitempty"`
}
