package profiles

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"slices"

	"github.com/laggard-dev/laggard/schemas/record"
)

// inspector reads what NCCL's Inspector plugin writes, a file a process: JSON objects one after the
// other, one a finished collective or point-to-point operation of a communicator. Up to v4.2 of its
// form each says whose it is (header, metadata); since v4.3 a dump_stats object says it for those that
// follow. This reader rests on the plugin's source and documents; no file of a real job was met.
//
// How long an operation ran is there, when it ran only in verbose dumps (event_trace_ts), by the clock
// of the host. Operations without that stand end to end before the time of their dump. Ranks are those of
// the largest communicator: the plugin does not know the job's.
var inspector = format{
	Name:    "inspector",
	What:    "NCCL Inspector logs (JSON lines)",
	Endings: []string{".log", ".jsonl"},
	Leads: func(f *profileFile) bool {
		return f.begins() == '{' && bytes.Contains(f.Head(), []byte(`"inspector_output_format_version"`))
	},
	Read: readInspector,
}

// inspectorLog is one file while it is read.
type inspectorLog struct {
	f     *profileFile
	out   *output
	said  communicator // by the last object that said it
	calls []inspected
	comms map[communicator]int // their calls
	id    record.Meta

	dump       int64 // µs since 1970, of what is read
	untimed    int   // calls that stand end to end
	dropped    int64 // calls that the plugin itself lost
	unreadable int
}

// communicator is one rank's.
type communicator struct {
	id          string // by which ranks know it, or its name
	rank, ranks int
}

// inspected is one operation.
type inspected struct {
	of    communicator
	rec   record.Record
	timed bool
}

// readInspector reads one log. What the plugin or the file lost is told, and the rest given.
func readInspector(ctx context.Context, f *profileFile, out *output) error {
	l := &inspectorLog{f: f, out: out, comms: map[communicator]int{}}
	scan := func(r io.Reader) error { return scanObjects(r, l.object) }
	if _, err := f.read(ctx, out, scan, func() bool { return len(l.calls) > 0 }); err != nil {
		return err
	}

	if l.unreadable > 0 {
		out.Unread(f.Path, "%d objects tell no communicator or no operation: they are left out", l.unreadable)
	}

	if l.dropped > 0 {
		out.Note(f.Path, "%d operations are not in it: NCCL Inspector lost them before it could write them (NCCL_INSPECTOR_DUMP_COLL_RING_SIZE)", l.dropped)
	}

	return l.give()
}

// object takes one object of the file.
func (l *inspectorLog) object(o []byte) {
	var operation []byte
	kind, other := "", false
	_, _ = members(o, 0, func(k, v []byte) bool { // it is whole
		switch string(k) {
		case "header":
			l.header(v)
		case "metadata":
			l.metadata(v)
		case "coll_perf":
			kind, operation = "coll", v
		case "p2p_perf":
			kind, operation = "p2p", v
		case "dump_stats":
			other = true
			l.dropped += max(number(memberOf(v, "coll_dropped_since_last_dump"), 0), 0) + max(number(memberOf(v, "p2p_dropped_since_last_dump"), 0), 0)
		case "proxy_trace":
			other = true // a part of an operation that has its own object
		}

		return true
	})
	if kind == "" && other {
		return
	}

	raw, us := string(memberOf(operation, kind)), number(memberOf(operation, kind+"_exec_time_us"), -1)
	if raw == "" || us < 0 || us > mostMicros || l.said.ranks == 0 || len(l.calls) >= mostRanges {
		l.unreadable++
		return
	}

	c := inspected{of: l.said, rec: record.New(record.Communication)}
	r := &c.rec
	setOp(r, raw)
	r.Side, r.Group, r.Start, r.Dur = record.Device, l.said.id, l.dump*1000, us*1000
	r.Bytes = max(number(memberOf(operation, kind+"_msg_size_bytes"), 0), 0)
	r.Peer = int32(rankIn(memberOf(operation, "p2p_peer")))
	if c.timed = traced(r, memberOf(operation, "event_trace_ts"), kind); !c.timed {
		l.untimed++
	}

	l.calls = append(l.calls, c)
	l.comms[l.said]++
}

// mostMicros are those that are still a number of ns.
const mostMicros = math.MaxInt64 / 2000

