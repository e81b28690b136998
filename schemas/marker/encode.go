package marker

import (
	"bytes"
	"cmp"
	"strconv"
	"strings"

	"github.com/laggard-dev/laggard/schemas/record"
)

// nameLimit is the length from which libmspti refuses a name, in bytes: such a
// range is in no file of TaskD's. The producers of communication names escape the
// quotes beforehand, and the backslashes count.
const nameLimit = 255

// Encoder turns records into lines, for one process. A range whose name reaches
// nameLimit has none, as with TaskD itself.
//
// Promise: a Pairer that reads the lines yields the same record in every field
// that TaskD has. TaskD has no tokens, paths, ring numbers or exposed time, and of
// the payload only what count and dtype say.
//
// Caveat: a Step, FP or Communication has device lines in TaskD's files, and its readers
// (FaultDiag-online) use no other. One that was measured on the host alone gets the
// host's stamps as the device's, on stream 0: a reader of TaskD's takes them for device
// times, a Pairer knows them by that.
type Encoder struct {
	Process uint32 // pid that host lines carry
	Thread  uint32 // tid of ranges that know none
	Device  uint32 // device that device lines carry
	LastID  uint64 // Id drawn last; the next record gets LastID + 1
	Refused uint64 // ranges whose name reached nameLimit
}

// Append appends the lines of r: host start and end, and device start and end when
// its kind has them. An open range has no ends.
func (e *Encoder) Append(dst []byte, r *record.Record) []byte {
	device := r.Side == record.Device || r.Kind == record.Step || r.Kind == record.FP || r.Kind == record.Communication
	m := &Marker{Kind: KindMarker, ID: e.LastID + 1, Process: e.Process, Thread: e.thread(r)}
	m.Device, m.Stream = m.Process, m.Thread
	m.Name, m.Domain = nameOf(r)
	if nameLength(m.Name, m.Domain) >= nameLimit {
		e.Refused++
		return dst
	}

	e.LastID++
	start, end := Start, End
	if device {
		start, end = StartDevice, EndDevice
	}

	hs, hd := r.Start, r.Dur
	if r.Side == record.Device {
		hs, hd = r.HostStart, r.HostDur // 0 where unknown: "could not be collected"
	}

	m.Flag, m.Timestamp = start, uint64(hs)
	dst = Append(dst, m)
	m.Name, m.Domain = nil, nil
	if r.Open {
		return dst
	}

	m.Flag, m.Timestamp = end, uint64(hs+hd)
	dst = Append(dst, m)
	if !device {
		return dst
	}

	m.Source, m.Process, m.Thread = DeviceSide, e.Device, hostStream
	if r.Side == record.Device {
		m.Thread = uint32(r.Thread)
	}

	m.Device, m.Stream = m.Process, m.Thread
	m.Flag, m.Timestamp = start, uint64(r.Start)
	dst = Append(dst, m)
	m.Flag, m.Timestamp = end, uint64(r.Start+r.Dur)
	return Append(dst, m)
}

// hostStream is the stream of device lines that repeat the host's.
const hostStream = 0

// nameLength is the length of a name as libmspti is given it: see nameLimit.
func nameLength(name, domain []byte) int {
	n := len(name)
	if string(domain) == CommunicationDomain {
		n += bytes.Count(name, []byte{'"'}) + bytes.Count(name, []byte{'\\'})
	}

	return n
}

// thread is what stands for the thread in a line: the record's where it is the host's, for a device's is its stream.
func (e *Encoder) thread(r *record.Record) uint32 {
	if r.Side == record.Host && r.Thread != 0 {
		return uint32(r.Thread)
	}

	return e.Thread
}

// nameOf returns the name and domain that TaskD gives a range of r's kind: what
// Pairer.classify reads.
func nameOf(r *record.Record) (name, domain []byte) {
	switch r.Kind {
	case record.Step:
		name = strconv.AppendInt([]byte("step "), r.Step, 10)
	case record.FP:
		name = []byte("forward")
	case record.DataLoader:
		name = []byte("dataloader")
	case record.SaveCheckpoint:
		name = []byte("save_checkpoint")
	case record.Communication:
		return communicationName(r), []byte(CommunicationDomain)
	default:
		return []byte(r.Name), []byte(cmp.Or(r.Group, DefaultDomain))
	}

	return name, []byte(DefaultDomain)
}

// communicationName returns the JSON object that names a communication range, spaced as
// TaskD's own.
func communicationName(r *record.Record) []byte {
	b := strconv.AppendInt([]byte(`{"count": "`), r.Count, 10)
	b = append(b, `","dataType": `...)
	b = appendText(b, []byte(taskdDtype(r.Dtype)))
	if r.Peer != record.NoPeer {
		key := `,"destRank": "`
		if r.Op == "recv" {
			key = `,"srcRank": "`
		}

		b = append(strconv.AppendInt(append(b, key...), int64(r.Peer), 10), '"')
	}

	b = appendText(append(b, `,"groupName": `...), []byte(r.Group))
	b = appendText(append(b, `,"opName": `...), []byte(hcclOp(r)))
	if r.Side == record.Device {
		b = append(strconv.AppendUint(append(b, `,"streamId": "`...), r.Thread, 10), '"')
	}

	return append(b, '}')
}

// taskdDtype is an element type in TaskD's words: ours but for two.
func taskdDtype(dtype string) string {
	switch dtype {
	case "":
		return "na"
	case "bf16":
		return "bfp16"
	}

	return dtype
}

// hcclOps are the operations as TaskD's readers expect them.
var hcclOps = map[string]string{
	"allreduce": "HcclAllreduce", "allgather": "HcclAllGather", "reducescatter": "HcclReduceScatter",
	"reduce": "HcclReduce", "broadcast": "HcclBroadcast", "scatter": "HcclScatter", "gather": "HcclGather",
	"alltoall": "HcclAlltoAll", "barrier": "HcclBarrier",
	"send": "HcclSend", "recv": "HcclRecv", "sendrecv": "HcclBatchSendRecv",
}

// hcclOp returns the operation of r by that name; one that has none as it is spelt.
func hcclOp(r *record.Record) string {
	raw := r.OpRaw
	if len(raw) >= 4 && strings.EqualFold(raw[:4], "hccl") || r.Op == "" {
		return raw
	}

	return cmp.Or(hcclOps[r.Op], r.Op)
}
