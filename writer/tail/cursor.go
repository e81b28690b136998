package tail

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/laggard-dev/laggard/schemas/record"
)

// Key names a stream in a cursor.
type Key struct {
	Job  string
	Rank int
}

// cursorFormat is the value of cursorFile.Format.
const cursorFormat = "laggard-cursor/1"

// maxCursor bounds a cursor file: the state of a stream is some kilobytes.
const maxCursor = 256 << 20

// cursorFile is a cursor on disk: one JSON object, and after its '\n' the CRC32C
// of it in hex. It is a cache: without it everything is read again from the
// oldest segment, and the store says what it has.
type cursorFile struct {
	Format  string         `json:"format"`
	Store   string         `json:"store"`           // what the positions are acknowledged by
	Shard   string         `json:"shard,omitempty"` // of the store, that rows go to
	Streams []cursorStream `json:"streams"`
}

type cursorStream struct {
	Job     string    `json:"job"`
	Rank    int       `json:"rank"`
	Segment string    `json:"segment"`
	ID      record.ID `json:"id"`
	Offset  int64     `json:"offset"`
	State   string    `json:"state,omitempty"`
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// tempPrefix begins the name of a cursor that is being written.
const tempPrefix = ".cursor-"

// sweep removes what a writer that was killed left behind in dir: one that lives holds
// a lock on its file. What can't be removed is the next one's.
func sweep(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if !e.Type().IsRegular() || !strings.HasPrefix(e.Name(), tempPrefix) {
			continue
		}
		path := filepath.Join(dir, e.Name())
		f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
		if err != nil {
			continue
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			_ = os.Remove(path)
		}
		_ = f.Close() // opened for reading
	}
}

// LoadCursor reads the positions acknowledged by a store and the shard of it, and sweeps its folder. A
// file that is missing is no error, nor one of another store; one that is damaged is an error that may
// be logged: the positions are then none.
func LoadCursor(path, store string) (positions map[Key]Position, shard string, err error) {
	sweep(filepath.Dir(path))
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", fmt.Errorf("read cursor: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, "", fmt.Errorf("read cursor: %w", err)
	}
	if !info.Mode().IsRegular() || info.Size() > maxCursor {
		return nil, "", fmt.Errorf("read cursor %s: not a file of at most %d bytes", path, maxCursor)
	}
	b := make([]byte, info.Size())
	if _, err := f.ReadAt(b, 0); err != nil {
		return nil, "", fmt.Errorf("read cursor: %w", err)
	}
	return parseCursor(b, store)
}

func parseCursor(b []byte, store string) (positions map[Key]Position, shard string, err error) {
	const tail = 1 + 8 + 1 // "\n", the sum in hex, "\n"
	if len(b) < tail {
		return nil, "", errors.New("read cursor: too short")
	}
	body, sum := b[:len(b)-tail], string(b[len(b)-tail+1:len(b)-1])
	if want := fmt.Sprintf("%08x", crc32.Checksum(body, castagnoli)); sum != want {
		return nil, "", fmt.Errorf("read cursor: checksum %s, want %s", sum, want)
	}
	var c cursorFile
	if err := json.Unmarshal(body, &c); err != nil {
		return nil, "", fmt.Errorf("read cursor: %w", err)
	}
	if c.Format != cursorFormat || c.Store != store {
		return nil, "", nil
	}
	m := make(map[Key]Position, len(c.Streams))
	for _, s := range c.Streams {
		if s.Offset >= 0 {
			m[Key{s.Job, s.Rank}] = Position{Segment: s.Segment, ID: s.ID, Offset: s.Offset, State: s.State}
		}
	}
	return m, c.Shard, nil
}

// SaveCursor replaces a cursor durably: after a crash the file is the old or the
// new one.
func SaveCursor(path, store, shard string, positions map[Key]Position) (err error) {
	c := cursorFile{Format: cursorFormat, Store: store, Shard: shard}
	for k, p := range positions {
		c.Streams = append(c.Streams, cursorStream{k.Job, k.Rank, p.Segment, p.ID, p.Offset, p.State})
	}
	body, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("save cursor: %w", err)
	}
	body = fmt.Appendf(body, "\n%08x\n", crc32.Checksum(body, castagnoli))
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("save cursor: %w", err)
	}
	f, err := os.CreateTemp(dir, tempPrefix+"*")
	if err != nil {
		return fmt.Errorf("save cursor: %w", err)
	}
	// The lock goes with the file's last name, so a sweep never takes one away.
	if err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil {
		_, err = f.Write(body)
	}
	if err = errors.Join(err, f.Sync()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("save cursor: %w", errors.Join(err, os.Remove(f.Name())))
	}
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("save cursor: %w", err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("save cursor: %w", err)
	}
	return nil
}
