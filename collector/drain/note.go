package drain

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/laggard-dev/laggard/collector/ring"
	"github.com/laggard-dev/laggard/schemas/record"
)

const (
	// The limit is for a file that others wrote. The largest note, of 107 rings with 64 open ranges each, has some 150 KB.
	noteName  = "agent.state"
	noteLimit = 1 << 20
)

// note is what the agent must remember of a folder beyond what the segments
// say: which cumulative counts it has reported in loss lines, and which open
// ranges. It lives beside the rings, in the same memory, and ends with them.
//
// A line is reported once although a kill can come between writing the line and
// writing the note: the note first says which line comes next and how long the
// segment was before it (Pending). After a restart the segment's length tells
// whether the line is there.
type note struct {
	Job     string            `json:"job,omitempty"`  // the job we gave a process that named none
	Home    *record.RankID    `json:"home,omitempty"` // whose directory its records go to
	Told    *uint32           `json:"told,omitempty"` // what we told it to record first, as bits of the switch word
	Done    map[string]uint64 `json:"done"`
	Pending *pending          `json:"pending,omitempty"`
	changed bool
}

// pending is the line that is being written.
type pending struct {
	Key   string `json:"key"`
	Value uint64 `json:"value"`
	Name  string `json:"name"`  // of the open segment
	Bytes int64  `json:"bytes"` // its size before the line
	Size  int64  `json:"size"`  // the line's
	Count uint64 `json:"count"` // slots that the line counts as corrupt
}

// Keys of note.Done. Those of losses hold the count that the last loss line brought the
// reader up to, skipKey the slot after the last one counted as corrupt, and openKey 1 for
// a line that is written once.
func fullKey(ring uint32, k record.Kind) string { return fmt.Sprintf("full/%d/%d", ring, k) }
func noRingKey(k int) string                    { return "none/" + strconv.Itoa(k) }
func skipKey(ring uint32) string                { return "skip/" + strconv.FormatUint(uint64(ring), 10) }
func cutKey(ring uint32) string                 { return "cut/" + strconv.FormatUint(uint64(ring), 10) }
func openKey(ring uint32, level int) string     { return fmt.Sprintf("open/%d/%d", ring, level) }

const (
	switchKey  = "switch"
	corruptKey = "corrupt"
)

// load reads the note. One that makes no sense counts as empty.
func (n *note) load(f *ring.Folder) error {
	b, err := f.Load(noteName, noteLimit)
	if err != nil && !errors.Is(err, ring.ErrNotRing) {
		return err
	}

	if json.Unmarshal(b, n) != nil || n.Home != nil && (!component(n.Home.Job) || n.Home.Rank < 0) {
		*n = note{}
	}

	if n.Done == nil {
		n.Done = make(map[string]uint64)
	}

	return nil
}

// store writes the note into the folder. One that could not be written is still to be.
func (n *note) store(f *ring.Folder) error {
	b, err := json.Marshal(n)
	if err != nil {
		panic("BUG: note is not JSON: " + err.Error())
	}

	if err := f.Store(noteName, b); err != nil {
		return err
	}

	n.changed = false
	return nil
}

// commit says that everything appended is flushed, the pending line too.
func (n *note) commit() {
	if n.Pending == nil {
		return
	}

	n.Done[n.Pending.Key] = n.Pending.Value
	n.Done[corruptKey] += n.Pending.Count
	n.Pending, n.changed = nil, true
}

// resolve finds out, with a Writer that was just opened, whether the pending
// line was written by the agent before us.
func (n *note) resolve(w Writer, m record.Meta) {
	p := n.Pending
	if p == nil {
		return
	}

	before := p.Bytes
	if w.Name() != p.Name {
		before = identitySize(m, w.Next()) // a new segment: the line is the first after its identity
	}

	if w.Name() != "" && w.Bytes() >= before+p.Size {
		n.commit()
	}

	n.Pending = nil
}

// identitySize is the length of a segment's first line.
func identitySize(m record.Meta, next map[uint32]uint64) int64 {
	m.Segment = "0123456789abcdef"
	size := len(m.AppendLine(nil)) + len(`,"next":{}`) + max(len(next)-1, 0)
	for ring, seq := range next {
		size += len(`"":`) + len(strconv.FormatUint(uint64(ring), 10)) + len(strconv.FormatUint(seq, 10))
	}

	return int64(size)
}

// once writes a line that must not be written again after a kill: key's value
// is then Done. Everything before it must be settled.
func (p *process) once(key string, value uint64, line []byte) error {
	return p.write(pending{Key: key, Value: value}, line)
}

// write is once for a line that counts corrupt slots, too. A note that can't be stored puts
// the line off, unless the process is gone: a run directory that is full gets room only when
// the folders of such are drained and removed.
func (p *process) write(next pending, line []byte) error {
	next.Name, next.Bytes, next.Size = p.w.Name(), p.w.Bytes(), int64(len(line))
	p.note.Pending = &next
	if err := p.note.store(p.folder); err != nil && !p.gone {
		p.note.Pending = nil
		return err // the counts are cumulative: the next pass tells them
	}

	crashPoint("noted")
	p.unsaid = true
	if err := p.w.AppendLine(line); err != nil {
		p.note.Pending = nil
		return fmt.Errorf("write: %w", err)
	}

	crashPoint("line-appended")
	return p.settle()
}

// crashPoint is where tests die: after each step that a kill could come after.
var crashPoint = func(label string) {}

// remember stores the note when it changed. Failing is not worth an error: only
// a kill before the next time would be the worse for it.
func (p *process) remember() {
	if p.note.changed {
		_ = p.note.store(p.folder)
	}
}
