package ship

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/laggard-dev/laggard/schemas/row"
)

// TestPoison: one bad row in 4096 costs about 2 log2 n inserts, is kept with its
// reason, and the rest is stored; the next shipper knows it. R13.
func TestPoison(t *testing.T) {
	dir := t.TempDir()
	bad := RecordKey{1, 1234}
	m := newMemory()
	m.fail = func(b *Batch, _ int) (error, bool) {
		for i := range b.Raws.Rows {
			if KeyOfRaw(&b.Raws.Rows[i]) == bad {
				return &Error{Class: Poison, Err: errors.New("value 13 brings bad luck")}, false
			}
		}

		return nil, false
	}
	all := func() *row.Rows {
		all := records(1, 0, 4096).Raws.AppendTo(nil)
		for i := range all {
			all[i].StartNs, all[i].Group = 5, "g\"\xff"
		}

		return &row.Rows{Raws: row.Pack(all...)}
	}
	letters := filepath.Join(dir, "state", "dead-letters.jsonl")
	for round := range 2 {
		m.inserts = 0
		s := ship(t, m, Options{DeadLetters: letters}, func(ctx context.Context, s *Shipper) {
			st := NewStream("a")
			put(t, ctx, s, st, all(), 1)
			flush(t, ctx, s)
			if st.Acked() != 1 {
				t.Fatal("poison stops the stream")
			}
		})
		m.once(t, 1, 4096, bad)
		if round == 0 && (m.inserts > 40 || s.Stats().Tables[row.RecordsTable].Poisoned != 1) {
			t.Fatalf("%d inserts, %+v", m.inserts, s.Stats().Tables)
		}

		if round == 1 && m.inserts != 0 {
			t.Fatalf("%d inserts in the second round", m.inserts)
		}
	}

	f, err := os.Open(letters)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var lines []letter
	for scan := bufio.NewScanner(f); scan.Scan(); {
		var l letter
		if err := json.Unmarshal(scan.Bytes(), &l); err != nil {
			t.Fatal(err)
		}

		lines = append(lines, l)
	}

	if len(lines) != 1 || lines[0].Reason != "value 13 brings bad luck" || !strings.Contains(string(lines[0].Row), `"offset":1234`) {
		t.Fatalf("dead letters %+v", lines)
	}
}

// TestNothingButPoison does not cost an insert a row, and the stream goes on. R13.
func TestNothingButPoison(t *testing.T) {
	m := newMemory()
	m.fail = func(b *Batch, _ int) (error, bool) {
		if b.Raws.Rows[0].Offset >= 20000 {
			return nil, false
		}

		return &Error{Class: Poison, Err: errors.New("no")}, false
	}
	s := ship(t, m, Options{}, func(ctx context.Context, s *Shipper) {
		st := NewStream("a")
		for i := range 2 {
			r := records(1, 20000*i, 20000*i+20000)
			for k := range r.Raws.Rows {
				r.Raws.Rows[k].StartNs = 5
			}

			put(t, ctx, s, st, r, i)
			flush(t, ctx, s)
		}

		if st.Acked() != 1 {
			t.Fatal("poison stops the stream")
		}
	})
	if st := s.Stats().Tables[row.RecordsTable]; st.Poisoned != 20000 || st.Inserted != 20000 || m.inserts > 200 {
		t.Fatalf("%+v with %d inserts", st, m.inserts)
	}
}
