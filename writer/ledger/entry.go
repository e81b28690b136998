package ledger

import (
	"encoding/json"

	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/row"
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
