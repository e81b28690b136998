package watch

import (
	"bytes"
	"encoding/binary"
	"encoding/gob"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/laggard-dev/laggard/analyzer/detect"
	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
)

// stateMagic begins a state file: a checksum of the rest follows, then the rest: a gob
// stream of the version and the job's memory, and the engine's own stream.
const stateMagic = "laggard-watch-state\n"

// stateVersion is the version of what stands before the engine; another one is not
// read. It rises with every change of a saved type or of what it means.
const stateVersion = 13

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

const stateHead = len(stateMagic) + crc32.Size

// encode returns the job's memory as a state file.
func (j *job) encode() ([]byte, error) {
	var b bytes.Buffer
	b.WriteString(stateMagic)
	// Room for the checksum, which is known last.
	b.Write(make([]byte, crc32.Size))
	j.Judged = j.engine.Layout() != nil
	enc := gob.NewEncoder(&b)
	err := errors.Join(enc.Encode(stateVersion), enc.Encode(j))
	if err == nil && j.Judged {
		err = j.engine.Save(&b)
	}

	if err != nil {
		return nil, fmt.Errorf("encode state: %w", err)
	}

	data := b.Bytes()
	binary.LittleEndian.PutUint32(data[len(stateMagic):], crc32.Checksum(data[stateHead:], castagnoli))
	return data, nil
}

// decode makes a job of a state file, or returns detect.ErrState: it is of another
// version, cut, damaged or made up. The engine gets those thresholds.
func decode(data []byte, cfg threshold.Config) (*job, error) {
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

	j := newJob("", cfg)
	if err := dec.Decode(j); err != nil {
		return nil, fmt.Errorf("%w: %w", detect.ErrState, err)
	}

	if j.Judged {
		var err error
		if j.engine, err = detect.Restore(r, cfg); err != nil {
			return nil, err
		}
	}

	// The feed goes on in the layout that the engine saw last: a new one would tell it of a change.
	if err := j.Feed.Restore(j.engine.Layout()); err != nil {
		return nil, fmt.Errorf("%w: %w", detect.ErrState, err)
	}

	return j, nil
}
