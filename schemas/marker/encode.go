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

	line         Marker
	name, domain []byte
}

// Append appends the lines of r: host start and end, and device start and end when
// its kind has them. An open range has no ends.
func (e *Encoder) Append(dst []byte, r *record.Record) []byte {
	if r.Kind == record.Other && (r.Name == apiWord || r.Name == kernelWord) {
		return e.appendActivity(dst, r)
	}

	device := r.Side == record.Device || r.Kind == record.Step || r.Kind == record.FP || r.Kind == record.Communication
	m := &e.line
	*m = Marker{Kind: KindMarker, ID: e.LastID + 1, Process: e.Process, Thread: e.thread(r)}
	m.Device, m.Stream = m.Process, m.Thread
	e.setName(m, r)
	if nameLength(m) >= nameLimit {
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

// nameLength is what libmspti is given.
func nameLength(m *Marker) int {
	n := len(m.Name)
	if string(m.Domain) == CommunicationDomain {
		n += bytes.Count(m.Name, []byte{'"'}) + bytes.Count(m.Name, []byte{'\\'})
	}

	return n
}

func (e *Encoder) thread(r *record.Record) uint32 {
	if r.Side == record.Host && r.Thread != 0 {
		return uint32(r.Thread)
	}

	return e.Thread
}

// appendActivity writes an API or kernel line.
func (e *Encoder) appendActivity(dst []byte, r *record.Record) []byte {
	m := &e.line
	*m = Marker{
		Kind: KindAPI, Timestamp: uint64(r.Start), End: uint64(r.Start + r.Dur), ID: uint64(r.Count),
		Process: e.Process, Thread: uint32(r.Thread), Name: []byte(r.Op),
	}
	if r.Name == kernelWord {
		m.Kind, m.Device, m.Stream, m.Type = KindKernel, e.Device, uint32(r.Thread), []byte(r.Dtype)
	}

	return Append(dst, m)
}

// setName sets the name and domain that the kind of r has.
func (e *Encoder) setName(m *Marker, r *record.Record) {
	b := e.name[:0]
	domain := DefaultDomain
	switch r.Kind {
	case record.Step:
		b = strconv.AppendInt(append(b, "step "...), r.Step, 10)
	case record.FP:
		b = append(b, "forward"...)
	case record.DataLoader:
		b = append(b, "dataloader"...)
	case record.SaveCheckpoint:
		b = append(b, "save_checkpoint"...)
	case record.Communication:
		b = appendCommunication(b, r)
		domain = CommunicationDomain
	default:
		b = append(b, r.Name...)
		if r.Group != "" {
			domain = r.Group
		}
	}

	e.name = b
	e.domain = append(e.domain[:0], domain...)
	m.Name, m.Domain = b, e.domain
}

// appendCommunication appends the JSON object that names a communication range.
func appendCommunication(b []byte, r *record.Record) []byte {
	b = strconv.AppendInt(append(b, `{"count": "`...), r.Count, 10)
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
