package segment

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/laggard-dev/laggard/schemas/record"
)

func testMeta(incarnation record.ID) record.Meta {
	return record.Meta{Job: "j1", Rank: 3, Incarnation: incarnation, WorldSize: 8, Node: "node-0", PID: 7, Writer: "test/1"}
}

func testRecord(ring uint32, seq uint64) *record.Record {
	r := record.New(record.Communication)
	r.Step, r.Start, r.Dur, r.Ring, r.Seq, r.Op, r.Group = int64(seq/10), 1753000000000000000+int64(seq), 5400000, ring, seq, "allreduce", "dp0"
	return &r
}

// at is a clock that stands still.
func at(sec int64) func() time.Time { return func() time.Time { return time.Unix(sec, 0) } }

func rankDir(t testing.TB) string { return filepath.Join(t.TempDir(), "j1", "3") }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB, dir string, o Options) *Writer {
	t.Helper()
	w, err := Open(dir, testMeta(1), o)
	must(t, err)
	return w
}

// lines reads all complete lines of a rank directory, by segment name.
func lines(t testing.TB, dir string) map[string][]string {
	t.Helper()
	all, err := List(dir)
	must(t, err)
	m := make(map[string][]string)
	for _, s := range all {
		r, err := OpenReader(filepath.Join(dir, s.Name))
		must(t, err)
		for {
			line, _, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}

			must(t, err)
			m[s.Name] = append(m[s.Name], string(line))
		}

		must(t, r.Close())
	}

	return m
}

// seqs returns how often each sequence number of a ring stands in a rank directory,
// and fails on a segment over the limit or without an identity of its own.
func seqs(t testing.TB, dir string, limit int64) map[uint64]int {
	t.Helper()
	n := make(map[uint64]int)
	ids := make(map[string]string)
	var p record.Parser
	for name, ls := range lines(t, dir) {
		if st, err := os.Stat(filepath.Join(dir, name)); err != nil || st.Size() > limit {
			t.Fatalf("segment %s: %d bytes, limit %d (%v)", name, st.Size(), limit, err)
		}

		for i, l := range ls {
			typ, err := p.Parse([]byte(l))
			if err != nil {
				t.Fatalf("segment %s line %d %q: %v", name, i, l, err)
			}

			if i == 0 {
				if typ != record.LineMeta || ids[p.Meta.Segment] != "" || len(p.Meta.Segment) != 16 {
					t.Fatalf("segment %s begins with %s", name, l)
				}

				ids[p.Meta.Segment] = name
			}

			if typ == record.LineRecord {
				n[p.Record.Seq]++
			}
		}
	}

	return n
}

func TestWriter_RotatesBeforeTheLineThatWouldPassTheLimit(t *testing.T) {
	dir := rankDir(t)
	w := open(t, dir, Options{Limit: minLimit, Now: at(100), Buffer: 1000})
	for seq := range uint64(500) {
		must(t, w.AppendRecord(testRecord(1, seq)))
	}

	must(t, w.Close())
	all, err := List(dir)
	must(t, err)
	if len(all) < 15 {
		t.Fatalf("%d segments", len(all))
	}

	line := int64(len(testRecord(1, 499).AppendLine(nil)))
	for i, s := range all {
		if s.Number != 100+int64(i) {
			t.Errorf("segment %d is named %d", i, s.Number)
		}

		if s.Size > minLimit || i < len(all)-1 && s.Size+line <= minLimit-2 {
			t.Errorf("segment %s has %d bytes of %d: it was left too late or too early", s.Name, s.Size, minLimit)
		}
	}

	got := seqs(t, dir, minLimit)
	for seq := range uint64(500) {
		if got[seq] != 1 {
			t.Fatalf("record %d stands %d times", seq, got[seq])
		}
	}
}

