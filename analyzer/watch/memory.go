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
	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/schemas/row"
)

// memory is all that is kept of a job over restarts. Its exported fields, and those
// of what they point at, are saved as they are; the engine saves itself.
type memory struct {
	Job     string
	Feed    *feed
	Cursor  []byte        // of the source
	Stated  []statement   // what was published last
	Unsent  []row.Verdict // decided, not yet acknowledged by the sink
	LastNs  int64         // start of the newest step that was judged
	Newest  int64         // start of the newest row that was read
	Changes uint64
	Moved   time.Time // when rows came last

	engine *detect.Engine // nil before the first step
}

// stateMagic begins a state file: a checksum of the rest follows, then the rest: a gob
// stream of the version and a stateBody, and the engine's own stream.
const stateMagic = "laggard-watch-state\n"

// stateVersion is the version of what stands before the engine; another one is not
// read. It rises with every change of a saved type or of what it means.
const stateVersion = 2

// stateBody is a memory and what pointers tell in it: eras with one layout share it,
// and one of them is the engine's.
type stateBody struct {
	Memory  *memory
	Layouts []*frame.Layout // of the eras, each once, without the engine's
	Eras    []int           // of each era: index into Layouts, -1 = the engine's
	Engine  bool            // an engine follows
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

const stateHead = len(stateMagic) + crc32.Size

// encode returns the memory as a state file.
func (m *memory) encode() ([]byte, error) {
	var b bytes.Buffer
	b.WriteString(stateMagic)
	b.Write(make([]byte, crc32.Size))
	body := stateBody{Memory: m, Engine: m.engine != nil}
	body.Layouts, body.Eras = m.layouts()
	enc := gob.NewEncoder(&b)
	err := errors.Join(enc.Encode(stateVersion), enc.Encode(&body))
	if err == nil && m.engine != nil {
		err = m.engine.Save(&b)
	}
	if err != nil {
		return nil, fmt.Errorf("encode state: %w", err)
	}
	data := b.Bytes()
	binary.LittleEndian.PutUint32(data[len(stateMagic):], crc32.Checksum(data[stateHead:], castagnoli))
	return data, nil
}

// layouts lists the layouts of the eras, and says which era has which.
func (m *memory) layouts() (list []*frame.Layout, of []int) {
	at := map[*frame.Layout]int{}
	if m.engine != nil {
		at[m.engine.Layout()] = -1
	}
	for _, e := range m.Feed.Roster.Eras {
		k, ok := at[e.layout]
		if !ok {
			k = len(list)
			at[e.layout], list = k, append(list, e.layout)
		}
		of = append(of, k)
	}
	return list, of
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
	m := &memory{Feed: &feed{Roster: &roster{Ranks: map[uint32][]*process{}}}}
	body := stateBody{Memory: m}
	if err := dec.Decode(&body); err != nil {
		return nil, fmt.Errorf("%w: %w", detect.ErrState, err)
	}
	if body.Engine {
		var err error
		if m.engine, err = detect.Restore(r, cfg); err != nil {
			return nil, err
		}
	}
	if err := m.link(&body); err != nil {
		return nil, fmt.Errorf("%w: %w", detect.ErrState, err)
	}
	if err := m.Feed.check(); err != nil {
		return nil, fmt.Errorf("%w: %w", detect.ErrState, err)
	}
	return m, nil
}

// link gives each era its layout.
func (m *memory) link(body *stateBody) error {
	eras := m.Feed.Roster.Eras
	if len(body.Eras) != len(eras) {
		return fmt.Errorf("%d layouts of %d eras", len(body.Eras), len(eras))
	}
	for _, l := range body.Layouts {
		if !l.Valid() {
			return errors.New("not a layout")
		}
	}
	for i, k := range body.Eras {
		switch {
		case k >= 0 && k < len(body.Layouts):
			eras[i].layout = body.Layouts[k]
		case k == -1 && m.engine != nil:
			eras[i].layout = m.engine.Layout()
		default:
			return fmt.Errorf("era %d has layout %d of %d", i, k, len(body.Layouts))
		}
	}
	return nil
}

// mostRank bounds the rank numbers of a state: tables are as long as the highest.
const mostRank = 1 << 24

// check reports lists of a feed that was read from a file which have not the length
// that the others expect, and processes without what they need.
func (f *feed) check() error {
	r := f.Roster
	n := len(r.Rows)
	for _, k := range r.Rows {
		if k < 0 || k >= mostRank {
			return fmt.Errorf("rank %d", k)
		}
	}
	for i := range r.Eras {
		if len(r.Eras[i].layout.Ranks) != n {
			return fmt.Errorf("a layout has %d ranks, want %d", len(r.Eras[i].layout.Ranks), n)
		}
	}
	if len(r.Order) != len(r.Ranks) {
		return fmt.Errorf("%d ranks in order, want %d", len(r.Order), len(r.Ranks))
	}
	for rank, list := range r.Ranks {
		for _, p := range list {
			if p.Life == nil || p.Rank != rank {
				return fmt.Errorf("a process of rank %d is incomplete", rank)
			}
		}
	}
	for _, c := range f.Pending {
		if err := c.check(n); err != nil {
			return err
		}
	}
	for i := range f.Recent {
		if len(f.Recent[i].Owner) > n {
			return fmt.Errorf("a column of %d ranks, want %d", len(f.Recent[i].Owner), n)
		}
	}
	if len(f.Missed) > n || len(f.Seen) > n || len(f.Recent) > recentColumns || f.Next < 0 || f.Next >= recentColumns {
		return errors.New("the feed's lists are too long")
	}
	return nil
}

func (c *column) check(n int) error {
	ok := len(c.Owner) == n && c.StartRow < n
	for _, v := range c.V {
		ok = ok && (v == nil || len(v) == n)
	}
	if !ok {
		return fmt.Errorf("a column of %d ranks, want %d", len(c.Owner), n)
	}
	return nil
}
