package taskd

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/schemas/topology"
	"github.com/laggard-dev/laggard/writer/rollup"
	"github.com/laggard-dev/laggard/writer/segment"
)

// sample returns the i-th record of a made-up rank: a step and what is in it.
func sample(i int) record.Record {
	kinds := []record.Kind{record.DataLoader, record.FP, record.Communication, record.Communication, record.Step}
	k := kinds[i%len(kinds)]
	r := record.New(k)
	step := int64(i / len(kinds))
	r.Step, r.Ring, r.Seq = step, 1, uint64(i)
	at := 1753000000000000000 + step*1_000_000
	r.Start, r.Dur = at+int64(i%len(kinds))*100_000+1000, 90_000
	switch k {
	case record.Step:
		r.Start, r.Dur = at, 1_000_000
	case record.Communication:
		r.Op, r.OpRaw, r.Group, r.Count, r.Dtype = "allreduce", "HcclAllreduce", "hccl_world", 1024, "fp32"
		r.Ring, r.Seq = 2, uint64(2*step)+uint64(i%len(kinds)-2)
	}

	return r
}

func meta() record.Meta {
	return record.Meta{
		Job: "j1", Rank: 3, PID: 4000, Incarnation: 7,
		Groups: []record.Group{{Dim: "ep", Name: "hccl_world", Index: 1, Size: 2, Ranks: []int{0, 3}}},
	}
}

// stored reads the directory back as a reader of TaskD's files does.
func stored(t *testing.T, dir string) (out []row.Record) {
	t.Helper()
	_, err := rollup.Dir(context.Background(), segment.RankDir{RankID: record.RankID{Job: "j1", Rank: 3}, Path: dir}, rollup.Options{Records: rollup.All}, func(r *row.Rows) error {
		out = r.Raws.AppendTo(out)
		*r = row.Rows{}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}

	return out
}

func TestWriter_ReadsBackEveryRecordOnce(t *testing.T) {
	dir, state := filepath.Join(t.TempDir(), "j1", "3"), t.TempDir()
	const limit, n = 16 << 10, 1000
	w, err := Open(dir, meta(), Options{State: state, Limit: limit})
	if err != nil {
		t.Fatal(err)
	}

	for i := range n {
		r := sample(i)
		if err := w.AppendRecord(&r); err != nil {
			t.Fatal(err)
		}

		if i%37 == 0 {
			if err := w.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}

	if err := w.Close(); err != nil {
		t.Fatal(err)
	}

	infos, err := segment.List(dir)
	if err != nil || len(infos) < 10 {
		t.Fatalf("%d segments, %v", len(infos), err)
	}

	for _, i := range infos {
		if i.Size > limit {
			t.Errorf("segment %s has %d bytes, limit %d", i.Name, i.Size, limit)
		}
	}

	if got := stored(t, dir); len(got) != n {
		t.Fatalf("read back %d records, wrote %d", len(got), n)
	}

	groups, err := topology.ParallelGroup(filepath.Join(dir, topology.ParallelGroupFile))
	if err != nil || len(groups) != 1 || groups[0].Dim != "ep" || !cmp.Equal(groups[0].Ranks, []int{0, 3}) {
		t.Errorf("groups %+v, %v", groups, err)
	}
}

// TestWriter_ResumesExactly kills the writer at every point between two writes and
// in the middle of one: what follows has every record once, in order.
func TestWriter_ResumesExactly(t *testing.T) {
	const n = 400
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	chance := rand.New(rand.NewPCG(seed, 1))
	dir, state := filepath.Join(t.TempDir(), "j1", "3"), t.TempDir()
	lives := 0
	for done := false; !done; lives++ {
		w, err := Open(dir, meta(), Options{State: state, Limit: 8 << 10})
		if err != nil {
			t.Fatal(err)
		}

		next := w.Next()
		for i := range n {
			r := sample(i)
			if r.Seq < next[r.Ring] {
				continue // in the files already
			}

			if err := w.AppendRecord(&r); err != nil {
				t.Fatal(err)
			}

			if chance.IntN(20) == 0 {
				if err := w.Flush(); err != nil {
					t.Fatal(err)
				}
			}

			if chance.IntN(60) == 0 {
				break
			}

			done = i == n-1
		}

		if done {
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}

			break
		}

		die(t, w, chance)
	}

	got := stored(t, dir)
	seen := map[string]int{}
	for _, r := range got {
		seen[fmt.Sprint(r.Kind, r.StartNs)]++
	}

	if len(got) != n || len(seen) != n {
		t.Fatalf("%d lives: %d records read back, %d distinct, wrote %d", lives, len(got), len(seen), n)
	}
}

// die leaves the writer as a SIGKILL does: between journal and write, in the
// middle of the write, or after it.
func die(t *testing.T, w *Writer, chance *rand.Rand) {
	t.Helper()
	if n := w.fits(); n > 0 && chance.IntN(2) == 0 {
		last := w.pending[n-1]
		if err := writeJournal(w.journal, w.entry(w.state.after(w.pending[:n], int64(last.end)))); err != nil {
			t.Fatal(err)
		}

		if err := w.open(); err != nil {
			t.Fatal(err)
		}

		cut := []int{0, chance.IntN(last.end + 1), last.end}[chance.IntN(3)]
		if _, err := w.file.Write(w.buf[:cut]); err != nil {
			t.Fatal(err)
		}
	}

	if w.file != nil {
		w.file.Close()
	}
}

// TestWriter_AccountsForWhatLinesCanNotSay: what was lost on the way, and a range
// whose name no file of TaskD's holds, are in the ledger, and the position goes on.
func TestWriter_AccountsForWhatLinesCanNotSay(t *testing.T) {
	dir, state := filepath.Join(t.TempDir(), "j1", "3"), t.TempDir()
	var got []row.Ledger
	fail := errors.New("no room")
	o := Options{State: state, Account: func(rows []row.Ledger) error {
		if fail != nil {
			return fail
		}

		got = append(got, rows...)
		return nil
	}}
	w, err := Open(dir, meta(), o)
	if err != nil {
		t.Fatal(err)
	}

	long := record.New(record.Other)
	long.Name, long.Ring, long.Seq, long.Start = strings.Repeat("x", 255), 1, 0, 1753000000000000000
	loss := record.Loss{Ring: 2, Kind: "Communication", Reason: record.RingFull, Count: 12, First: 5, Last: 9}
	short := sample(0)
	short.Seq = 1
	for _, err := range []error{w.AppendRecord(&long), w.AppendRecord(&short), w.AppendLine(loss.AppendLine(nil))} {
		if err != nil {
			t.Fatal(err)
		}
	}

	if err := w.Flush(); !errors.Is(err, fail) {
		t.Fatalf("Flush without a ledger: %v", err)
	}

	fail = nil
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}

	entry := row.Ledger{Job: "j1", Rank: 3, Incarnation: 7, State: "dropped"}
	a, b := entry, entry
	a.Kind, a.Reason, a.Records, a.FirstOffset, a.LastOffset = long.Word(), record.NameTooLong, 1, 0, 1
	b.Kind, b.Reason, b.Records, b.FirstOffset, b.LastOffset = "Communication", record.RingFull, 12, 9, 2
	if d := cmp.Diff([]row.Ledger{a, b}, got); d != "" {
		t.Errorf("ledger (-want +got):\n%s", d)
	}

	if r := stored(t, dir); len(r) != 1 || w.Next()[1] != 2 {
		t.Errorf("%d records in the files, next %v; want 1 and 2", len(r), w.Next())
	}
}

