package feed

import (
	"encoding/binary"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/laggard-dev/laggard/analyzer/frame"
)

// TestSpool_SortsWhatDoesNotFit compares a spool with a stable sort, in memory and in
// parts, and wants nothing left of it.
func TestSpool_SortsWhatDoesNotFit(t *testing.T) {
	type record struct {
		at     int64
		number uint32
	}
	for _, limit := range []int{0, 1<<16 + 100, 1<<16 + 20000} {
		dir := t.TempDir()
		t.Setenv("TMPDIR", dir)
		rng := rand.New(rand.NewPCG(uint64(limit), 1))
		s := spool{limit: limit}
		var want []record
		for n := range uint32(5000) {
			r := record{rng.Int64N(300) - 150, n}
			want = append(want, r)
			if err := s.add(r.at, func(b []byte) []byte {
				return append(binary.LittleEndian.AppendUint32(b, n), make([]byte, rng.IntN(50))...)
			}); err != nil {
				t.Fatal(err)
			}
		}

		if limit > 0 && len(s.ends) < 2 {
			t.Fatalf("%d parts in the file", len(s.ends))
		}

		slices.SortStableFunc(want, func(a, b record) int { return int(a.at - b.at) })
		var got []record
		if err := s.each(func(at int64, b []byte) error {
			got = append(got, record{at, binary.LittleEndian.Uint32(b)})
			return nil
		}); err != nil {
			t.Fatal(err)
		}

		if !slices.Equal(got, want) {
			t.Errorf("limit %d: other records, or in another order", limit)
		}

		if names, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(names) > 0 {
			t.Errorf("left behind: %v, %v", names, err)
		}
	}
}

// TestHistory_NowhereToWrite keeps all rows in memory where no file can be made, and says
// so; a file that can't be written is an error that says what to do.
func TestHistory_NowhereToWrite(t *testing.T) {
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "none"))
	h := &History{}
	h.rows.limit = 1
	for n := range uint64(3000) {
		h.AddStep(stepRow(0, 1, 3000-n, int64(3000-n)*second, 1))
	}

	f, err := h.Frame(nil)
	if err != nil || len(f.Columns) != 3000 || f.Columns[0].Step != 1 {
		t.Fatalf("Frame()=%v, %d columns", err, len(f.Columns))
	}

	if notes := strings.Join(f.Notes, "; "); !strings.Contains(notes, "kept in memory") || !strings.Contains(notes, os.TempDir()) {
		t.Fatalf("notes %q", notes)
	}

	t.Setenv("TMPDIR", t.TempDir())
	h = &History{}
	h.rows.limit = 1
	for n := range uint64(3000) {
		h.AddStep(stepRow(0, 1, n, int64(n)*second, 1))
		if n == 2000 {
			if err := h.rows.file.Close(); err != nil { // as good as a full disk
				t.Fatal(err)
			}
		}
	}

	// A part that could not be written is not sorted and tried again for each row that comes.
	if h.rows.file, err = temporary(); err != nil {
		t.Fatal(err)
	}

	parts := len(h.rows.ends)
	if h.AddStep(stepRow(0, 1, 3000, 3000*second, 1)); len(h.rows.ends) != parts {
		t.Errorf("%d parts after an error, %d before", len(h.rows.ends), parts)
	}

	if _, err := h.Settle(nil); err == nil || !strings.Contains(err.Error(), "TMPDIR") {
		t.Fatalf("Settle()=%v, want an error that names TMPDIR", err)
	}
}

// TestHistory_HoldsFewColumns plays jobs whose rows come rank after rank: however many
// steps there are, few columns wait; also for ranks that miss steps, end early or were
// never there, and for a host whose clock is ahead.
func TestHistory_HoldsFewColumns(t *testing.T) {
	const ranks, steps = 32, 2000
	for name, tt := range map[string]struct {
		skew int64 // of rank 5
		has  func(rank, step int) bool
		most int
	}{
		"whole":       {0, func(int, int) bool { return true }, 2},
		"gaps":        {0, func(r, s int) bool { return (r+s)%7 > 0 }, 3},
		"one is gone": {0, func(r, s int) bool { return r != 3 || s < 500 }, 2},
		"one is late": {0, func(r, s int) bool { return r != 3 || s > 500 }, 2},
		"skewed":      {60 * second, func(int, int) bool { return true }, 8},
	} {
		t.Run(name, func(t *testing.T) {
			h := &History{}
			h.rows.limit = 1 << 18
			for r := range ranks {
				for s := range steps {
					start := int64(s+1) * 10 * second
					if r == 5 {
						start += tt.skew
					}

					if tt.has(r, s) {
						h.AddStep(stepRow(uint32(r), uint64(r)+1, uint64(s), start+int64(r), second))
					}
				}
			}

			if _, err := h.Settle(nil); err != nil {
				t.Fatal(err)
			}

			columns, most := 0, 0 // most wait at a time
			err := h.play(func(*frame.Column) {
				columns++
				most = max(most, len(h.feed.Pending))
			}, func(*frame.Transfer) {})
			if err != nil {
				t.Fatal(err)
			}

			if columns != steps || most > tt.most {
				t.Errorf("%d columns, %d waited at a time; want %d and at most %d", columns, most, steps, tt.most)
			}
		})
	}
}
