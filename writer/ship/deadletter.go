package ship

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/laggard-dev/laggard/schemas/record"
)

// deadLetters is the file of rows that the store refuses, and of lines that no row
// is made of: one JSON object a line with the table, the reason and the row.
type deadLetters struct {
	path string

	mu       sync.Mutex         // guards what follows, but refusedInARow is Run's goroutine's
	file     *os.File           // nil until the first row
	ids      map[record.ID]bool // by letterID
	unsynced bool
	lines    int // kept by Refuse
	// refusedInARow counts refusals since the last batch that was stored.
	refusedInARow int
}

// letterID names a row by its table and its hash (Batch.sum), or a line by linesTable and its id. It is the
// ID of a batch of that row alone.
func letterID(table string, id uint64) record.ID { return record.ID(uint64(newHash(table)) + id) }

// letter is a line of the file: a row as JSON, with the table that refused it, the batch that it was in, and the
// store's own words. A person may mend and insert it.
type letter struct {
	ID     record.ID       `json:"id"` // of the row's identity, so that it is kept once
	Table  string          `json:"table"`
	Batch  record.ID       `json:"batch"`
	Reason string          `json:"reason"`
	AtNs   int64           `json:"at_ns"`
	Row    json.RawMessage `json:"row"`
}

// maxLetter bounds a line when the file is read back.
const maxLetter = 16 << 20

// openDeadLetters reads which rows are in the file, so that none is kept twice. The file is opened for
// writing by the first one that is.
func openDeadLetters(path string) (*deadLetters, error) {
	d := &deadLetters{path: path, ids: map[record.ID]bool{}}
	if path == "" {
		return d, nil
	}

	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return d, nil
	}

	if err != nil {
		return nil, fmt.Errorf("open dead letters: %w", err)
	}

	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, maxLetter)
	for lines.Scan() {
		var l letter
		if json.Unmarshal(lines.Bytes(), &l) == nil { // a torn line is of no use and does no harm
			d.ids[letterID(l.Table, uint64(l.ID))] = true
		}
	}

	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read dead letters %s: %w", path, err)
	}

	return d, nil
}

// has reports whether a row is a dead letter already: it counts as stored then.
func (d *deadLetters) has(table string, sum uint64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ids[letterID(table, sum)]
}

// linesTable stands for the table in a letter of Refuse.
const linesTable = "lines"

// maxLines bounds the lines that a process keeps as letters: of a file of nothing
// but garbage the first are enough to see what it is. All are counted by the caller.
const maxLines = 10_000

// Refuse keeps a line that no row is made of as a dead letter, once, under an id of
// its place. It is durable before a Put that follows is acknowledged. It may be
// called from any goroutine. A letter that can't be written is logged: the caller
// has counted the line.
func (s *Shipper) Refuse(id record.ID, line []byte, reason string) {
	s.o.Logger.Debug("line refused", "reason", reason)
	if err := s.dead.refuse(id, line, reason); err != nil {
		s.o.Logger.Error("line refused and not kept", "reason", reason, "err", err)
	}
}

// refuse keeps a line once, whichever number of times it is read again, and at most maxLines of them.
func (d *deadLetters) refuse(id record.ID, line []byte, reason string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	key := letterID(linesTable, uint64(id))
	if d.path == "" || d.ids[key] || d.lines >= maxLines {
		return nil
	}

	l := letter{ID: id, Table: linesTable, Reason: reason, AtNs: time.Now().UnixNano(), Row: marshal(string(line))}
	if err := d.write(l.appendTo(nil)); err != nil {
		return err
	}

	d.ids[key], d.unsynced = true, true
	d.lines++
	return nil
}

// sync makes the lines durable.
func (d *deadLetters) sync() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.unsynced {
		return nil
	}

	if err := d.file.Sync(); err != nil {
		return fmt.Errorf("keep dead letters: %w", err)
	}

	d.unsynced = false
	return nil
}

// keep writes the rows of b with the reason and makes them durable.
func (d *deadLetters) keep(b *Batch, cause *Error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []byte
	for i := range b.Len() {
		sum := b.sum(i)
		key := letterID(b.Table, sum)
		if d.ids[key] {
			continue
		}

		d.ids[key] = true
		l := letter{
			ID: record.ID(sum), Table: b.Table, Batch: b.ID,
			Reason: cause.Err.Error(), AtNs: time.Now().UnixNano(), Row: b.rowJSON(i),
		}
		out = l.appendTo(out)
	}

	if d.path == "" || len(out) == 0 {
		return nil
	}

	if err := d.write(out); err != nil {
		return err
	}

	if err := d.file.Sync(); err != nil {
		return fmt.Errorf("keep dead letter: %w", err)
	}

	return nil
}

// appendTo appends the letter as a line.
func (l *letter) appendTo(dst []byte) []byte { return append(append(dst, marshal(l)...), '\n') }

// marshal returns what a letter is made of as JSON.
func marshal(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic("BUG: marshal dead letter: " + err.Error())
	}

	return text
}

// write appends lines to the file.
func (d *deadLetters) write(lines []byte) error {
	err := d.open()
	if err == nil {
		_, err = d.file.Write(lines)
	}

	if err != nil {
		return fmt.Errorf("keep dead letter: %w", err)
	}

	return nil
}

// open opens the file, or makes it. d.mu is held.
func (d *deadLetters) open() error {
	if d.file != nil {
		return nil
	}

	if err := os.MkdirAll(filepath.Dir(d.path), 0o755); err != nil {
		return err
	}

	f, err := os.OpenFile(d.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|unix.O_NOFOLLOW, 0o640)
	if err != nil {
		return err
	}

	// A line torn by a crash must not swallow the next one.
	if info, err := f.Stat(); err == nil && info.Size() > 0 {
		if _, err := f.WriteString("\n"); err != nil {
			return errors.Join(err, f.Close())
		}
	}

	d.file = f
	return nil
}

// close closes the file; a later letter opens it again.
func (d *deadLetters) close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.file == nil {
		return nil
	}

	f := d.file
	d.file = nil
	return f.Close()
}
