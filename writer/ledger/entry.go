package ledger

import (
	"encoding/json"

	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/segment"
)

// entry is row.Ledger as JSON: columns by their names, ids as hex text.
//
// Part and Of say that it is one of several that were appended together: from 1 on, of so
// many. Zero: it was appended alone. A loss of power may leave some of them only, and half
// of the account of a segment would be taken for the whole.
type entry struct {
	Job         string    `json:"job"`
	Rank        uint32    `json:"rank"`
	Incarnation record.ID `json:"incarnation"`
	Segment     record.ID `json:"segment"`
	Name        string    `json:"name,omitempty"`
	Batch       string    `json:"batch,omitempty"`
	Table       string    `json:"table,omitempty"`
	State       string    `json:"state"`
	Reason      string    `json:"reason,omitempty"`
	Kind        string    `json:"kind,omitempty"`
	Records     uint64    `json:"records"`
	Bytes       uint64    `json:"bytes,omitempty"`
	FirstOffset uint64    `json:"first_offset,omitempty"`
	LastOffset  uint64    `json:"last_offset,omitempty"`
	AtNs        int64     `json:"at_ns,omitempty"`
	Part        int       `json:"part,omitempty"`
	Of          int       `json:"of,omitempty"`
}

func appendLine(dst []byte, r *row.Ledger, part, of int) []byte {
	b, err := json.Marshal(entry{
		r.Job, r.Rank, record.ID(r.Incarnation), record.ID(r.Segment), r.Name, r.Batch, r.Table, r.State, r.Reason, r.Kind,
		r.Records, r.Bytes, r.FirstOffset, r.LastOffset, r.AtNs, part, of,
	})
	if err != nil {
		panic("BUG: ledger entry is not JSON: " + err.Error()) // strings and integers only
	}

	return append(append(dst, b...), '\n')
}

func (e *entry) row() row.Ledger {
	return row.Ledger{
		Job: e.Job, Rank: e.Rank, Incarnation: uint64(e.Incarnation), Segment: uint64(e.Segment), Name: e.Name, Batch: e.Batch,
		Table: e.Table, State: e.State, Reason: e.Reason, Kind: e.Kind, Records: e.Records, Bytes: e.Bytes,
		FirstOffset: e.FirstOffset, LastOffset: e.LastOffset, AtNs: e.AtNs,
	}
}

// group holds entries that were appended together until all of them are there.
type group struct {
	rows []row.Ledger
	of   int
}

// take takes the next entry. It returns the entries that are complete now, and how
// many were left behind by a group that never was.
func (g *group) take(e *entry) (whole []row.Ledger, bad int) {
	if e.Part != len(g.rows)+1 || len(g.rows) > 0 && e.Of != g.of {
		bad = g.drop()
	}

	switch {
	case e.Of <= 1:
		return []row.Ledger{e.row()}, bad
	case e.Part != len(g.rows)+1:
		return nil, bad + 1
	}

	g.rows, g.of = append(g.rows, e.row()), e.Of
	if len(g.rows) < g.of {
		return nil, bad
	}

	whole, g.rows = g.rows, nil
	return whole, bad
}

// drop gives up on a group and returns how many entries it had.
func (g *group) drop() int {
	n := len(g.rows)
	g.rows = nil
	return n
}

// Aged returns a test for segments whose loss is in the ledger of a profiling
// directory: by job, rank and file name, compressed or not. Such a segment is
// being deleted; nothing of it may be shipped any more.
func Aged(dir string) (func(job string, rank int, name string) bool, error) {
	type key struct {
		job  string
		rank uint32
		name string
	}
	aged := make(map[key]bool)
	_, err := Read(dir, func(r row.Ledger) error {
		if r.State == "aged" && r.Name != "" {
			aged[key{r.Job, r.Rank, segment.Plain(r.Name)}] = true
		}

		return nil
	})
	return func(job string, rank int, name string) bool {
		return aged[key{job, uint32(rank), segment.Plain(name)}]
	}, err
}
