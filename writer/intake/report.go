package intake

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/rollup"
	"github.com/laggard-dev/laggard/writer/ship"
	"github.com/laggard-dev/laggard/writer/tail"
)

// Report is what one pass did, or a follower until now.
type Report struct {
	Store    string
	Ranks    int      // rank directories read
	Leased   []string // left alone: another process ships them
	Lines    uint64
	Bytes    uint64
	Tables   map[string]ship.TableStats
	Losses   map[string]LossSum // by reason
	Altered  map[string]uint64  // records stored otherwise than they came, by reason
	Problems []string           // directories and files that could not be read
	Notes    []string           // jobs that lay in several directories
	Singles  uint64             // rounds of inserts that are in one replica only
	Rest     int64              // bytes that were seen and not read: after a pass, of last lines that are not complete yet
}

// LossSum is what was lost for one reason.
type LossSum struct {
	Events, Bytes int64
}

// newReport is of nothing done yet.
func newReport(store string) *Report {
	return &Report{Store: store, Tables: map[string]ship.TableStats{}, Losses: map[string]LossSum{}, Altered: map[string]uint64{}}
}

// lose adds a loss to the sum of its reason.
func (r *Report) lose(reason string, bytes int64) {
	sum := r.Losses[reason]
	r.Losses[reason] = LossSum{sum.Events + 1, sum.Bytes + bytes}
}

// Stored returns the number of rows that the pass added, the account's own aside.
func (r Report) Stored() uint64 { return r.rows().Inserted }

// rows sums the tables but for the account's own.
func (r Report) rows() (sum ship.TableStats) {
	for table, t := range r.Tables {
		if table != row.LedgerTable {
			sum.Inserted, sum.Found = sum.Inserted+t.Inserted, sum.Found+t.Found
		}
	}

	return sum
}

// alterations say what was done to so many rows, by its reason.
var alterations = [...]struct{ reason, text string }{
	{rollup.WordTooLong, "cut (%s): words of %d records"},
	{rollup.Crowded, "not waited for (%s): the end of the step of %d records"},
	{rollup.Oversized, "left out (%s): the members of %d groups"},
	{rollup.NoGroups, "without dimension (%s): the communication of %d steps, for no parallel_group.json names their communicators"},
}

// String says what was stored, found and lost: a line for all, then one for each table and each reason.
func (r Report) String() string {
	var b strings.Builder
	if n := r.rows(); n.Inserted == 0 && n.Found > 0 {
		fmt.Fprintf(&b, "nothing to store: %s has all %d rows already", r.Store, n.Found)
	} else {
		fmt.Fprintf(&b, "stored %d rows in %s", n.Inserted, r.Store)
		if n.Found > 0 {
			fmt.Fprintf(&b, ", which had %d of them already", n.Found)
		}
	}

	fmt.Fprintf(&b, " (%d ranks, %d lines, %d bytes)", r.Ranks, r.Lines, r.Bytes)
	for _, table := range slices.Sorted(maps.Keys(r.Tables)) {
		if t := r.Tables[table]; t.Inserted+t.Found+t.Poisoned > 0 {
			fmt.Fprintf(&b, "\n  %-14s %d stored, %d found", table, t.Inserted, t.Found)
			if t.Poisoned > 0 {
				fmt.Fprintf(&b, ", %d refused by the store and kept as dead letters", t.Poisoned)
			}
		}
	}

	if r.Singles > 0 {
		fmt.Fprintf(&b, "\n  in one replica only: %d rounds of inserts, no second one had them within a minute", r.Singles)
	}

	for _, a := range alterations {
		if n := r.Altered[a.reason]; n > 0 {
			fmt.Fprintf(&b, "\n  "+a.text, a.reason, n)
		}
	}

	for _, reason := range slices.Sorted(maps.Keys(r.Losses)) {
		l := r.Losses[reason]
		fmt.Fprintf(&b, "\n  lost (%s): %d times, %d bytes", reason, l.Events, l.Bytes)
	}

	if len(r.Leased) > 0 {
		fmt.Fprintf(&b, "\n  left to the agent that ships them: %s", strings.Join(r.Leased, ", "))
	}

	if r.Rest > 0 {
		fmt.Fprintf(&b, "\n  left for the next pass: %d bytes of last lines that are not complete (their writer was killed, or is at it)", r.Rest)
	}

	for _, n := range r.Notes {
		fmt.Fprintf(&b, "\n  %s", n)
	}

	for _, p := range r.Problems {
		fmt.Fprintf(&b, "\n  not read: %s", p)
	}

	return b.String()
}

// add adds what a pass stored and read: Once makes one for each shard.
func (r *Report) add(stats ship.Stats, tree *tail.Tree) {
	for table, t := range stats.Tables {
		sum := r.Tables[table]
		r.Tables[table] = ship.TableStats{Inserted: sum.Inserted + t.Inserted, Found: sum.Found + t.Found, Poisoned: sum.Poisoned + t.Poisoned}
	}

	lines, bytes := tree.Counts()
	r.Singles, r.Lines, r.Bytes = r.Singles+stats.Singles, r.Lines+lines, r.Bytes+bytes
}
