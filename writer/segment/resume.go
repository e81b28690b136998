package segment

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/laggard-dev/laggard/schemas/record"
)

// resume learns from the directory what this incarnation has written, and opens
// its newest segment for more when that is a plain file of ours and the newest of
// all: ageing and other readers take every other segment for finished.
func (w *Writer) resume() error {
	all, err := List(w.dir)
	if err != nil {
		return err
	}

	w.last = -1
	for _, s := range all {
		w.last = max(w.last, s.Number)
	}

	w.o.Turn.Saw(w.last)
	if w.o.Bare {
		return nil
	}

	trusts := Trusts(w.dir, w.o.TrustUIDs)
	first := true
	for _, s := range slices.Backward(all) {
		if !trusts(s.UID) {
			continue
		}

		found, err := w.scan(s)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrNotRegular) {
			continue // aged or swapped meanwhile
		}

		if err != nil {
			return err
		}

		if !found.mine {
			continue
		}

		if first { // Name and Bytes tell where the last line is, also when nothing is resumed
			w.name, w.size, first = Plain(s.Name), found.end, false
		}

		if s.Number == w.last && !s.Compressed && s.Links == 1 && !w.ended && found.end < w.o.Limit {
			w.reopen(s, found)
		}

		if found.complete {
			break
		}
	}

	w.allWritten()
	return nil
}

// found is what scan learns of one segment.
type found struct {
	mine     bool        // of this incarnation
	complete bool        // its identity line says where the rings began: older ones tell nothing new
	end      int64       // after the last '\n'
	torn     int64       // bytes after it
	segment  string      // its id
	meta     record.Meta // the last one, without Segment
}

// scan reads one segment; of another incarnation's only the first line.
func (w *Writer) scan(s Info) (found, error) {
	var f found
	r, err := OpenReader(filepath.Join(w.dir, s.Name))
	if err != nil {
		return f, err
	}
	defer r.Close()
	line, _, err := r.Next()
	if errors.Is(err, io.EOF) {
		return f, nil
	}

	if err != nil {
		return f, err
	}

	if t, err := w.parser.Parse(line); err != nil || t != record.LineMeta || !w.own(w.parser.Meta) {
		return f, nil
	}

	f.mine, f.segment, f.meta = true, w.parser.Meta.Segment, w.parser.Meta
	var first struct {
		Next map[uint32]uint64 `json:"next"` // not of the meta: the writer's own business
	}
	if err := json.Unmarshal(line, &first); err == nil && first.Next != nil {
		f.complete = true
		for ring, next := range first.Next {
			w.accept(ring, next-1) // of 0 that is no number
		}
	}

	for {
		line, _, err := r.Next()
		if errors.Is(err, io.EOF) {
			f.end, f.torn = r.Offset(), r.Torn()
			return f, nil
		}

		if err != nil {
			return f, err
		}

		switch t, err := w.parser.Parse(line); {
		case err != nil: // a damaged line: its reader counts it
		case t == record.LineRecord:
			w.accept(w.parser.Record.Ring, w.parser.Record.Seq)
		case t == record.LineEnd:
			w.ended = true
		case t == record.LineMeta:
			f.meta = w.parser.Meta
		}
	}
}

// own reports whether an identity is this writer's: a process keeps its incarnation, and may be told
// another job or rank, which is another directory.
func (w *Writer) own(m record.Meta) bool {
	return m.Incarnation == w.meta.Incarnation && m.Job == w.meta.Job && m.Rank == w.meta.Rank
}

// reopen appends to an existing segment of ours, its torn tail cut off. Where that
// does not work a fresh segment does as well.
func (w *Writer) reopen(s Info, f found) {
	file, err := w.o.FS.Append(filepath.Join(w.dir, s.Name))
	if err != nil {
		return
	}

	if !same(file, s) {
		file.Close()
		return
	}

	if f.torn > 0 {
		err := file.Truncate(f.end)
		if err == nil {
			err = file.Sync()
		}

		if err != nil {
			file.Close()
			return
		}
	}

	w.file, w.name, w.segment, w.size = file, s.Name, f.segment, f.end
	w.dirty, w.dirDirty = true, true // what a killed process wrote may not be synced
	f.meta.Format, f.meta.Segment = record.Format, ""
	if len(w.meta.Groups) == 0 {
		w.meta.Groups = f.meta.Groups // learnt before the restart
	}

	line, old := w.meta.AppendLine(nil), f.meta.AppendLine(nil)
	w.learnt = string(line) != string(old)
}

// same reports whether the open file is still the one that was read, and has no
// second name: what is behind another name is not ours to change.
func same(file File, s Info) bool {
	st, err := file.Stat()
	if err != nil {
		return false
	}

	sys := st.Sys().(*syscall.Stat_t)
	return sys.Ino == s.Inode && uint64(sys.Dev) == s.Device && sys.Nlink == 1
}
