package watch

import (
	"bytes"
	"encoding/binary"
	"encoding/gob"
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/laggard-dev/laggard/analyzer/detect"
	"github.com/laggard-dev/laggard/analyzer/feed"
	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/schemas/row"
)

// memory is all that is kept of a job over restarts. Its exported fields, and those
// of what they point at, are saved as they are; the engine saves itself.
type memory struct {
	Job     string
	Feed    *feed.Feed
	Cursor  []byte        // of the source
	Stated  []statement   // what was published last
	Unsent  []row.Verdict // decided, not yet acknowledged by the sink
	LastNs  int64         // start of the newest step that was judged
	Newest  int64         // start of the newest row that was read
	Changes uint64
	Moved   time.Time // when rows came last
	Judged  bool      // a step was: the engine follows in a state file

	engine *detect.Engine // nil before the first step
}

// stateMagic begins a state file: a checksum of the rest follows, then the rest: a gob
// stream of the version and the memory, and the engine's own stream.
const stateMagic = "laggard-watch-state\n"

// stateVersion is the version of what stands before the engine; another one is not
// read. It rises with every change of a saved type or of what it means.
const stateVersion = 12

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

const stateHead = len(stateMagic) + crc32.Size

// encode returns the memory as a state file.
func (m *memory) encode() ([]byte, error) {
	var b bytes.Buffer
	b.WriteString(stateMagic)
	// Room for the checksum, which is known last.
	b.Write(make([]byte, crc32.Size))
	m.Judged = m.engine != nil
	enc := gob.NewEncoder(&b)
	err := errors.Join(enc.Encode(stateVersion), enc.Encode(m))
	if err == nil && m.Judged {
		err = m.engine.Save(&b)
	}

	if err != nil {
		return nil, fmt.Errorf("encode state: %w", err)
	}

	data := b.Bytes()
	binary.LittleEndian.PutUint32(data[len(stateMagic):], crc32.Checksum(data[stateHead:], castagnoli))
	return data, nil
}

// decode makes a memory of a state file, or returns detect.ErrState: it is of another
// version, cut, damaged or made up. The engine gets those thresholds.
func decode(data []byte, cfg detect.Config) (*memory, error) {
	if len(data) < stateHead || string(data[:len(stateMagic)]) != stateMagic {
		return nil, fmt.Errorf("%w: it does not begin like one", detect.ErrState)
	}

	if crc32.Checksum(data[stateHead:], castagnoli) != binary.LittleEndian.Uint32(data[len(stateMagic):]) {
		return nil, fmt.Errorf("%w: its checksum is wrong, it is cut or damaged", detect.ErrState)
	}

	r := bytes.NewReader(data[stateHead:]) // a ByteReader: the first stream leaves the second
	dec := gob.NewDecoder(r)
	var version int
	if err := dec.Decode(&version); err != nil {
		return nil, fmt.Errorf("%w: %w", detect.ErrState, err)
	}

	if version != stateVersion {
		return nil, fmt.Errorf("%w: version %d, want %d", detect.ErrState, version, stateVersion)
	}

	// The map is there: gob makes one as large as the stream says.
	m := &memory{Feed: feed.New()}
	if err := dec.Decode(m); err != nil {
		return nil, fmt.Errorf("%w: %w", detect.ErrState, err)
	}

	if m.Judged {
		var err error
		if m.engine, err = detect.Restore(r, cfg); err != nil {
			return nil, err
		}
	}

	// The feed goes on in the layout that the engine saw last: a new one would tell it of a change.
	var last *frame.Layout
	if m.engine != nil {
		last = m.engine.Layout()
	}

	if err := m.Feed.Restore(last); err != nil {
		return nil, fmt.Errorf("%w: %w", detect.ErrState, err)
	}

	return m, nil
}
