package drain

import (
	"cmp"
	"math"
	"path/filepath"
	"strings"

	"github.com/laggard-dev/laggard/collector/ring"
	"github.com/laggard-dev/laggard/schemas/record"
)

// end returns when the slot's range ended, ns since the Unix epoch.
func end(s *ring.Slot) int64 {
	start, dur := clamp(s)
	return start + dur
}

// clamp returns a slot's times, in range: starts from 1970 on, no negative durations, no
// overflow.
func clamp(s *ring.Slot) (start, dur int64) {
	start, dur = max(s.Start(), 0), max(s.Dur(), 0)
	if dur > math.MaxInt64-start {
		dur = 0
	}

	return start, dur
}

// translate makes r the record of a slot. Ring and Seq are the caller's. Numbers that a
// record can't have become those that say "unknown": a slot is whole when its checksum is
// right, but what its program told the recorder may be anything.
func (p *process) translate(r *record.Record, s *ring.Slot, thread uint64) {
	*r = record.New(s.Kind().Known())
	r.Thread = thread
	flags := s.Flags()
	if flags&ring.FlagDevice != 0 {
		r.Side, r.Thread = record.Device, uint64(s.Stream())
	}

	r.Step = record.NoStep
	r.Start, r.Dur = clamp(s)
	if s.Step() != ring.NoStep {
		r.Step = int64(s.Step())
	}

	// One word of the slot holds the host's start, or else for how long the program waited.
	if flags&ring.FlagDevice != 0 && flags&(ring.FlagHost|ring.FlagExposed) == ring.FlagHost {
		r.HostStart, r.HostDur = max(s.HostStart(), 0), s.HostDur()
	}

	if flags&ring.FlagExposed != 0 {
		r.Exposed = max(s.HostStart(), 0)
	}

	r.Open = flags&ring.FlagOpen != 0
	r.Group, _ = p.folder.Text(s.Group())
	value := max(s.Value(), 0)
	switch r.Kind {
	case record.Communication:
		r.Op, r.OpRaw = p.op(s.Text())
		r.Peer = max(s.Peer(), record.NoPeer)
		r.Count, r.Dtype = value, record.DtypeName(s.Dtype())
	case record.Step, record.FP:
		r.Tokens = value
	case record.SaveCheckpoint:
		r.Path, _ = p.folder.Text(s.Text())
		r.Bytes = value
	case record.Other:
		r.Name, _ = p.folder.Text(s.Text())
		if r.Name == "" {
			r.Name = record.Other.String()
		}

		r.Bytes = value
	}
}

// op returns the base word of the operation with a string id, and the recorder's own
// spelling where that is another. Base words are remembered: record.BaseOp takes most
// spellings apart letter by letter.
func (p *process) op(id uint16) (base, raw string) {
	raw, ok := p.folder.Text(id)
	if !ok || raw == "" {
		return "", ""
	}

	for int(id) >= len(p.ops) {
		p.ops = append(p.ops, "")
	}

	if base = p.ops[id]; base == "" {
		base = record.BaseOp(raw)
		p.ops[id] = base
	}

	if base == raw {
		raw = ""
	}

	return base, raw
}

// readIdentity reads the identity when it changed and reports whether it did.
func (p *process) readIdentity() (news bool) {
	if p.identity == p.status.Identity && p.meta.Format != "" {
		return false
	}

	m, ok := p.folder.Meta(p.status)
	if ok {
		p.identity = p.status.Identity
	}

	p.meta = p.complete(m)
	return true
}

// complete fills what an identity leaves empty. What belongs to the process is
// taken from its header.
func (p *process) complete(m record.Meta) record.Meta {
	id, o := p.folder.Identity, p.d.o
	m.Format, m.Segment = record.Format, ""
	m.Incarnation, m.PID, m.StartedNs, m.BootID = id.Incarnation, id.PID, id.StartedNs, id.BootID
	m.Rank = min(max(m.Rank, 0), math.MaxInt32)
	m.WorldSize, m.LocalRank = max(m.WorldSize, 0), max(m.LocalRank, 0)
	if !component(m.Job) {
		if p.note.Job == "" {
			p.note.Job, p.note.changed = p.d.jobOf(id.StartedNs), true
		}

		m.Job = p.note.Job
	}

	m.Node, m.Pod = cmp.Or(m.Node, o.Node), cmp.Or(m.Pod, o.Pod)
	return m
}

// component reports whether a job's name can be a directory's: 255 bytes is what Linux's
// file systems take, and control characters would break the lines that name it.
func component(job string) bool {
	return job != "" && job != "." && job != ".." && len(job) <= 255 && filepath.Base(job) == job &&
		!strings.ContainsFunc(job, func(r rune) bool { return r < ' ' || r == 0x7f })
}
