package segment

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/laggard-dev/laggard/schemas/record"
)

// create makes the next segment. An empty one is kept over failures to write its
// first line, so that a full disk does not use up names.
func (w *Writer) create() error {
	f, n, err := Create(w.o.FS, w.dir, w.o.Now(), w.last)
	if err != nil {
		return err
	}

	w.file, w.name, w.last = f, strconv.FormatInt(n, 10), n
	w.o.Turn.Saw(n)
	w.size, w.head, w.fresh, w.dirty, w.dirDirty = 0, 0, !w.o.Bare, false, true
	w.segment = newID()
	return nil
}

// Create makes a segment in a rank directory, named by the clock: later than every name
// there, and than a number that is known of before.
func Create(disk FS, rankDir string, now time.Time, last int64) (File, int64, error) {
	largest, err := largest(rankDir)
	if errors.Is(err, fs.ErrNotExist) { // somebody cleaned up under us
		if err = disk.Mkdir(rankDir); err == nil {
			largest, err = -1, nil
		}
	}

	if err != nil {
		return nil, 0, fmt.Errorf("create segment: %w", err)
	}

	last = max(last, largest)
	n := max(now.Unix(), last+1, 0) // a clock that was set back must not sort it before others
	for range createTries {
		name := strconv.FormatInt(n, 10)
		if len(name) > maxDigits {
			return nil, 0, fmt.Errorf("create segment in %s: no name is left above %d: remove the file with that name", rankDir, last)
		}

		f, err := disk.Create(filepath.Join(rankDir, name))
		if errors.Is(err, fs.ErrExist) {
			n++
			continue
		}

		if err != nil {
			return nil, 0, fmt.Errorf("create segment %s: %w", filepath.Join(rankDir, name), err)
		}

		return f, n, nil
	}

	return nil, 0, fmt.Errorf("create segment in %s: no free name in %d tries", rankDir, createTries)
}

// newID returns a random segment id.
func newID() string {
	var b [8]byte
	rand.Read(b[:]) // never fails
	return record.ID(binary.LittleEndian.Uint64(b[:])).String()
}

// largest returns the largest number that a name in the directory has, -1 for none:
// of any file, whatever it is.
func largest(dir string) (int64, error) {
	d, err := openDir(dir)
	if err != nil {
		return 0, err
	}
	defer d.Close()
	most := int64(-1)
	err = eachName(d, func(name string) error {
		if n, ok := Number(name); ok {
			most = max(most, n)
		}

		return nil
	})
	return most, err
}

// SetMeta changes what is known of the incarnation, say its parallel groups. It
// stands in the open segment after the next Flush and in every later one.
func (w *Writer) SetMeta(m record.Meta) error {
	if w.closed {
		return errClosed
	}

	m.Format, m.Segment = record.Format, ""
	if m.Incarnation != w.meta.Incarnation {
		return fmt.Errorf("set identity: incarnation %s, this writer's is %s", m.Incarnation, w.meta.Incarnation)
	}

	if reflect.DeepEqual(m, w.meta) {
		return nil
	}

	if err := w.fitsIdentity(m); err != nil {
		return fmt.Errorf("set identity: %w", err)
	}

	w.meta = m
	w.learnt = !w.o.Bare
	return nil
}

// fitsIdentity leaves at least half of a segment to records.
func (w *Writer) fitsIdentity(m record.Meta) error {
	if n := len(m.AppendLine(nil)) + len(`"segment":"0123456789abcdef",`); n > maxLine || int64(n) > w.o.Limit/2 {
		return fmt.Errorf("identity: %w: %d bytes", errTooLong, n)
	}

	return nil
}

// identify writes the identity line, the first or one with news. full tells that
// the segment has no room for it.
func (w *Writer) identify() (full bool, err error) {
	line := w.identity()
	if !w.fresh && w.size+int64(len(line)) > w.o.Limit {
		return true, nil
	}

	if err := w.put(line, false); err != nil {
		return false, err
	}

	if w.fresh {
		w.head = w.size
	}

	w.fresh, w.learnt = false, false
	return false, nil
}

// identity returns the identity line. Beside the meta it says where each ring goes
// on in this segment, so that a restart needs to read the newest one only, and
// still knows it when ageing took the older ones.
func (w *Writer) identity() []byte {
	m := w.meta
	m.Segment = w.segment
	line := m.AppendLine(nil)
	if !w.fresh {
		return line
	}

	long := append(line[:len(line)-2:len(line)-2], `,"next":{`...)
	for _, ring := range slices.Sorted(maps.Keys(w.written)) {
		long = fmt.Appendf(long, `"%d":%d,`, ring, w.written[ring])
	}

	long = append(bytes.TrimSuffix(long, []byte{','}), "}}\n"...)
	if len(long) > maxLine || int64(len(long)) > w.o.Limit/2 {
		return line // thousands of rings: a restart reads older segments too
	}

	return long
}
