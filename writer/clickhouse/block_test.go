package clickhouse

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/ClickHouse/ch-go/proto"

	ddl "github.com/laggard-dev/laggard/schemas/clickhouse"
	"github.com/laggard-dev/laggard/schemas/clickhouse/native"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/ship"
)

// TestBlock_Words: raw rows make a block that ch-go decodes into the same rows, in the
// types of old and new servers, also when the block's memory was used before.
func TestBlock_Words(t *testing.T) {
	current := headings(t, row.RecordsTable)
	var plain []ddl.Column
	for _, h := range current {
		h.Type = strings.TrimSuffix(strings.TrimPrefix(h.Type, "LowCardinality("), ")")
		plain = append(plain, h)
	}

	var b block
	for _, n := range []int{1, 5000, 700} {
		var all []row.Record
		for i := range n {
			all = append(all, row.Record{
				Job: "j", Rank: 3, Incarnation: 1 << 63, Node: "node-\x00", Kind: []string{"FP", "Communication"}[i%2], Step: int64(i) - 1,
				StartNs: -5, Op: fmt.Sprint("op", i%300), Group: []string{"", "dp0", "dp0", "tp"}[i%4], Peer: -1,
				Seq: uint64(i), Path: strings.Repeat("/p", i%3), Open: uint16(i % 2), Segment: 9, Offset: uint64(i) << 40,
			})
		}

		batch := &ship.Batch{Table: row.RecordsTable, Rows: row.Rows{Raws: row.Pack(all...)}}
		for _, header := range [][]ddl.Column{current, plain} {
			columns := decoded(t, encoded(t, &b, batch, header))
			for i, r := range all {
				want := []any{r.Job, r.Node, r.Kind, r.Side, r.Op, r.OpRaw, r.Group, r.Dtype, r.Path}
				for k, name := range []string{"job", "node", "kind", "side", "op", "op_raw", "group", "dtype", "path"} {
					if got := columns[name].(interface{ Row(int) string }).Row(i); got != want[k] {
						t.Fatalf("%s: row %d of %d has %s %q, want %q", header[0].Type, i, n, name, got, want[k])
					}
				}

				got := []any{
					(*columns["rank"].(*proto.ColUInt32))[i], (*columns["incarnation"].(*proto.ColUInt64))[i], (*columns["step"].(*proto.ColInt64))[i],
					(*columns["start_ns"].(*proto.ColInt64))[i], (*columns["peer"].(*proto.ColInt32))[i], (*columns["open"].(*proto.ColUInt16))[i],
					(*columns["seq"].(*proto.ColUInt64))[i], (*columns["offset"].(*proto.ColUInt64))[i],
				}
				if wanted := []any{r.Rank, r.Incarnation, r.Step, r.StartNs, r.Peer, r.Open, r.Seq, r.Offset}; fmt.Sprint(got) != fmt.Sprint(wanted) {
					t.Fatalf("row %d of %d: %v, want %v", i, n, got, wanted)
				}
			}
		}
	}
}

func encoded(t *testing.T, b *block, batch *ship.Batch, header []ddl.Column) []byte {
	t.Helper()
	layout, base := batch.Layout()
	if err := b.shape(batch.Table, layout, header); err != nil {
		t.Fatal(err)
	}

	b.fill(layout, base, batch.Len(), batch.Raws.Words)
	var out bytes.Buffer
	if err := b.encode(native.Revision, func(p []byte) error { out.Write(p); return nil }); err != nil {
		t.Fatal(err)
	}

	return out.Bytes()
}

// decoded returns the columns of a block by their names.
func decoded(t *testing.T, text []byte) map[string]proto.Column {
	t.Helper()
	columns := map[string]proto.Column{}
	var b proto.Block
	if err := b.DecodeBlock(proto.NewReader(bytes.NewReader(text)), native.Revision, auto(columns)); err != nil {
		t.Fatal(err)
	}

	return columns
}
