// Package row is what the stores hold: one struct a table, the same for
// ClickHouse, Parquet and Arrow.
//
// Invariant: the `col` tag is the column's name in every store, the `parquet` tag
// repeats it with the column's encoding in files, the field order is the column
// order, and the Go type decides the column type: string String,
// uint16/32/64 UInt16/32/64 (record.ID is a uint64), int32/64 Int32/64, []string Array(String),
// [][]uint32 Array(Array(UInt32)). The DDL in schemas/clickhouse is held to it by
// a test.
//
// A raw range has two forms. On its way into a store it is a Raw, from the roll-up, which
// makes it, through the shipper, which cuts batches of it, to the sinks: ClickHouse makes
// native blocks of it, Parquet files and Arrow streams unpack it. Who reads it from a
// store (analyzer/source, and what stands on it) gets a Record, the row with its words.
// One form for both was tried: a Record takes 1.7 times the memory and holds nine pointers,
// and ingest took 1.2 to 1.4 times the processor time.
//
// Caveat: -1 in an _ns column means "nothing of this kind was recorded in this
// step"; it is never a measured zero.
package row

import (
	"cmp"

	"github.com/laggard-dev/laggard/schemas/record"
)

// Tables, by name. Parquet's hive folders have the same.
const (
	RanksTable          = "ranks"
	StepsTable          = "steps"
	CommunicationsTable = "communications"
	RecordsTable        = "records"
	VerdictsTable       = "verdicts"
	LedgerTable         = "ledger"
)

// Rank is one incarnation (process) of one rank. It is the only row that is
// written again: when groups or the device are learnt, when recording is switched off or
// on, and when the process ends. The highest Version counts; Version is the number of
// lines seen in the incarnation so far that said something new of it, so it is the same
// whoever reads the files. Groups that stand in a file of their own (TaskD's) count more
// than any line.
type Rank struct {
	Job         string     `col:"job" parquet:"job,dict"`
	Rank        uint32     `col:"rank" parquet:"rank"`
	Incarnation uint64     `col:"incarnation" parquet:"incarnation"`
	WorldSize   uint32     `col:"world_size" parquet:"world_size"`
	LocalRank   uint16     `col:"local_rank" parquet:"local_rank"`
	Node        string     `col:"node" parquet:"node,dict"`
	Device      string     `col:"device" parquet:"device,dict"`
	Pod         string     `col:"pod" parquet:"pod,dict"`
	PID         uint32     `col:"pid" parquet:"pid"`
	BootID      string     `col:"boot_id" parquet:"boot_id,dict"`
	StartedNs   int64      `col:"started_ns" parquet:"started_ns,delta"`
	EndedNs     int64      `col:"ended_ns" parquet:"ended_ns"`  // 0 = not known to have ended
	Groups      []string   `col:"groups" parquet:"groups,list"` // dim:name:index:size
	GroupRanks  [][]uint32 `col:"group_ranks" parquet:"group_ranks,list"`
	Writer      string     `col:"writer" parquet:"writer,dict"`
	Version     uint32     `col:"version" parquet:"version"`
	// Off are the times in which the switch had recording off, "from:to" in ns since the
	// Unix epoch; "from:" while it is. The first MaxOff of a process.
	Off []string `col:"off" parquet:"off,list"`
}

// MaxOff bounds Rank.Off.
const MaxOff = 256

// Step is one step of one rank. Key: job, rank, incarnation, step, repeat.
//
// Every range counts whole to the step that it begins in, also where it runs past the step's
// end. Communication in a union counts once where ranges overlap; exposed is what of it the
// trainer was blocked in.
type Step struct {
	Job             string `col:"job" parquet:"job,dict"`
	Rank            uint32 `col:"rank" parquet:"rank"`
	Incarnation     uint64 `col:"incarnation" parquet:"incarnation"`
	Node            string `col:"node" parquet:"node,dict"`
	Step            uint64 `col:"step" parquet:"step,delta"`
	Repeat          uint16 `col:"repeat" parquet:"repeat"` // 0 for the first time within the incarnation
	StartNs         int64  `col:"start_ns" parquet:"start_ns,delta"`
	StepNs          int64  `col:"step_ns" parquet:"step_ns"`
	FPNs            int64  `col:"fp_ns" parquet:"fp_ns"` // sum over the forward passes
	FPCount         uint32 `col:"fp_count" parquet:"fp_count"`
	CommNs          int64  `col:"comm_ns" parquet:"comm_ns"` // union of the communication ranges
	ExposedNs       int64  `col:"exposed_ns" parquet:"exposed_ns"`
	CommTPNs        int64  `col:"comm_tp_ns" parquet:"comm_tp_ns"` // union per dimension
	CommPPNs        int64  `col:"comm_pp_ns" parquet:"comm_pp_ns"`
	CommDPNs        int64  `col:"comm_dp_ns" parquet:"comm_dp_ns"`
	CommCPNs        int64  `col:"comm_cp_ns" parquet:"comm_cp_ns"`
	CommEPNs        int64  `col:"comm_ep_ns" parquet:"comm_ep_ns"`
	CommOtherNs     int64  `col:"comm_other_ns" parquet:"comm_other_ns"`
	DataLoaderNs    int64  `col:"dataloader_ns" parquet:"dataloader_ns"`
	CheckpointNs    int64  `col:"checkpoint_ns" parquet:"checkpoint_ns"`
	CheckpointCount uint32 `col:"checkpoint_count" parquet:"checkpoint_count"`
	// SelfNs is step - exposed - dataloader - checkpoint; -1 where no
	// Communication was recorded in the step (raw step time says nothing of a rank).
	SelfNs   int64  `col:"self_ns" parquet:"self_ns"`
	HostFPNs int64  `col:"host_fp_ns" parquet:"host_fp_ns"` // host side of FP where FPNs is the device's
	Tokens   int64  `col:"tokens" parquet:"tokens"`         // -1 = not recorded
	Flags    uint32 `col:"flags" parquet:"flags"`           // Flag bits
	// BackwardNs is the sum of ranges of the unknown kind "backward", less the time in
	// them that the trainer waited for Communication, by what that says.
	BackwardNs int64 `col:"backward_ns" parquet:"backward_ns"`
}

