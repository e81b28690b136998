package source

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/schemas/topology"
)

// windowRows is about how many rows of a store are read at a time, overlap how
// far before the newest start rows are read once more: what comes later than
// that has missed its step anyway (feed.DefaultLag), with clocks a minute apart.
const (
	windowRows = 1 << 20
	overlap    = int64(3 * time.Minute)
)

// known keeps what of the ranks' table was handed over.
type known struct{ sign string }

// needsCommunications reports whether roles must come from who talks to whom.
func needsCommunications(ranks []row.Rank, topo *topology.File) bool {
	if topo != nil && len(topo.Groups) > 0 {
		return false
	}

	return !slices.ContainsFunc(ranks, func(r row.Rank) bool { return len(r.Groups) > 0 })
}

// partsReader follows the files of a job in a Parquet store.
type partsReader struct {
	s        *store
	o        Options
	job      string
	topology *topology.File
	done     map[string]bool // base names that were handed over
	ranks    known
	comms    bool // communications are of use

	batch          []part // new files, being handed over by windows of start time
	from, width    int64
	window, number int
}

type part struct {
	path, name     string
	communications bool
	rows           int64
	first, last    int64 // start_ns
}

// partsCursor is the Cursor of a Parquet store.
type partsCursor struct {
	Done []string `json:"done"`
}

func (s *store) follow(o Options, job string, cursor []byte) (Reader, error) {
	r := &partsReader{s: s, o: o, job: job, done: map[string]bool{}}
	if cursor != nil {
		var c partsCursor
		if err := json.Unmarshal(cursor, &c); err != nil {
			return nil, fmt.Errorf("go on in Parquet store %s: %w", s.dir, err)
		}

		for _, name := range c.Done {
			r.done[name] = true
		}
	}

	var err error
	r.topology, err = o.givenTopology()
	return r, err
}

// Read implements Reader.
func (r *partsReader) Read(ctx context.Context, take func(*row.Rows) error) (bool, error) {
	if r.batch == nil {
		if err := r.identities(ctx, take); err != nil {
			return false, err
		}

		if err := r.look(); err != nil || r.batch == nil {
			return false, err
		}
	}

	from := r.from + int64(r.window)*r.width
	to := from + r.width
	r.window++
	if r.window == r.number {
		to = math.MaxInt64
	}

	var rows row.Rows
	err := inOrder(ctx, len(r.batch), r.o.workers(), func(_ context.Context, i int) (*row.Rows, error) {
		p := &r.batch[i]
		if p.last < from || p.first >= to {
			return &row.Rows{}, nil
		}

		return guarded(p.path, func() (*row.Rows, error) { return p.read(r.job, from, to) })
	}, func(_ int, some *row.Rows) error {
		rows.Steps = append(rows.Steps, some.Steps...)
		rows.Communications = append(rows.Communications, some.Communications...)
		return nil
	})
	if err != nil {
		r.batch = nil // from the beginning next time
		return false, err
	}

	byStart(&rows)
	if err := take(&rows); err != nil {
		r.batch = nil
		return false, err
	}

	if r.window < r.number {
		return true, nil
	}

	for _, p := range r.batch {
		r.done[p.name] = true
	}

	r.batch = nil
	return false, nil
}

func byStart(rows *row.Rows) {
	slices.SortStableFunc(rows.Steps, func(a, b row.Step) int {
		return cmp.Or(cmp.Compare(a.StartNs, b.StartNs), cmp.Compare(a.Rank, b.Rank))
	})
}

// identities hands the table of ranks over when it changed.
func (r *partsReader) identities(ctx context.Context, take func(*row.Rows) error) error {
	paths, err := r.s.parts(row.RanksTable, r.job)
	if err != nil {
		return err
	}

	sign := ""
	for _, p := range paths {
		info, err := os.Lstat(p)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}

		if err != nil {
			return fmt.Errorf("read Parquet store: %w", err)
		}

		sign += fmt.Sprint(filepath.Base(p), info.Size(), info.ModTime().UnixNano(), ";")
	}

	if sign == r.ranks.sign {
		return nil
	}

	var info Info
	ranks, err := r.s.ranks(ctx, r.job, r.o, &info)
	if err != nil {
		return err
	}

	r.ranks.sign = sign
	r.comms = needsCommunications(ranks, r.topology)
	return take(&row.Rows{Ranks: ranks})
}

