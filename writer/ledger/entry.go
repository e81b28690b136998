package ledger

import (
	"encoding/json"

	"github.com/laggard-dev/laggard/schemas/row"
)

// entry is a line of the file: columns by their names, ids as hex text.
//
// Part and Of say that it is one of several that were appended together: from 1 on, of so
// many. Zero: it was appended alone. A loss of power may leave some of them only, and half
// of the account of a segment would be taken for the whole.
type entry struct {
	row.Ledger
	Part int `json:"part,omitempty"`
	Of   int `json:"of,omitempty"`
}

// appendLine appends an entry as a line.
func appendLine(dst []byte, e entry) []byte {
	b, err := json.Marshal(e)
	if err != nil {
		panic("BUG: ledger entry is not JSON: " + err.Error()) // strings and integers only
	}

	return append(append(dst, b...), '\n')
}
