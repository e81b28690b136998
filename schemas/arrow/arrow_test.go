package arrow

import (
	"testing"

	"github.com/laggard-dev/laggard/schemas/row"
)

func TestFields(t *testing.T) {
	known := map[Type]bool{Utf8: true, Uint16: true, Uint32: true, Uint64: true, Int32: true, Int64: true, ListUtf8: true, ListListU32: true}
	for _, table := range []string{row.RanksTable, row.StepsTable, row.CommunicationsTable, row.RecordsTable, row.VerdictsTable, row.LedgerTable} {
		fields := Fields(table)
		if len(fields) < 10 || fields[0] != (Field{"job", Utf8}) {
			t.Fatalf("Fields(%s) = %v", table, fields)
		}

		for _, f := range fields {
			if f.Name == "" || !known[f.Type] {
				t.Errorf("%s.%s has type %s", table, f.Name, f.Type)
			}
		}
	}

	if Fields("other") != nil {
		t.Fatal("a table that is not ours has fields")
	}
}