// Flag bits of Step.Flags.
const (
	FlagHostOnly  uint32 = 1 << 0 // no device time in this step
	FlagEstimated uint32 = 1 << 1 // exposed (and so self) is an estimate
	FlagSwitched  uint32 = 1 << 2 // the switch changed within the step
	FlagOpen      uint32 = 1 << 3 // the step never ended (its process is gone)
	FlagLate      uint32 = 1 << 4 // records of an earlier step came after that was closed
)

// Communication sums the ranges of one rank, group and op over a window of steps
// (Window). Key: job, rank, incarnation, step_from, repeat, group, op.
//
// MinNs is the shortest call of the window: the one that waited least, so it tells most of
// the wire.
type Communication struct {
	Job         string `col:"job" parquet:"job,dict"`
	Rank        uint32 `col:"rank" parquet:"rank"`
	Incarnation uint64 `col:"incarnation" parquet:"incarnation"`
	Node        string `col:"node" parquet:"node,dict"`
	StepFrom    uint64 `col:"step_from" parquet:"step_from,delta"` // a multiple of Window
	StepTo      uint64 `col:"step_to" parquet:"step_to,delta"`     // last step of the window, inclusive
	Repeat      uint16 `col:"repeat" parquet:"repeat"`             // from 1<<15 on: completes an earlier row, see Complete
	StartNs     int64  `col:"start_ns" parquet:"start_ns,delta"`   // of the first step seen in the window
	Group       string `col:"group" parquet:"group,dict"`
	Dim         string `col:"dim" parquet:"dim,dict"`
	Op          string `col:"op" parquet:"op,dict"`
	Steps       uint32 `col:"steps" parquet:"steps"` // steps with at least one call
	Calls       uint32 `col:"calls" parquet:"calls"`
	TotalNs     int64  `col:"total_ns" parquet:"total_ns"`
	MinNs       int64  `col:"min_ns" parquet:"min_ns"`
	MaxNs       int64  `col:"max_ns" parquet:"max_ns"`
	Bytes       int64  `col:"bytes" parquet:"bytes"`
}

// CompareSteps compares by the key, within a job.
func CompareSteps(a, b *Step) int {
	return cmp.Or(cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.Incarnation, b.Incarnation), cmp.Compare(a.Step, b.Step), cmp.Compare(a.Repeat, b.Repeat))
}

// CompareCommunications compares by the key, within a job.
func CompareCommunications(a, b *Communication) int {
	return cmp.Or(cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.Incarnation, b.Incarnation), cmp.Compare(a.StepFrom, b.StepFrom), cmp.Compare(a.Repeat, b.Repeat),
		cmp.Compare(a.Group, b.Group), cmp.Compare(a.Op, b.Op))
}

// Window is the number of steps that one Communication row covers.
const Window = 16

