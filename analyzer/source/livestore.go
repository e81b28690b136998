package source

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/laggard-dev/laggard/analyzer/feed"
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

// storeReader follows a job in a store: what is stored is finished, and is handed over by windows
// of start times.
type storeReader struct {
	s        tables
	o        Options
	job      string
	topology *topology.File
	known    string // sign of the table of ranks that was handed over
	comms    bool   // communications are of use
	at       cursor // behind what was handed over

	// The rows of a first look are those of the whole job: windows bound what is held of them.
	from, width    int64 // windows of the look at hand
	window, number int
}

// follow implements Source. It reads the given topology once: a file that is wrong is an error before
// any row is.
func (s stored) follow(o Options, job string, from []byte) (feed.Reader, error) {
	r := &storeReader{s: s, o: o, job: job}
	var err error
	if r.at, err = goOn(s.name(), from); err == nil {
		r.topology, err = o.givenTopology()
	}

	return r, err
}

// Read implements feed.Reader: what is stored is finished, and waits for nothing.
func (r *storeReader) Read(ctx context.Context, _ feed.Stage, take func(*row.Rows) error) (bool, error) {
	if r.window == r.number {
		if err := r.identities(ctx, take); err != nil {
			return false, err
		}

		rows, first, last, err := r.s.look(ctx, r)
		if err != nil || rows == 0 {
			return false, err
		}

		r.window, r.from = 0, first
		r.number = int(max(1, rows/windowRows))
		r.width = max(1, (last-first)/int64(r.number))
	}

	from := r.from + int64(r.window)*r.width
	to := from + r.width
	r.window++
	if r.window == r.number {
		// Division rounds down: the last window takes what is left over.
		to = math.MaxInt64
	}

	rows, err := r.s.read(ctx, r, from, to)
	if err == nil {
		err = take(rows)
	}

	if err != nil {
		r.window, r.number = 0, 0 // from the beginning next time
		return false, err
	}

	r.at.taken(rows, r.window == r.number)
	return r.window < r.number, nil
}

// identities hands the table of ranks over when it changed. Without groups in it or in the topology
// roles must come from who talks to whom.
func (r *storeReader) identities(ctx context.Context, take func(*row.Rows) error) error {
	sign, err := r.s.sign(ctx, r.job)
	if err != nil || sign == r.known {
		return err
	}

	ranks, err := r.s.ranks(ctx, r.job, r.o)
	if err != nil {
		return err
	}

	r.known = sign
	r.comms = (r.topology == nil || len(r.topology.Groups) == 0) && !slices.ContainsFunc(ranks, func(r row.Rank) bool { return len(r.Groups) > 0 })
	return take(&row.Rows{Ranks: ranks})
}

// Topology implements feed.Reader.
func (r *storeReader) Topology() *topology.File { return r.topology }

// Damaged implements feed.Reader: what can't be read in a store is an error of Read.
func (r *storeReader) Damaged() []string { return nil }

// Cursor implements feed.Reader.
func (r *storeReader) Cursor() []byte { return r.at.text() }

// cursor is what a reader's Cursor says, as JSON, by what is followed.
type cursor struct {
	Since int64                    `json:"since,omitempty"` // a store: the newest start that was handed over, ns
	Done  []string                 `json:"done,omitempty"`  // Parquet: the files that were handed over, sorted
	Ranks map[int]segment.Position `json:"ranks,omitempty"` // segments: where each rank's rollup goes on

	// What the last look found, and of ClickHouse the one whose rows were all handed over.
	found       []file
	sight, seen string
}

// taken moves the cursor behind rows that were taken, which with the last window are all that look found.
func (c *cursor) taken(rows *row.Rows, last bool) {
	for i := range rows.Steps {
		c.Since = max(c.Since, rows.Steps[i].StartNs)
	}

	if !last {
		return
	}

	for i := range c.found {
		c.Done = append(c.Done, c.found[i].name())
	}

	slices.Sort(c.Done)
	c.seen, c.found = c.sight, nil
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
func (c *cursor) text() []byte {
	b, err := json.Marshal(c)
	if err != nil {
		panic("BUG: marshal cursor: " + err.Error())
	}

	return b
}
