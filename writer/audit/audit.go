// Package audit proves that a store holds what a profiling directory's files and
// ledger say, or names the difference by segment.
//
// For each rank under the directory it rolls the files up as shipping does, adds
// what the ledgers tell of segments that are gone, and compares that with the
// numbers of rows in the store: raw rows by segment and kind, steps and windows by
// process, and by rank the calls that the windows sum up, be Communication stored one
// by one as well or not.
//
// Invariant: it changes nothing, neither files nor store. Rows that are open at the
// end of the files (a step that has not ended) may be in the store or not: they are
// in flight. So are the calls in the open windows of the agent's cursor, whose segments
// may be gone.
//
// Caveat: it compares numbers and identities' counts, not every column. Of a rank
// whose first segments are gone, steps and windows are held to the store's own
// ledger of batches.
package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/intake"
	"github.com/laggard-dev/laggard/writer/ledger"
	"github.com/laggard-dev/laggard/writer/segment"
	"github.com/laggard-dev/laggard/writer/ship"
)

// Difference is one place where the store is not what it must be: where rows of Table, of a rank's segment or
// process, are not Want but Have. What is in flight may be there or not, so Want is the least.
type Difference struct {
	Rank    int    `json:"rank"`
	Segment string `json:"segment,omitempty"` // file name; "" for a whole rank
	ID      string `json:"id,omitempty"`      // of the segment, 16 hex digits
	Table   string `json:"table"`
	Kind    string `json:"kind,omitempty"`
	Want    uint64 `json:"want"`
	Have    uint64 `json:"have"`
	Reason  string `json:"reason"`
}

// Report is the account of one job. All numbers are of records: Emitted is the sum of Stored, Summarised, Aged,
// Dropped and InFlight where nothing is wrong.
type Report struct {
	Job         string            `json:"job"`
	Store       string            `json:"store"`
	Ranks       int               `json:"ranks"`
	Segments    int               `json:"segments"` // on disk
	Emitted     uint64            `json:"emitted"`
	Stored      uint64            `json:"stored"`
	Summarised  uint64            `json:"summarised"`
	Aged        uint64            `json:"aged"`
	Dropped     map[string]uint64 `json:"dropped"`
	InFlight    uint64            `json:"in_flight"`
	Damaged     []string          `json:"damaged,omitempty"` // compressed segments that can't be read to their end: the rest of them is left out
	Equal       bool              `json:"equal"`
	Differences []Difference      `json:"differences"`
}

// errNoJob says that the directory has nothing of the job.
var errNoJob = errors.New("no segments and no ledger entries of that job")

// Jobs returns the jobs that a profiling directory has files or ledger entries of.
func Jobs(dir string) ([]string, error) {
	dirs, err := segment.Walk(dir)
	if err != nil {
		return nil, err
	}

	seen := map[string]bool{}
	for _, d := range dirs {
		seen[d.Job] = true
	}

	if _, err := ledger.Read(dir, func(r row.Ledger) error { seen[r.Job] = true; return nil }); err != nil {
		return nil, err
	}

	return slices.Sorted(maps.Keys(seen)), nil
}

// Run compares one job. progress is called after each rank; nil is nobody.
func Run(ctx context.Context, dir, job, store string, sink ship.Sink, progress func(done, total int)) (*Report, error) {
	dirs, err := segment.Walk(dir)
	if err != nil {
		return nil, err
	}

	// What the files and the local ledger say comes first: it decides which ranks are asked about.
	dirs = slices.DeleteFunc(dirs, func(d segment.RankDir) bool { return d.Job != job })
	a := &auditor{report: Report{Job: job, Store: store, Dropped: map[string]uint64{}, Differences: []Difference{}}, ranks: map[uint32]*rank{}}
	var entries []row.Ledger
	_, err = ledger.Read(dir, func(r row.Ledger) error {
		if r.Job == job {
			entries = append(entries, r)
		}

		return nil
	})
	if err != nil {
		return nil, err
	}

	if len(dirs) == 0 && len(entries) == 0 {
		return nil, fmt.Errorf("audit %s, job %s: %w", dir, job, errNoJob)
	}

	if err := a.read(ctx, dir, dirs, progress); err != nil {
		return nil, err
	}

	held, kept, err := sink.Tally(ctx, job)
	if err != nil {
		return nil, err
	}

	for i := range entries {
		a.rank(entries[i].Rank).local(&entries[i])
	}

	a.take(held, kept)
	a.compare()
	return &a.report, nil
}