// look finds new files and cuts their time into windows.
func (r *partsReader) look() error {
	var batch []part
	total := int64(0)
	for _, table := range []string{row.StepsTable, row.CommunicationsTable} {
		if table == row.CommunicationsTable && !r.comms {
			continue
		}

		paths, err := r.s.parts(table, r.job)
		if err != nil {
			return err
		}

		for _, path := range paths {
			p := part{path: path, name: table + "/" + filepath.Base(path), communications: table == row.CommunicationsTable}
			if r.done[p.name] {
				continue
			}

			p, err := guarded(path, func() (part, error) { return p, p.measure(r.job) })
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}

			if err != nil {
				return err
			}

			batch = append(batch, p)
			total += p.rows
		}
	}

	if len(batch) == 0 {
		return nil
	}

	first, last := int64(math.MaxInt64), int64(math.MinInt64)
	for _, p := range batch {
		first, last = min(first, p.first), max(last, p.last)
	}

	r.batch, r.window, r.from = batch, 0, first
	r.number = int(max(1, total/windowRows))
	r.width = max(1, (last-first)/int64(r.number))
	return nil
}

// Topology implements Reader.
func (r *partsReader) Topology(context.Context) (*topology.File, error) { return r.topology, nil }

// Drain implements Reader: what is stored is finished.
func (r *partsReader) Drain() {}

// Damaged implements Reader: a damaged Parquet file is an error of Read.
func (r *partsReader) Damaged() []string { return nil }

// Cursor implements Reader.
func (r *partsReader) Cursor() ([]byte, error) {
	c := partsCursor{Done: make([]string, 0, len(r.done))}
	for name := range r.done {
		c.Done = append(c.Done, name)
	}

	slices.Sort(c.Done)
	b, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("write cursor: %w", err)
	}

	return b, nil
}

// Close implements Reader.
func (r *partsReader) Close() error { return nil }

// startColumns are read to find the time that a file covers.
var (
	startOfStep          = stepColumns[slices.IndexFunc(stepColumns, func(c column[row.Step]) bool { return c.name == "start_ns" })]
	startOfCommunication = communicationColumns[slices.IndexFunc(communicationColumns, func(c column[row.Communication]) bool { return c.name == "start_ns" })]
)

// measure reads the starts alone: how many rows, from when to when.
func (p *part) measure(job string) error {
	p.first, p.last = math.MaxInt64, math.MinInt64
	see := func(start int64) {
		p.first, p.last = min(p.first, start), max(p.last, start)
		p.rows++
	}
	spans, err := spansOf([]string{p.path})
	if err != nil {
		return err
	}

	for _, s := range spans {
		if p.communications {
			rows, err := readSpan(s, []column[row.Communication]{startOfCommunication}, job, nil)
			if err != nil {
				return err
			}

			for i := range rows {
				see(rows[i].StartNs)
			}

			continue
		}

		rows, err := readSpan(s, []column[row.Step]{startOfStep}, job, nil)
		if err != nil {
			return err
		}

		for i := range rows {
			see(rows[i].StartNs)
		}
	}

	return nil
}

// read returns the rows that start in [from, to).
func (p *part) read(job string, from, to int64) (*row.Rows, error) {
	spans, err := spansOf([]string{p.path})
	if err != nil {
		return nil, err
	}

	var out row.Rows
	for _, s := range spans {
		if p.communications {
			rows, err := readSpan(s, communicationColumns, job, nil)
			if err != nil {
				return nil, err
			}

			out.Communications = append(out.Communications, slices.DeleteFunc(rows, func(r row.Communication) bool { return r.StartNs < from || r.StartNs >= to })...)
			continue
		}

		rows, err := readSpan(s, stepColumns, job, nil)
		if err != nil {
			return nil, err
		}

		out.Steps = append(out.Steps, slices.DeleteFunc(rows, func(r row.Step) bool { return r.StartNs < from || r.StartNs >= to })...)
	}

	return &out, nil
}

// newest returns when the job's newest file was written.
func (s *store) newest(job string) (time.Time, error) {
	var newest time.Time
	for _, table := range []string{row.StepsTable, row.RanksTable} {
		paths, err := s.parts(table, job)
		if err != nil {
			return newest, err
		}

		for _, p := range paths {
			if info, err := os.Lstat(p); err == nil && info.ModTime().After(newest) {
				newest = info.ModTime()
			}
		}
	}

	return newest, nil
}