func TestWriter_RemembersTheEnd(t *testing.T) {
	dir, state := filepath.Join(t.TempDir(), "j1", "3"), t.TempDir()
	w, err := Open(dir, meta(), Options{State: state})
	if err != nil {
		t.Fatal(err)
	}

	end := record.End{At: 1, How: "closed"}
	if err := w.AppendLine(end.AppendLine(nil)); err != nil {
		t.Fatal(err)
	}

	if err := w.Close(); err != nil {
		t.Fatal(err)
	}

	if w, err = Open(dir, meta(), Options{State: state}); err != nil || !w.Ended() {
		t.Fatalf("after the end: ended %v, %v", w.Ended(), err)
	}
}

func TestWriter_RefusesAPlantedLink(t *testing.T) {
	dir, state := filepath.Join(t.TempDir(), "j1", "3"), t.TempDir()
	target := filepath.Join(t.TempDir(), "target")
	if err := os.WriteFile(target, []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}

	w, err := Open(dir, meta(), Options{State: state})
	if err != nil {
		t.Fatal(err)
	}

	w.now = func() time.Time { return time.Unix(1753000000, 0) }

	if err := os.Symlink(target, filepath.Join(dir, "1753000000")); err != nil {
		t.Fatal(err)
	}

	r := sample(0)
	if err := w.AppendRecord(&r); err != nil {
		t.Fatal(err)
	}

	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}

	if b, err := os.ReadFile(target); err != nil || string(b) != "mine" {
		t.Errorf("the link's target: %q, %v", b, err)
	}

	if w.Name() != "1753000001" {
		t.Errorf("segment %s, want the next free name", w.Name())
	}
}

// TestWriter_TakesTurns: of two processes that write one directory, only who has the
// newest segment appends to it.
func TestWriter_TakesTurns(t *testing.T) {
	dir, state, turn := t.TempDir(), t.TempDir(), new(segment.Turn)
	var writers []*Writer
	for i := range 2 {
		m := meta()
		m.Incarnation, m.PID = m.Incarnation+record.ID(i), m.PID+i
		w, err := Open(dir, m, Options{State: state, Turn: turn})
		if err != nil {
			t.Fatal(err)
		}

		writers = append(writers, w)
	}

	var at [2]int
	var before []segment.Info
	for _, who := range []int{0, 0, 1, 0, 1, 1} {
		r := sample(at[who])
		at[who]++
		if err := errors.Join(writers[who].AppendRecord(&r), writers[who].Flush()); err != nil {
			t.Fatal(err)
		}

		after, err := segment.List(dir)
		if err != nil {
			t.Fatal(err)
		}

		for i, s := range before {
			if i < len(after)-1 && after[i].Size != s.Size {
				t.Errorf("%s grew from %d to %d bytes and is not the newest", s.Name, s.Size, after[i].Size)
			}
		}

		before = after
	}

	if len(before) != 4 { // 0 0 | 1 | 0 | 1 1
		t.Errorf("%d segments, want 4", len(before))
	}

	for _, w := range writers {
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