// Record is one raw range. Key: segment, offset.
//
// Start and duration are the device's where Side says so, and the host's times stand beside
// them. Ring and Seq are the range's number in the ring that it went through; Thread is the
// host's thread or the device's stream. Op is the common word for the operation, OpRaw the
// writer's own where that is another. Count is elements of Dtype, Bytes their size, of a
// checkpoint the file's.
type Record struct {
	Job         string `col:"job" parquet:"job,dict"`
	Rank        uint32 `col:"rank" parquet:"rank"`
	Incarnation uint64 `col:"incarnation" parquet:"incarnation"`
	Node        string `col:"node" parquet:"node,dict"`
	Kind        string `col:"kind" parquet:"kind,dict"`
	Step        int64  `col:"step" parquet:"step,delta"` // -1 = in no step
	Repeat      uint16 `col:"repeat" parquet:"repeat"`
	StartNs     int64  `col:"start_ns" parquet:"start_ns,delta"`
	DurNs       int64  `col:"dur_ns" parquet:"dur_ns"`
	Side        string `col:"side" parquet:"side,dict"`
	HostStartNs int64  `col:"host_start_ns" parquet:"host_start_ns,delta"` // 0 = unknown or Side is host
	HostDurNs   int64  `col:"host_dur_ns" parquet:"host_dur_ns"`
	ExposedNs   int64  `col:"exposed_ns" parquet:"exposed_ns"` // -1 = unknown
	Ring        uint32 `col:"ring" parquet:"ring"`
	Seq         uint64 `col:"seq" parquet:"seq,delta"`
	Thread      uint64 `col:"thread" parquet:"thread"`
	Op          string `col:"op" parquet:"op,dict"`
	OpRaw       string `col:"op_raw" parquet:"op_raw,dict"`
	Group       string `col:"group" parquet:"group,dict"`
	Peer        int32  `col:"peer" parquet:"peer"` // -1 = none
	Count       int64  `col:"count" parquet:"count"`
	Dtype       string `col:"dtype" parquet:"dtype,dict"`
	Bytes       int64  `col:"bytes" parquet:"bytes"`
	Tokens      int64  `col:"tokens" parquet:"tokens"` // 0 = not recorded
	Path        string `col:"path" parquet:"path,dict"`
	Open        uint16 `col:"open" parquet:"open"` // 1 = never ended
	Segment     uint64 `col:"segment" parquet:"segment"`
	Offset      uint64 `col:"offset" parquet:"offset,delta"` // byte offset of the line (TaskD: of the range's first line) in the segment
}

// Verdict is one decision of `watch`: a change, stored once. A node, link or finding that is
// no longer said has State "ended" and no Body. ImpactPPM is its share of step time in
// millionths, at most where it isn't recorded who waits for whom.
type Verdict struct {
	Job       string `col:"job" parquet:"job,dict"`
	AtNs      int64  `col:"at_ns" parquet:"at_ns,delta"`
	Step      uint64 `col:"step" parquet:"step,delta"`
	Node      string `col:"node" parquet:"node,dict"`       // "" for a link, a finding, or the job: it has none of the three names
	Finding   string `col:"finding" parquet:"finding,dict"` // "" but for a finding
	Group     string `col:"group" parquet:"group,dict"`     // "" but for a link
	State     string `col:"state" parquet:"state,dict"`
	Cause     string `col:"cause" parquet:"cause,dict"`
	Detail    string `col:"detail" parquet:"detail"`
	Body      string `col:"body" parquet:"body"` // the verdict.Node, Link, Finding, or of the job the whole Verdict, as JSON
	ImpactPPM uint32 `col:"impact_ppm" parquet:"impact_ppm"`
}

// Ledger is one entry of the account of records: Records of State for Reason, of
// one segment or batch, of lines from FirstOffset to LastOffset. For any job: emitted =
// stored + summarised + aged + dropped + in flight. The json tags are those of the local account (writer/ledger).
type Ledger struct {
	Job         string    `col:"job" parquet:"job,dict" json:"job"`
	Rank        uint32    `col:"rank" parquet:"rank" json:"rank"`
	Incarnation record.ID `col:"incarnation" parquet:"incarnation" json:"incarnation"`
	Segment     record.ID `col:"segment" parquet:"segment" json:"segment"`
	Name        string    `col:"name" parquet:"name,dict" json:"name,omitempty"`    // the segment's file name
	Batch       string    `col:"batch" parquet:"batch,dict" json:"batch,omitempty"` // batch id, "" for a segment's entry
	Table       string    `col:"table" parquet:"table,dict" json:"table,omitempty"` // of a batch
	State       string    `col:"state" parquet:"state,dict" json:"state"`           // emitted, stored, summarised, aged, dropped
	Reason      string    `col:"reason" parquet:"reason,dict" json:"reason,omitempty"`
	Kind        string    `col:"kind" parquet:"kind,dict" json:"kind,omitempty"` // wire word, "" for all
	Records     uint64    `col:"records" parquet:"records" json:"records"`
	Bytes       uint64    `col:"bytes" parquet:"bytes" json:"bytes,omitempty"`
	FirstOffset uint64    `col:"first_offset" parquet:"first_offset" json:"first_offset,omitempty"`
	LastOffset  uint64    `col:"last_offset" parquet:"last_offset" json:"last_offset,omitempty"`
	AtNs        int64     `col:"at_ns" parquet:"at_ns,delta" json:"at_ns,omitempty"` // start_ns of the batch's first row: content, not the clock
}

// Rows is a bundle of finished rows of any tables, in the order they were finished.
type Rows struct {
	Ranks          []Rank
	Steps          []Step
	Communications []Communication
	Raws           Raws      // of the table records
	Verdicts       []Verdict // of `watch` alone
	Ledger         []Ledger
}

// Add keeps copies of other ranks, steps and communications. Those who hand over a job's rows may use
// theirs again.
func (r *Rows) Add(others *Rows) {
	r.Ranks = append(r.Ranks, others.Ranks...)
	r.Steps = append(r.Steps, others.Steps...)
	r.Communications = append(r.Communications, others.Communications...)
}

// Len returns the number of rows in all tables.
func (r *Rows) Len() int {
	return len(r.Ranks) + len(r.Steps) + len(r.Communications) + len(r.Raws.Rows) + len(r.Verdicts) + len(r.Ledger)
}
