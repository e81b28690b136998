package tail

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/laggard-dev/laggard/schemas/keep"
	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/writer/segment"
)

// TestRestart reads a stream in two halves, the second by a new tree that begins
// at the first one's position.
func TestRestart(t *testing.T) {
	d := newDisk(t, Options{})
	first := meta(idA) + "\n"
	d.write("100", "old\n")
	d.write("101", first+"a\n")
	d.look()
	p := d.stream().Position()
	if want := (segment.Position{Segment: "101", ID: 0xaa, Offset: int64(len(first) + 2)}); p != want {
		t.Fatalf("Position() = %+v, want %+v", p, want)
	}

	d.add("101", "b\n")
	d.write("102", "c\n")
	again := func(p segment.Position) {
		t.Helper()
		d.got, d.tree = nil, New(d.root, Options{})
		_, err := d.stream().Start(p)
		d.must(err)
		d.look()
		d.tree.Close()
	}
	again(p)
	d.want(fmt.Sprintf("101 %d b", len(first)+2), "102 0 c")
	again(segment.Position{Segment: "101", ID: 0xbb, Offset: 5}) // another generation has the name
	d.want("100 0 old", "101 0 "+meta(idA), fmt.Sprintf("101 %d a", len(first)), fmt.Sprintf("101 %d b", len(first)+2), "102 0 c")
	d.must(os.Remove(d.path("101")))
	again(p) // the segment is gone: on with the next
	d.want("102 0 c")
	again(segment.Position{Segment: "../../etc", Offset: 5}) // a damaged cursor
	d.want("100 0 old", "102 0 c")
	again(segment.Position{Segment: "1000"}) // the directory was made anew
	d.want("100 0 old", "102 0 c")
}

func TestCursor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state", "cursor.json")
	if m, _, err := LoadCursor(path, "s"); m != nil || err != nil {
		t.Fatalf("LoadCursor without a file: %v, %v", m, err)
	}

	want := map[record.RankID]segment.Position{{Job: "j", Rank: 3}: {Segment: "100", ID: 1<<64 - 1, Offset: 42, State: "{\"x\":1}"}, {Job: "k\xff"}: {}}
	if err := SaveCursor(path, "s", "c/2", want); err != nil {
		t.Fatal(err)
	}

	j3 := record.RankID{Job: "j", Rank: 3}
	got, shard, err := LoadCursor(path, "s")
	if err != nil || shard != "c/2" || got[j3] != want[j3] {
		t.Fatalf("LoadCursor: %v, %v", got, err)
	}

	if m, _, err := LoadCursor(path, "another"); len(m) != 0 || err != nil {
		t.Fatalf("LoadCursor of another store: %v, %v", m, err)
	}

	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	for i := range b { // cut at every byte: an error or nothing, never a wrong place
		if err := os.WriteFile(path, b[:i], 0o644); err != nil {
			t.Fatal(err)
		}

		if m, _, err := LoadCursor(path, "s"); err == nil || m != nil {
			t.Fatalf("LoadCursor of %d of %d bytes: %v, %v", i, len(b), m, err)
		}
	}

	left, err := filepath.Glob(filepath.Join(filepath.Dir(path), keep.Half+"*"))
	if err != nil || len(left) != 0 {
		t.Fatalf("left behind: %v, %v", left, err)
	}
}

func FuzzCursor(f *testing.F) {
	f.Add([]byte("{}\n00000000\n"))
	f.Fuzz(func(t *testing.T, b []byte) { _, _, _ = parseCursor(b, "s") })
}

// TestCursor_Sweep: what a killed writer left behind goes, what one writes stays.
func TestCursor_Sweep(t *testing.T) {
	dir := t.TempDir()
	left, held := filepath.Join(dir, keep.Half+"1"), filepath.Join(dir, keep.Half+"2")
	for _, path := range []string{left, held} {
		if err := os.WriteFile(path, []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	f, err := os.Open(held)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}

	if _, _, err := LoadCursor(filepath.Join(dir, "cursor.json"), "s"); err != nil {
		t.Fatal(err)
	}

	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file of a killed writer is there: %v", err)
	}

	if _, err := os.Stat(held); err != nil {
		t.Errorf("the file of a live writer is gone: %v", err)
	}
}