// header takes whose operations follow.
func (l *inspectorLog) header(v []byte) {
	c := communicator{id: string(memberOf(v, "comm_name")), rank: rankIn(memberOf(v, "rank")), ranks: int(number(memberOf(v, "n_ranks"), 0))}
	if c.id == "" || c.id == "unknown" {
		c.id = string(memberOf(v, "id"))
	}

	if c.rank < 0 || c.ranks <= c.rank || c.ranks > mostRanks || len(c.id) > record.MaxWord {
		c = communicator{}
	}

	l.said = c
}

// metadata takes when the operations that follow were dumped, and by which process.
func (l *inspectorLog) metadata(v []byte) {
	l.dump = min(max(number(memberOf(v, "dump_timestamp_us"), 0), 0), mostMicros)
	l.id.Node = record.Clip(string(memberOf(v, "hostname")), record.MaxWord)
	if pid := number(memberOf(v, "pid"), 0); pid > 0 && pid < 1<<31 {
		l.id.PID = int(pid)
	}
}

// traced sets when an operation ran, by a verbose dump: from the first start of a kernel to the last
// stop, as the host saw them, and the call before.
func traced(r *record.Record, trace []byte, kind string) bool {
	from, to := int64(math.MaxInt64), int64(0)
	for _, k := range elements(memberOf(trace, "kernel_events")) {
		start, stop := number(memberOf(k, "kernel_start_ts"), 0), number(memberOf(k, "kernel_stop_ts"), 0)
		if start > 0 && stop >= start && stop < mostMicros {
			from, to = min(from, start), max(to, stop)
		}
	}

	if to == 0 {
		return false
	}

	r.Start, r.Dur = from*1000, (to-from)*1000
	if called := number(memberOf(trace, kind+"_start_ts"), 0); called > 0 && called <= from {
		r.HostStart = called * 1000
	}

	return true
}

// give gives the operations out, to the ranks of the largest communicator.
func (l *inspectorLog) give() error {
	if len(l.calls) == 0 {
		return errors.New("it holds no finished operation")
	}

	// Of several that are as large the first by name, so that two passes over a folder agree.
	var world communicator
	for c := range l.comms {
		if c.ranks > world.ranks || c.ranks == world.ranks && (c.id < world.id || c.id == world.id && c.rank < world.rank) {
			world = c
		}
	}

	several := 0
	for c := range l.comms {
		if c.id == world.id && c.ranks == world.ranks {
			several++
		}
	}

	l.out.Note(l.f.Path, "it tells no rank of the job: ranks are those of its largest communicator, of %d ranks", world.ranks)
	if several > 1 {
		of := len(l.calls)
		l.calls = slices.DeleteFunc(l.calls, func(c inspected) bool { return c.of.id != world.id })
		if n := of - len(l.calls); n > 0 {
			l.out.Unread(l.f.Path, "%d operations of other communicators are left out: the process has %d ranks, and nothing says whose they are", n, several)
		}
	}

	if l.untimed > 0 {
		l.out.Note(l.f.Path, "it has no times of %d operations (NCCL_INSPECTOR_DUMP_VERBOSE=1 writes them): they stand end to end before the time of their dump", l.untimed)
		l.endToEnd(several > 1)
	}

	for i := range l.calls {
		c := &l.calls[i]
		id := l.id
		id.Rank, id.WorldSize = world.rank, world.ranks
		if several > 1 {
			id.Rank = c.of.rank
		}

		l.out.Rank(id).Add(&c.rec)
	}

	return nil
}

// endToEnd puts the operations without times, which all have that of their dump, one behind the other
// before it. Those of a GPU do not overlap: several has them apart by rank.
func (l *inspectorLog) endToEnd(several bool) {
	begin := map[int]int64{} // of what was put last
	for i := len(l.calls) - 1; i >= 0; i-- {
		c, gpu := &l.calls[i], 0
		if several {
			gpu = c.of.rank
		}

		if c.timed {
			continue
		}

		if before, ok := begin[gpu]; ok {
			c.rec.Start = min(c.rec.Start, before)
		}

		c.rec.Start = max(c.rec.Start-c.rec.Dur, 1)
		begin[gpu] = c.rec.Start
	}
}
