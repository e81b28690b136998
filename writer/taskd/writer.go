// Package taskd writes segments as TaskD would have written them: marker lines
// without identity, sequence numbers or losses (`agent --format taskd`).
//
// Invariant: a record is in the files exactly once, also after a SIGKILL at any
// instant. The lines can't say where a ring goes on, so a journal beside the
// ledger does: before every write it holds the file, its size before and after,
// and the positions that follow. A file of the size after has it all, one of the
// size before has nothing, and one in between is cut back to the size before: by
// Settle, when an agent starts, so that no reader sees what will be gone.
//
// Caveats: of what TaskD's lines can't say, losses go to the ledger; identity,
// exposed time, paths and tokens are in the rings only. A segment never exceeds
// its limit, while TaskD's own files may, by one batch.
package taskd

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"time"

	"github.com/laggard-dev/laggard/schemas/marker"
	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/segment"
)

// Options of a Writer. State is required.
type Options struct {
	State string        // folder of the journal
	Limit int64         // most bytes of a segment; 0 is segment.DefaultLimit
	Turn  *segment.Turn // shared by the writers of this directory; nil is alone
	// Account takes what TaskD's lines can't say, for the ledger: what was lost
	// before it came here, and ranges with a name that TaskD's files never hold. The
	// entries of a loss are the same when it is told again. nil forgets them.
	Account func([]row.Ledger) error
}

// Writer appends the ranges of one incarnation. It is not safe for concurrent use.
type Writer struct {
	dir     string
	meta    record.Meta
	o       Options
	now     func() time.Time
	journal string // path
	state   state  // as of the journal: everything in the files

	file    segment.File
	dirty   bool // written and not synced
	encoder marker.Encoder
	buf     []byte
	pending []mark
	next    map[uint32]uint64 // positions after buf
	losses  []row.Ledger      // not in the ledger yet
	parser  record.Parser
	ended   bool
}

// mark is the end of one record's lines in the buffer.
type mark struct {
	end  int
	ring uint32
	seq  uint64
	id   uint64
}

// Open returns a writer for the incarnation meta in rankDir, which goes on where
// the journal says.
func Open(rankDir string, meta record.Meta, o Options) (*Writer, error) {
	o.Limit = cmp.Or(max(o.Limit, 0), segment.DefaultLimit)

	w := &Writer{dir: filepath.Clean(rankDir), meta: meta, o: o, now: time.Now, next: map[uint32]uint64{}}
	w.encoder = marker.Encoder{Process: uint32(meta.PID), Thread: uint32(meta.PID), Device: uint32(max(meta.LocalRank, 0))}
	if err := segment.Disk.Mkdir(w.dir); err != nil {
		return nil, fmt.Errorf("make rank directory %s: %w", w.dir, err)
	}

	w.journal = filepath.Join(o.State, "taskd-"+meta.Incarnation.String()+".json")
	if err := w.resume(); err != nil {
		return nil, fmt.Errorf("open segments in %s: %w", w.dir, err)
	}

	return w, w.SetMeta(meta)
}

// resume takes the journal and settles a write that was under way.
func (w *Writer) resume() error {
	entry, ok, err := readJournal(w.journal)
	if err != nil || !ok {
		return err
	}

	infos, err := segment.ListAll(w.dir)
	if err != nil {
		return err
	}

	if len(infos) > 0 {
		w.o.Turn.Saw(infos[len(infos)-1].Number)
	}

	if w.state, err = entry.settle(w.dir); err != nil {
		return err
	}

	maps.Copy(w.next, w.state.Next)
	w.encoder.LastID, w.ended = w.state.ID, w.state.Ended
	return nil
}

// Next returns, for each ring, the sequence number after the last record taken.
func (w *Writer) Next() map[uint32]uint64 { return maps.Clone(w.next) }

// Ended reports whether the incarnation's end was seen.
func (w *Writer) Ended() bool { return w.ended }

// SetMeta writes parallel_group.json when groups are known, as TaskD's
// dump_group_info does.
func (w *Writer) SetMeta(m record.Meta) error {
	if len(m.Groups) == 0 {
		return nil
	}

	return writeGroups(w.dir, m.Groups)
}

// AppendRecord takes one record; Flush writes it.
func (w *Writer) AppendRecord(r *record.Record) error {
	refused := w.encoder.Refused
	w.buf = w.encoder.Append(w.buf, r)
	if w.encoder.Refused > refused {
		w.lose(row.Ledger{Kind: r.Word(), Reason: record.NameTooLong, Records: 1, FirstOffset: r.Seq, LastOffset: uint64(r.Ring)})
	}

	w.pending = append(w.pending, mark{len(w.buf), r.Ring, r.Seq, w.encoder.LastID})
	if r.Ring != 0 {
		w.next[r.Ring] = r.Seq + 1
	}

	return nil
}