// auditor holds what is known of a job's ranks.
type auditor struct {
	report Report
	ranks  map[uint32]*rank
	// How the job's kinds are stored: as raw rows, or summed.
	raw, summed map[string]bool
}

// read rolls up the files of each rank. What ageing has deleted is known from the ledger, and what waits in the
// agent's open windows from its cursor.
func (a *auditor) read(ctx context.Context, dir string, dirs []segment.RankDir, progress func(done, total int)) error {
	aged, err := ledger.Aged(dir)
	if err != nil {
		return err
	}

	open, err := intake.ReadOpen(filepath.Dir(ledger.Path(dir)), a.report.Store)
	if err != nil {
		return fmt.Errorf("audit %s: %w", dir, err)
	}

	for i, d := range dirs {
		r := a.rank(uint32(d.Rank))
		if r.disk, err = readDisk(ctx, d, open[d.RankID], func(name string) bool { return aged(d.RankID, name) }); err != nil {
			return err
		}

		if progress != nil {
			progress(i+1, len(dirs))
		}
	}

	return nil
}

// rank is what is known of a rank, nothing at first.
func (a *auditor) rank(n uint32) *rank {
	r := a.ranks[n]
	if r == nil {
		r = &rank{
			number: n, aged: map[uint64]string{}, losses: map[ship.LedgerKey]row.Ledger{}, rows: map[ship.Place]ship.Held{},
			segments: map[row.Ledger]row.Ledger{}, names: map[uint64]string{}, batched: map[ship.Place]uint64{},
		}
		a.ranks[n] = r
	}

	return r
}

// take sorts the store's numbers and its ledger by rank. Ranks of which this directory has
// nothing are another agent's.
func (a *auditor) take(held map[ship.Place]ship.Held, ledger []row.Ledger) {
	a.raw, a.summed = map[string]bool{}, map[string]bool{}
	for p, n := range held {
		if p.Table == row.RecordsTable && n.Rows > 0 {
			a.raw[p.Kind] = true
		}

		if r := a.ranks[p.Rank]; r != nil {
			r.rows[p] = n
			r.calls += n.Calls
		}
	}

	for i := range ledger {
		l := &ledger[i]
		switch {
		case l.Batch == "" && l.State == "stored":
			a.raw[l.Kind] = true
		case l.Batch == "" && l.State == "summarised":
			a.summed[l.Kind] = true
		}

		if r := a.ranks[l.Rank]; r != nil {
			r.entry(l)
		}
	}
}

// compare compares rank by rank, and puts the differences in an order that does not change.
func (a *auditor) compare() {
	a.report.Ranks = len(a.ranks)
	for _, n := range slices.Sorted(maps.Keys(a.ranks)) {
		a.one(a.ranks[n])
	}

	slices.SortStableFunc(a.report.Differences, func(x, y Difference) int {
		return cmp.Or(cmp.Compare(x.Rank, y.Rank), cmp.Compare(x.Segment, y.Segment), cmp.Compare(x.Table, y.Table), cmp.Compare(x.Kind, y.Kind))
	})
	a.report.Equal = len(a.report.Differences) == 0
}

// isRaw reports whether a kind's records become rows of the table records: as rows or account of
// the store say. Of a kind that neither knows, every one but Communication is, as by default.
func (a *auditor) isRaw(kind string) bool {
	return a.raw[kind] || !a.summed[kind] && kind != communication
}

// differ adds a difference to the report.
func (a *auditor) differ(d Difference) { a.report.Differences = append(a.report.Differences, d) }
