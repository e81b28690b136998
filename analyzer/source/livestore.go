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
	news     news
	o        Options
	job      string
	topology *topology.File
	known    string // sign of the table of ranks that was handed over
	comms    bool   // communications are of use

	// The rows of a first look are those of the whole job: windows bound what is held of them.
	from, width    int64 // windows of the look at hand
	window, number int
}

// news are the rows of a job that were not handed over yet. Communications may be of no use.
type news interface {
	// look finds out how many there are, and from when to when they start. After a window that was
	// not taken it finds the same again.
	look(ctx context.Context, communications bool) (rows, first, last int64, err error)
	// read returns those that start in [from, to), the steps by their starts. math.MaxInt64 is no end:
	// what came since the look may be read with it.
	read(ctx context.Context, from, to int64, communications bool) (*row.Rows, error)
	// taken says that rows of read were taken, and with the last window all that look found.
	taken(rows *row.Rows, last bool)
	cursor() cursor
}

// newStoreReader reads the given topology once: a file that is wrong is an error before any row is.
func newStoreReader(s tables, n news, o Options, job string) (*storeReader, error) {
	given, err := o.givenTopology()
	return &storeReader{s: s, news: n, o: o, job: job, topology: given}, err
}

// Read implements feed.Reader: what is stored is finished, and waits for nothing.
func (r *storeReader) Read(ctx context.Context, _ feed.Stage, take func(*row.Rows) error) (bool, error) {
	if r.window == r.number {
		if err := r.identities(ctx, take); err != nil {
			return false, err
		}

		rows, first, last, err := r.news.look(ctx, r.comms)
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

	rows, err := r.news.read(ctx, from, to, r.comms)
	if err == nil {
		err = take(rows)
	}

	if err != nil {
		r.window, r.number = 0, 0 // from the beginning next time
		return false, err
	}

	r.news.taken(rows, r.window == r.number)
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
func (r *storeReader) Cursor() []byte { return r.news.cursor().text() }

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
