package clickhouse

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/ClickHouse/ch-go/proto"

	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/ship"
)

// TestDictionary_Places: however many different texts a LowCardinality column has, ch-go decodes each
// row's own, in one, two or four bytes a row, from raw rows and from others.
func TestDictionary_Places(t *testing.T) {
	header := headings(t, row.StepsTable)
	var b, raw block
	for _, n := range []int{1 << 8, 1<<8 + 1, 1 << 16, 1<<16 + 1, 3} {
		steps, records := make([]row.Step, n+9), make([]row.Record, n+9)
		for i := range steps {
			steps[i].Node = fmt.Sprint("node", (i+1)%n)
			records[i].Node = steps[i].Node
		}

		for _, all := range []map[string]proto.Column{
			decoded(t, encoded(t, &b, &ship.Batch{Table: row.StepsTable, Rows: row.Rows{Steps: steps}}, header)),
			decoded(t, encoded(t, &raw, &ship.Batch{Table: row.RecordsTable, Rows: row.Rows{Raws: row.Pack(records...)}}, headings(t, row.RecordsTable))),
		} {
			got := all["node"].(*proto.ColLowCardinality[string])
			for i := range steps {
				if got.Row(i) != steps[i].Node {
					t.Fatalf("of %d texts row %d is %q, want %q", n, i, got.Row(i), steps[i].Node)
				}
			}
		}
	}
}

// TestDictionary_AsChGo: the bytes are those of ch-go's column.
func TestDictionary_AsChGo(t *testing.T) {
	theirs := new(proto.ColStr).LowCardinality()
	var ours dictionary
	for i := range 700 {
		text := fmt.Sprint("text", i%300)
		theirs.Append(text)
		ours.append(text)
	}

	if err := theirs.Prepare(); err != nil {
		t.Fatal(err)
	}

	var got, want proto.Buffer
	theirs.EncodeState(&want)
	theirs.EncodeColumn(&want)
	if ours.EncodeColumn(&got); !bytes.Equal(got.Buf, want.Buf) {
		t.Errorf("%d bytes that differ from ch-go's %d", len(got.Buf), len(want.Buf))
	}
}