func TestWriter_ResumesItsNewestSegment(t *testing.T) {
	dir := rankDir(t)
	w := open(t, dir, Options{Now: at(100)})
	if len(w.Next()) != 0 || w.Ended() || w.Name() != "" {
		t.Fatalf("a new writer knows %v, %v, %q", w.Next(), w.Ended(), w.Name())
	}

	for seq := range uint64(10) {
		must(t, w.AppendRecord(testRecord(1, seq)))
		must(t, w.AppendRecord(testRecord(2, seq+100)))
		must(t, w.AppendRecord(testRecord(900, seq)))
	}

	must(t, w.Close())
	other, err := Open(dir, testMeta(2), Options{Now: at(50)})
	must(t, err)
	if len(other.Next()) != 0 {
		t.Fatalf("another incarnation begins at %v", other.Next())
	}

	must(t, other.AppendRecord(testRecord(1, 5)))
	must(t, other.Close())

	w = open(t, dir, Options{Now: at(50)})
	if got := w.Next(); fmt.Sprint(got) != "map[1:10 2:110 900:10]" {
		t.Fatalf("Next()=%v", got)
	}

	if w.file != nil || w.Name() != "100" || w.Bytes() == 0 { // its 100 is not the newest any more
		t.Fatalf("resumed %s", w.Name())
	}

	must(t, w.AppendRecord(testRecord(1, 10)))
	must(t, w.Close())
	w = open(t, dir, Options{Now: at(200)})
	if got := w.Next(); fmt.Sprint(got) != "map[1:11 2:110 900:10]" || w.Name() != "102" {
		t.Fatalf("Next()=%v in %s", got, w.Name())
	}

	must(t, w.AppendRecord(testRecord(1, 11)))
	end := record.End{At: 1, How: "closed"}
	must(t, w.AppendLine(end.AppendLine(nil)))
	if err := w.AppendRecord(testRecord(1, 12)); !errors.Is(err, errEnded) {
		t.Fatalf("append after the end: %v", err)
	}

	must(t, w.Close())
	got := lines(t, dir)
	if len(got) != 3 || len(got["100"]) != 31 || len(got["101"]) != 2 || len(got["102"]) != 4 {
		t.Fatalf("segments: %v", got)
	}

	if w = open(t, dir, Options{}); !w.Ended() {
		t.Error("the end line is not seen")
	}

	must(t, w.Close())
}

func TestWriter_KnowsRingsWhoseSegmentsAreGone(t *testing.T) {
	dir := rankDir(t)
	w := open(t, dir, Options{Limit: minLimit, Now: at(100)})
	must(t, w.AppendRecord(testRecord(1, 41))) // a quiet ring
	for seq := range uint64(200) {
		must(t, w.AppendRecord(testRecord(2, seq)))
	}

	must(t, w.Close())
	all, err := List(dir)
	must(t, err)
	for _, s := range all[:len(all)-1] {
		must(t, Remove(dir, s))
	}

	w = open(t, dir, Options{Limit: minLimit})
	if got := w.Next(); got[1] != 42 || got[2] != 200 {
		t.Errorf("Next()=%v after ageing, want 1:42 2:200", got)
	}

	must(t, w.Close())
}

func TestWriter_RefusesALineThatNoSegmentTakes(t *testing.T) {
	dir := rankDir(t)
	w := open(t, dir, Options{Limit: minLimit})
	r := testRecord(1, 0)
	r.Path = strings.Repeat("x", minLimit)
	if err := w.AppendRecord(r); !errors.Is(err, errTooLong) {
		t.Errorf("record over the limit: %v", err)
	}

	if err := w.AppendLine([]byte(strings.Repeat("y", maxLine+1))); !errors.Is(err, errTooLong) {
		t.Errorf("line over MaxLine: %v", err)
	}

	if err := w.AppendLine([]byte("a\nb")); err == nil {
		t.Error("two lines were taken for one")
	}

	must(t, w.AppendRecord(testRecord(1, 1)))
	must(t, w.Close())

	if got := seqs(t, dir, minLimit); got[1] != 1 || len(got) != 1 {
		t.Errorf("records: %v", got)
	}
}

// TestWriter_RefusesWhatAGrownIdentityLeavesNoRoomFor: no endless rotation either.
func TestWriter_RefusesWhatAGrownIdentityLeavesNoRoomFor(t *testing.T) {
	dir := rankDir(t)
	w := open(t, dir, Options{Limit: minLimit, Buffer: 64 << 10})
	for ring := range uint32(65) { // makes "next" long
		must(t, w.AppendRecord(testRecord(ring+1, 1e15)))
	}

	must(t, w.Flush())
	r := testRecord(1, 1e15+1)
	r.Path = strings.Repeat("x", minLimit-minLimit/4-300)
	must(t, w.AppendRecord(r))
	if err := w.Flush(); !errors.Is(err, errTooLong) {
		t.Fatalf("Flush()=%v, want ErrTooLong", err)
	}

	must(t, w.AppendRecord(testRecord(1, 1e15+2)))
	must(t, w.Close())
	if got := seqs(t, dir, minLimit); got[1e15+2] != 1 || got[1e15+1] != 0 {
		t.Error("the records after a refused one are not there")
	}
}

func TestWriter_SetMeta(t *testing.T) {
	dir := rankDir(t)
	w := open(t, dir, Options{Now: at(100)})
	must(t, w.AppendRecord(testRecord(1, 0)))
	must(t, w.Flush())
	m := testMeta(1)
	m.Groups = []record.Group{{Dim: "dp", Name: "dp0", Size: 2, Ranks: []int{0, 3}, Index: 1}}
	must(t, w.SetMeta(m))
	must(t, w.SetMeta(m)) // no news
	if err := w.SetMeta(testMeta(9)); err == nil {
		t.Error("another incarnation was taken")
	}

	must(t, w.Close())
	got := lines(t, dir)["100"]
	if len(got) != 3 || !strings.Contains(got[2], `"dp0"`) || !strings.Contains(got[2], `{"meta":{"format":"laggard/1","segment":"`) {
		t.Fatalf("lines: %q", got)
	}

	w = open(t, dir, Options{}) // knows no groups yet
	must(t, w.AppendRecord(testRecord(1, 1)))
	must(t, w.Close())
	if got := lines(t, dir)["100"]; len(got) != 4 {
		t.Errorf("a restart wrote the identity again, or forgot the groups: %q", got)
	}
}

