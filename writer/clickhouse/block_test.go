package clickhouse

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/ship"
)

// TestBlock_Packed: packed rows make the same bytes as the rows themselves, in the
// types of old and new servers, also when the block's memory was used before.
func TestBlock_Packed(t *testing.T) {
	current := headings(t, row.RecordsTable)
	var plain []heading
	for _, h := range current {
		h.typ = strings.TrimSuffix(strings.TrimPrefix(h.typ, "LowCardinality("), ")")
		plain = append(plain, h)
	}
	var words row.Words
	var fromRows, fromRaws block
	for _, n := range []int{1, 5000, 700} {
		batch := &ship.Batch{Table: row.RecordsTable}
		for i := range n {
			batch.Records = append(batch.Records, row.Record{
				Job: "j", Rank: 3, Incarnation: 1 << 63, Node: "node-\x00", Kind: []string{"FP", "Communication"}[i%2], Step: int64(i) - 1,
				StartNs: -5, Op: fmt.Sprint("op", i%300), Group: []string{"", "dp0", "dp0", "tp"}[i%4], Peer: -1,
				Seq: uint64(i), Path: strings.Repeat("/p", i%3), Open: uint16(i % 2), Segment: 9, Offset: uint64(i) << 40,
			})
		}
		packed := &ship.Batch{Table: row.RecordsTable}
		for i := range batch.Records {
			packed.Raws.Rows = append(packed.Raws.Rows, words.Pack(&batch.Records[i]))
		}
		packed.Raws.Words = words.List()
		for _, header := range [][]heading{current, plain} {
			want, got := encoded(t, &fromRows, batch, header), encoded(t, &fromRaws, packed, header)
			if !bytes.Equal(want, got) {
				t.Fatalf("%d rows, %s: %d bytes of packed rows differ from the %d of rows", n, header[0].typ, len(got), len(want))
			}
		}
	}
}

func encoded(t *testing.T, b *block, batch *ship.Batch, header []heading) []byte {
	t.Helper()
	layout, base := batch.Layout()
	if err := b.shape(batch.Table, layout, header); err != nil {
		t.Fatal(err)
	}
	b.fill(layout, base, batch.Len(), batch.Raws.Words)
	var out bytes.Buffer
	if err := b.encode(54448, func(p []byte) error { out.Write(p); return nil }); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
