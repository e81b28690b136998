// Package record says what one record of laggard is: a finished range of one
// rank, and the few control lines that stand between records in a segment.
//
// Invariant: a record is self-contained. Whoever reads one line knows its kind,
// its time and its place in the writer's sequence; who wrote it stands once, in
// the segment's first line (Meta).
//
// Caveat: durations come from a monotonic clock and starts from an offset to it
// that is fixed when the process starts, so starts of one process are ordered
// and free of clock steps, but two hosts' starts must never be compared.
//
// The package imports the standard library only. The byte-level description of
// the lines is schemas/FORMAT.md.
package record

import "slices"

// Kind is the kind of a range. The numbers are part of the ring format
// (schemas/FORMAT.md): never reuse one.
type Kind uint8

// The five kinds that TaskD and laggard record, and Other for every word that is
// none of them: it is kept, counted and shipped under its own name.
const (
	Other          Kind = 0
	Step           Kind = 1
	FP             Kind = 2 // one forward pass of the outermost module
	Communication  Kind = 3
	SaveCheckpoint Kind = 4
	DataLoader     Kind = 5
)

// KindCount is one more than the largest kind number: the size of an array
// that is indexed by Kind.
const KindCount = 6

var kindWords = [KindCount]string{"other", "Step", "FP", "Communication", "SaveCheckpoint", "DataLoader"}

// Known returns k, or Other for a number that this version does not know: rings hold what
// newer recorders write.
func (k Kind) Known() Kind {
	if k < KindCount {
		return k
	}

	return Other
}

// String returns the wire word of a known kind, "other" for Other.
func (k Kind) String() string { return kindWords[k.Known()] }

// KindOf returns the kind with the wire word w, or Other.
func KindOf(w string) Kind { return Kind(max(slices.Index(kindWords[:], w), 0)) }

// Light reports whether ranges of kind k are few (all kinds but Communication):
// they have a ring of their own, so that a flood of Communication can't push
// them out, and they go together in the switch.
func (k Kind) Light() bool { return k != Communication }

// Side tells on which clock's timeline a range was measured.
type Side uint8

// Host is the time between two calls on the CPU: for work that is enqueued to
// an accelerator only the time to enqueue it. Device is the time on the
// accelerator's stream.
const (
	Host   Side = 0
	Device Side = 1
)

// String returns "host" or "device".
func (s Side) String() string {
	if s == Device {
		return "device"
	}

	return "host"
}

// NoStep is the Step of a record whose writer knew of no step, NoPeer the Peer
// of one without a peer.
const (
	NoStep int64 = -1
	NoPeer int32 = -1
)

// Record is one finished range. All times are ns: Start since the Unix epoch.
type Record struct {
	Kind Kind
	Side Side // of Start and Dur: device where it is known, else host
	// Open marks a range that never ended: Dur runs to the last sign of life.
	Open bool
	Name string // the kind's word when Kind is Other, else ""
	Step int64  // NoStep when unknown to the writer

	Start, Dur         int64
	HostStart, HostDur int64 // only when Side is Device and the host's are known too; else 0, 0
	Exposed            int64 // Communication: ns the trainer was blocked in the call or its wait(); -1 unknown

	Ring   uint32 // ring of the incarnation, numbered from 1; 0 for lines without one (TaskD)
	Seq    uint64 // per (incarnation, ring), from 0, without gaps but for counted losses
	Thread uint64 // OS thread of a host range, stream of a device range; 0 unknown

	Op     string // Communication: base word, see BaseOp
	OpRaw  string // the writer's own spelling, "" when it equals Op
	Group  string // communicator or group name
	Peer   int32  // send, recv: rank in the group of the other end; else NoPeer
	Count  int64  // elements, 0 unknown
	Dtype  string // of the elements, "" unknown
	Bytes  int64  // Communication, SaveCheckpoint: payload bytes, 0 unknown
	Tokens int64  // Step, FP: tokens of work, 0 not recorded
	Path   string // SaveCheckpoint: where to, "" unknown
}

// New returns a record of kind k with every field at its "unknown" value.
func New(k Kind) Record {
	return Record{Kind: k, Step: NoStep, Peer: NoPeer, Exposed: -1}
}

// Word returns the wire word of the record's kind, the own one of an unknown kind.
func (r *Record) Word() string {
	if r.Kind == Other {
		return r.Name
	}

	return r.Kind.String()
}

// End returns the end of the range, ns since the Unix epoch, on r.Side.
func (r *Record) End() int64 { return r.Start + r.Dur }

// HostBegin returns the host-side start: what assigns a range to a step. It is
// the device start where the host's is unknown.
func (r *Record) HostBegin() int64 {
	if r.Side == Device && r.HostStart != 0 {
		return r.HostStart
	}

	return r.Start
}
