package taskd

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"laggard/schemas/record"
	"laggard/schemas/row"
	"laggard/schemas/topology"
	"laggard/writer/rollup"
	"laggard/writer/segment"
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
	_, err := rollup.Dir(context.Background(), segment.RankDir{Job: "j1", Rank: 3, Path: dir}, rollup.Options{Records: rollup.All}, func(r *row.Rows) error {
		out = append(out, r.Records...)
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
		if err := w.journal.write(entry{w.state, w.state.after(w.pending[:n], int64(last.end))}); err != nil {
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
	now := func() time.Time { return time.Unix(1753000000, 0) }
	w, err := Open(dir, meta(), Options{State: state, Now: now})
	if err != nil {
		t.Fatal(err)
	}
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