// AppendLine takes a control line. TaskD has none: losses go to the ledger, and the
// end is remembered.
func (w *Writer) AppendLine(line []byte) error {
	t, err := w.parser.Parse(line)
	switch {
	case err != nil:
		return fmt.Errorf("take control line: %w", err)
	case t == record.LineLoss:
		l := &w.parser.Loss
		w.lose(row.Ledger{Kind: l.Kind, Reason: l.Reason, Records: l.Count, FirstOffset: uint64(max(l.First, l.Last)), LastOffset: uint64(l.Ring)})
	case t == record.LineEnd:
		w.ended = true
	}

	return nil
}

// lose keeps an entry for the ledger.
func (w *Writer) lose(l row.Ledger) {
	l.Job, l.Rank, l.Incarnation, l.State = w.meta.Job, uint32(w.meta.Rank), w.meta.Incarnation, "dropped"
	w.losses = append(w.losses, l)
}

// settle hands the losses to the ledger.
func (w *Writer) settle() error {
	if len(w.losses) == 0 || w.o.Account == nil {
		w.losses = w.losses[:0]
		return nil
	}

	if err := w.o.Account(w.losses); err != nil {
		return fmt.Errorf("account losses of rank %d: %w", w.meta.Rank, err)
	}

	w.losses = w.losses[:0]
	return nil
}

// Flush writes what was taken, chunk by chunk: a chunk is what fits a segment. The
// ledger comes first: after a crash a loss is told again, with the same entry.
func (w *Writer) Flush() error {
	if err := w.settle(); err != nil {
		return err
	}

	for len(w.pending) > 0 {
		n := w.fits()
		if n == 0 {
			if err := w.rotate(); err != nil {
				return err
			}

			n = max(w.fits(), 1) // a record alone may be longer than a tiny limit
		}

		if err := w.write(n); err != nil {
			return err
		}
	}

	if w.ended && !w.state.Ended {
		after := w.state
		after.Ended = true
		if err := writeJournal(w.journal, w.entry(after)); err != nil {
			return err
		}

		w.state = after
	}

	return nil
}

// fits returns how many of the pending records the current segment takes: none when
// it is no longer the newest.
func (w *Writer) fits() int {
	if number, ok := segment.Number(w.state.Name); !ok || w.o.Turn.Over(number) {
		return 0
	}

	n := 0
	for n < len(w.pending) && w.state.Size+int64(w.pending[n].end) <= w.o.Limit {
		n++
	}

	return n
}

// rotate begins the next segment.
func (w *Writer) rotate() error {
	if err := w.closeFile(); err != nil {
		return err
	}

	f, number, err := segment.Create(segment.Disk, w.dir, w.now(), -1)
	if err != nil {
		return err
	}

	w.file, w.state.Name, w.state.Size = f, fmt.Sprint(number), 0
	w.o.Turn.Saw(number)
	return nil
}

// write appends the first n pending records to the current segment.
func (w *Writer) write(n int) error {
	if err := w.open(); err != nil {
		return err
	}

	last := w.pending[n-1]
	chunk := w.buf[:last.end]
	after := w.state.after(w.pending[:n], int64(len(chunk)))
	if err := writeJournal(w.journal, w.entry(after)); err != nil {
		return err
	}

	if _, err := w.file.Write(chunk); err != nil {
		return errors.Join(fmt.Errorf("write segment %s: %w", w.state.Name, err),
			cut(filepath.Join(w.dir, w.state.Name), w.state.Size)) // so that the same lines may follow
	}

	w.state, w.dirty = after, true
	w.buf = append(w.buf[:0], w.buf[last.end:]...)
	w.pending = append(w.pending[:0], w.pending[n:]...)
	for i := range w.pending {
		w.pending[i].end -= last.end
	}

	return nil
}

// entry is a write that leads from where the writer stands to another state.
func (w *Writer) entry(after state) entry {
	return entry{w.meta.Job, w.meta.Rank, w.meta.BootID, w.state, after}
}

// open opens the current segment, where it is not open.
func (w *Writer) open() error {
	if w.file != nil {
		return nil
	}

	f, err := segment.Disk.Append(filepath.Join(w.dir, w.state.Name))
	if err != nil {
		return fmt.Errorf("open segment %s: %w", w.state.Name, err)
	}

	w.file = f
	return nil
}

// Sync makes what was flushed survive the host.
func (w *Writer) Sync() error {
	if w.file == nil || !w.dirty {
		return nil
	}

	if err := w.file.Sync(); err != nil {
		return fmt.Errorf("sync segment %s: %w", w.state.Name, err)
	}

	w.dirty = false
	return segment.Disk.SyncDir(w.dir)
}

// closeFile closes it durably.
func (w *Writer) closeFile() error {
	if w.file == nil {
		return nil
	}

	err := errors.Join(w.Sync(), w.file.Close())
	w.file = nil
	return err
}

// Close flushes, syncs and closes. The journal of an incarnation that has ended
// is of no use any more.
func (w *Writer) Close() error { return errors.Join(w.Flush(), w.closeFile()) }

// Name returns the current segment.
func (w *Writer) Name() string { return w.state.Name }

// Bytes is 0: a loss stands in the journal, not in the segment, whose length says
// nothing of it.
func (w *Writer) Bytes() int64 { return 0 }
