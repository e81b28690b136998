// Package marker is TaskD's lines: what another writer's profiling files hold,
// and what `--format taskd` writes.
//
// A range is written as two or four lines that share an Id: start and end on the
// host, and, for a range that was given a stream, start and end on the device:
//
//	{"Kind":1,"Flag":16,"SourceKind":0,"Timestamp":…,"Id":41,"MsptiObjectId":{"Pt":{"ProcessId":3121,"ThreadId":3121},"Ds":{…}},"Name":"step 120","Domain":"default"}
//	{"Kind":1,"Flag":32,"SourceKind":0,"Timestamp":…,"Id":41,…,"Name":"","Domain":""}
//	{"Kind":1,"Flag":16,"SourceKind":1,…  {"Kind":1,"Flag":32,"SourceKind":1,…
//
// Parser reads a line, Append writes it, Pairer joins lines to record.Record, and
// Encoder turns records into lines.
//
// Invariant: a line that TaskD wrote is read and written again as the same bytes.
//
// Caveat: the lines carry no rank, no host and no sequence number, and device
// lines not even a process. Who wrote them is inferred (Pairer), and a lost line
// can't be told from one that was never written.
package marker

// KindMarker is the kind of activity that a marker is, as libmspti numbers them. TaskD has
// types for kernels (2) and calls (3), too, but enables neither: their lines are Unknown.
const KindMarker uint32 = 1

// Flags of a marker line.
const (
	Instant       uint32 = 1  // a moment on the host
	Start         uint32 = 2  // of a range without a stream
	End           uint32 = 4  // of a range without a stream
	InstantDevice uint32 = 8  // a moment on host and device
	StartDevice   uint32 = 16 // of a range with a stream
	EndDevice     uint32 = 32 // of a range with a stream
)

// Sources of a time stamp.
const (
	HostSide   uint32 = 0
	DeviceSide uint32 = 1
)

// Domains that TaskD switches.
const (
	DefaultDomain       = "default"
	CommunicationDomain = "communication"
)

// Marker is one line.
type Marker struct {
	Kind      uint32
	Flag      uint32
	Source    uint32 // HostSide or DeviceSide
	Timestamp uint64 // ns since the Unix epoch, 0 = could not be collected
	ID        uint64 // unique inside one process, from 1

	// The line prints a C union twice: on host lines both pairs are process and
	// thread, on device lines both are device and stream.
	Process, Thread uint32
	Device, Stream  uint32

	Name   []byte // only on the host's start line
	Domain []byte // only on the host's start line

	Place // where it stands, by Pairer.Add
}

// starts reports whether the line opens a range (or is the whole of an instant).
func (m *Marker) starts() bool {
	return m.Flag == Start || m.Flag == StartDevice || m.instant()
}

// ends reports whether the line ends a range.
func (m *Marker) ends() bool { return m.Flag == End || m.Flag == EndDevice }

// instant reports whether the line is a point in time, not one end of a range.
func (m *Marker) instant() bool { return m.Flag == Instant || m.Flag == InstantDevice }
