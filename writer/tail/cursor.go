package tail

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/laggard-dev/laggard/schemas/keep"
	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/writer/segment"
)

// cursorFormat is the value of cursorFile.Format.
const cursorFormat = "laggard-cursor/1"

// maxCursor bounds a cursor file: the state of a stream is some kilobytes.
const maxCursor = 256 << 20

// cursorFile is a cursor on disk: one JSON object, and after its '\n' the CRC32C
// of it in hex. It is a cache: without it everything is read again from the
// oldest segment, and the store says what it has.
type cursorFile struct {
	Format  string `json:"format"`
	Store   string `json:"store"`           // what the positions are acknowledged by
	Shard   string `json:"shard,omitempty"` // of the store, that rows go to
	Streams []struct {
		record.RankID
		segment.Position
	} `json:"streams"`
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// LoadCursor reads the positions acknowledged by a store and the shard of it, and sweeps its folder. A
// file that is missing is no error, nor one of another store; one that is damaged is an error that may
// be logged: the positions are then none.
func LoadCursor(path, store string) (positions map[record.RankID]segment.Position, shard string, err error) {
	_ = keep.Sweep(filepath.Dir(path)) // what can't be removed is the next one's
	b, err := keep.Read(path, maxCursor)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", nil
	}

	if err != nil {
		return nil, "", fmt.Errorf("read cursor: %w", err)
	}

	return parseCursor(b, store)
}

// parseCursor reads a cursor's bytes. A sum that is wrong is an error; another format or store is none.
func parseCursor(b []byte, store string) (positions map[record.RankID]segment.Position, shard string, err error) {
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

	m := make(map[record.RankID]segment.Position, len(c.Streams))
	for _, s := range c.Streams {
		if s.Offset >= 0 {
			m[s.RankID] = s.Position
		}
	}

	return m, c.Shard, nil
}

// SaveCursor replaces a cursor durably: after a crash the file is the old or the
// new one.
func SaveCursor(path, store, shard string, positions map[record.RankID]segment.Position) (err error) {
	c := cursorFile{Format: cursorFormat, Store: store, Shard: shard}
	for k, p := range positions {
		c.Streams = append(c.Streams, struct {
			record.RankID
			segment.Position
		}{k, p})
	}

	body, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("save cursor: %w", err)
	}

	body = fmt.Appendf(body, "\n%08x\n", crc32.Checksum(body, castagnoli))
	err = os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = keep.Write(path, 0o600, body)
	}

	if err != nil {
		return fmt.Errorf("save cursor: %w", err)
	}

	return nil
}