func TestWriter_NamesOnlyGrow(t *testing.T) {
	for _, c := range []struct {
		name    string
		planted []string
		now     int64
		want    string
	}{
		{"clock_stepped_back", []string{"500"}, 100, "501"},
		{"name_from_the_future", []string{"9999999999"}, 100, "10000000000"},
		{"compressed_counts", []string{"700.zst"}, 100, "701"},
		{"clock_before_the_epoch", nil, -5, "0"},
		{"foreign_names_do_not_count", []string{"800.txt", "parallel_group.json", "8x", "99999999999999999999"}, 100, "100"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := rankDir(t)
			must(t, os.MkdirAll(dir, 0o755))
			for _, name := range c.planted {
				must(t, os.WriteFile(filepath.Join(dir, name), nil, 0o644))
			}

			w := open(t, dir, Options{Now: at(c.now)})
			must(t, w.AppendRecord(testRecord(1, 0)))
			must(t, w.Close())
			if w.Name() != c.want {
				t.Errorf("segment is named %q, want %q", w.Name(), c.want)
			}
		})
	}

	t.Run("no_name_is_left", func(t *testing.T) {
		dir := rankDir(t)
		must(t, os.MkdirAll(filepath.Join(dir, "999999999999999999"), 0o755))
		w := open(t, dir, Options{})
		must(t, w.AppendRecord(testRecord(1, 0)))
		if err := w.Flush(); err == nil || !strings.Contains(err.Error(), "remove the file") {
			t.Errorf("Flush()=%v", err)
		}
	})
}

func TestWriter_BareWritesNoIdentity(t *testing.T) {
	dir := rankDir(t)
	for range 2 {
		w := open(t, dir, Options{Now: at(100), Bare: true})
		must(t, w.AppendLine([]byte(`{"Kind":1}`)))
		must(t, w.SetMeta(record.Meta{Incarnation: 1, Node: "n"}))
		must(t, w.Close())
	}

	if got := lines(t, dir); len(got) != 2 || got["100"][0] != `{"Kind":1}` || got["101"][0] != `{"Kind":1}` {
		t.Errorf("segments: %v", got)
	}
}

func TestWriter_OnCloseTellsEachFullSegment(t *testing.T) {
	dir := rankDir(t)
	var closed []string
	w := open(t, dir, Options{Limit: minLimit, Now: at(100), OnClose: func(path string) {
		closed = append(closed, filepath.Base(path))
		if _, err := Compress(path); err != nil {
			t.Error(err)
		}
	}})
	for seq := range uint64(100) {
		must(t, w.AppendRecord(testRecord(1, seq)))
	}

	must(t, w.Close())
	if len(closed) < 2 || closed[0] != "100" {
		t.Errorf("closed: %v", closed)
	}

	w = open(t, dir, Options{Limit: minLimit, Now: at(100)})
	if w.Next()[1] != 100 {
		t.Errorf("Next()=%v", w.Next())
	}

	if _, err := os.Stat(filepath.Join(dir, "100.zst")); errors.Is(err, fs.ErrNotExist) {
		t.Error("100.zst is missing")
	}

	must(t, w.Close())
	if n := len(seqs(t, dir, minLimit)); n != 100 {
		t.Errorf("%d records, want 100", n)
	}
}

// TestWriter_GoesOnWhenItsFilesAreDeleted: the open segment, then the directory.
func TestWriter_GoesOnWhenItsFilesAreDeleted(t *testing.T) {
	dir := rankDir(t)
	w := open(t, dir, Options{Now: at(100)})
	must(t, w.AppendRecord(testRecord(1, 0)))
	must(t, w.Sync())
	must(t, os.Remove(filepath.Join(dir, "100")))
	if err := w.Sync(); err == nil || !strings.Contains(err.Error(), "deleted while") {
		t.Errorf("Sync()=%v", err)
	}

	must(t, w.AppendRecord(testRecord(1, 1)))
	must(t, w.Sync())
	must(t, os.RemoveAll(filepath.Dir(dir)))
	if err := w.Sync(); err == nil || !strings.Contains(err.Error(), "deleted while") {
		t.Errorf("Sync()=%v", err)
	}

	must(t, w.AppendRecord(testRecord(1, 2)))
	must(t, w.Close())
	if got := seqs(t, dir, DefaultLimit); got[2] != 1 {
		t.Errorf("records %v", got)
	}
}
