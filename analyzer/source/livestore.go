package source

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/schemas/topology"
	"github.com/laggard-dev/laggard/writer/segment"
)

// windowRows is about how many rows of a store are read at a time, overlap how
// far before the newest start rows are read once more: what comes later than
// that has missed its step anyway (feed.DefaultLag), with clocks a minute apart.
const (
	windowRows = 1 << 20
	overlap    = int64(3 * time.Minute)
)

// storeReader is what the readers of stores have in common: what is stored is finished, and is
// handed over by windows of start times.
type storeReader struct {
	o        Options
	job      string
	topology *topology.File
	sign     string // tells whether the table of ranks that was handed over has changed
	comms    bool   // communications are of use

	// The rows of a first look are those of the whole job: windows bound what is held of them.
	from, width    int64 // windows of the look at hand
	window, number int
}

// newStoreReader reads the given topology once: a file that is wrong is an error before any row is.
func newStoreReader(o Options, job string) (r storeReader, err error) {
	r.o, r.job = o, job
	r.topology, err = o.givenTopology()
	return r, err
}

// cut cuts the time from the first to the last of so many rows into windows.
func (r *storeReader) cut(rows, first, last int64) {
	r.window, r.from = 0, first
	r.number = int(max(1, rows/windowRows))
	r.width = max(1, (last-first)/int64(r.number))
}

// identities hands the table of ranks over. Without groups in it or in the topology roles must
// come from who talks to whom.
func (r *storeReader) identities(ranks []row.Rank, sign string, take func(*row.Rows) error) error {
	r.sign = sign
	r.comms = (r.topology == nil || len(r.topology.Groups) == 0) && !slices.ContainsFunc(ranks, func(r row.Rank) bool { return len(r.Groups) > 0 })
	return take(&row.Rows{Ranks: ranks})
}

// Topology implements feed.Reader.
func (r *storeReader) Topology() *topology.File { return r.topology }

// Drain implements feed.Reader: what is stored is finished.
func (r *storeReader) Drain() {}

// Damaged implements feed.Reader: what can't be read in a store is an error of Read.
func (r *storeReader) Damaged() []string { return nil }

// cursor is what a reader's Cursor says, as JSON: one of these, by what is followed.
type cursor struct {
	Since int64                    `json:"since,omitempty"` // ClickHouse: the newest start that was handed over, ns
	Done  []string                 `json:"done,omitempty"`  // Parquet: the files that were handed over, sorted
	Ranks map[int]segment.Position `json:"ranks,omitempty"` // segments: where each rank's rollup goes on
}

// goOn reads a cursor, nil from the beginning, where of names what is followed.
func goOn(of string, text []byte) (c cursor, err error) {
	if text == nil {
		return c, nil
	}

	if err := json.Unmarshal(text, &c); err != nil {
		return c, fmt.Errorf("go on in %s: %w", of, err)
	}

	return c, nil
}

// text writes a cursor.
func (c cursor) text() []byte {
	b, err := json.Marshal(c)
	if err != nil {
		panic("BUG: marshal cursor: " + err.Error())
	}

	return b
}
