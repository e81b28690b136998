package tail

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"go.uber.org/goleak"

	"laggard/schemas/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// disk is a rank directory that a test does things to, and a stream over it.
type disk struct {
	t    *testing.T
	root string
	dir  string
	tree *Tree
	got  []string // "segment offset line"
	ids  []record.ID
	lost []Loss
	name string
}

func newDisk(t *testing.T, o Options) *disk {
	t.Helper()
	root := t.TempDir()
	d := &disk{t: t, root: root, dir: filepath.Join(root, "job", "3"), tree: New(root, o)}
	if err := os.MkdirAll(d.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.tree.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func (d *disk) Segment(id record.ID, name string) {
	d.name = name
	d.ids = append(d.ids, id)
}

func (d *disk) Line(offset int64, line []byte) {
	d.got = append(d.got, fmt.Sprintf("%s %d %s", d.name, offset, line))
}

func (d *disk) path(name string) string { return filepath.Join(d.dir, name) }

func (d *disk) write(name, text string) {
	d.t.Helper()
	if err := os.WriteFile(d.path(name), []byte(text), 0o644); err != nil {
		d.t.Fatal(err)
	}
}

func (d *disk) add(name, text string) {
	d.t.Helper()
	f, err := os.OpenFile(d.path(name), os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		d.t.Fatal(err)
	}
	if _, err := f.WriteString(text); err != nil {
		d.t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		d.t.Fatal(err)
	}
}

func (d *disk) must(err error) {
	d.t.Helper()
	if err != nil {
		d.t.Fatal(err)
	}
}

// look scans and reads to the end, as a pass does.
func (d *disk) look() {
	d.t.Helper()
	streams, err := d.tree.Scan()
	d.must(err)
	for _, s := range streams {
		_, err := s.Refresh()
		d.must(err)
		for more := true; more; {
			_, more, err = s.Read(64, d) // a small budget: every way through the loop
			d.must(err)
		}
		d.lost = append(d.lost, s.Losses()...)
	}
}

func (d *disk) stream() *Stream {
	d.t.Helper()
	streams, err := d.tree.Scan()
	d.must(err)
	if len(streams) != 1 {
		d.t.Fatalf("%d streams", len(streams))
	}
	return streams[0]
}

func (d *disk) want(lines ...string) {
	d.t.Helper()
	if !slices.Equal(d.got, lines) {
		d.t.Fatalf("lines:\n  %s\nwant:\n  %s", strings.Join(d.got, "\n  "), strings.Join(lines, "\n  "))
	}
}

func (d *disk) wantLost(losses ...Loss) {
	d.t.Helper()
	got := slices.Clone(d.lost)
	for i := range got {
		got[i].ID = 0
	}
	if !slices.Equal(got, losses) {
		d.t.Fatalf("lost %+v, want %+v", got, losses)
	}
}

func meta(id string) string {
	return `{"meta":{"format":"laggard/1","segment":"` + id + `","job":"job","rank":3}}`
}

const (
	idA = "00000000000000aa"
	idB = "00000000000000bb"
)

// TestDisk has a case for each way a disk can surprise a reader.
func TestDisk(t *testing.T) {
	cases := map[string]func(*disk){
		"partial_last_line_is_kept_back": func(d *disk) {
			d.write("100", "a\nb")
			d.look()
			d.want("100 0 a")
			d.add("100", "c\nd")
			d.look()
			d.want("100 0 a", "100 2 bc")
			d.wantLost()
		},
		"no_newline_yet_not_even_one": func(d *disk) {
			d.write("100", "abc")
			d.look()
			d.want()
			d.add("100", "\n")
			d.look()
			d.want("100 0 abc")
		},
		"double_rotation_skips_nothing": func(d *disk) {
			d.write("100", "a\n")
			d.look()
			d.add("100", "b\n")
			d.write("101", "c\n")
			d.write("102", "d\n")
			d.look()
			d.want("100 0 a", "100 2 b", "101 0 c", "102 0 d")
			d.wantLost()
		},
		"names_in_order_of_number": func(d *disk) {
			d.write("99", "a\n")
			d.write("1000", "c\n")
			d.write("100", "b\n")
			d.write("notes.txt", "x\n")
			d.must(os.Mkdir(d.path("101"), 0o755))
			d.look()
			d.want("99 0 a", "100 0 b", "1000 0 c")
		},
		"empty_segment_is_left_for_the_next": func(d *disk) {
			d.write("100", "")
			d.look()
			d.write("101", "a\n")
			d.look()
			d.want("101 0 a")
			d.wantLost()
		},
		"torn_line_of_a_closed_segment_is_counted": func(d *disk) {
			d.write("100", "a\nbcd")
			d.write("101", "e\n")
			d.look()
			d.want("100 0 a", "101 0 e")
			d.wantLost(Loss{Segment: "100", Reason: record.TornLine, Bytes: 3, Lines: 1})
		},
		"truncated_to_nothing_and_grown": func(d *disk) {
			d.write("100", "a\nb\n")
			d.look()
			d.must(os.Truncate(d.path("100"), 0))
			d.look()
			d.add("100", "c\n")
			d.look()
			d.want("100 0 a", "100 2 b", "100 0 c")
			d.wantLost(Loss{Segment: "100", Reason: record.Truncated})
			if d.ids[0] == d.ids[1] {
				d.t.Fatal("two generations have one id")
			}
		},
		"copytruncate_and_regrown_past_the_old_place": func(d *disk) {
			d.write("100", "same first line\nb\n")
			d.look()
			d.must(os.Truncate(d.path("100"), 0))
			d.add("100", "same first line\nccccc\ndddddd\n")
			d.look()
			d.want("100 0 same first line", "100 16 b", "100 0 same first line", "100 16 ccccc", "100 22 dddddd")
			if d.ids[0] == d.ids[1] {
				d.t.Fatal("two generations have one id")
			}
		},
		"truncated_with_bytes_unread": func(d *disk) {
			d.write("100", "a\nbcdef")
			d.look()
			d.must(os.Truncate(d.path("100"), 0))
			d.add("100", "x\n")
			d.look()
			d.want("100 0 a", "100 0 x")
			d.wantLost(Loss{Segment: "100", Reason: record.Truncated, Bytes: 5})
		},
		"own_segment_shortened_by_a_power_loss_goes_on_at_its_end": func(d *disk) {
			first := meta(idA) + "\n"
			d.write("100", first+"a\nb\nc\n")
			d.look()
			d.must(os.Truncate(d.path("100"), int64(len(first)+2)))
			d.look()
			d.add("100", "d\n")
			d.look()
			n := len(first)
			d.want("100 0 "+meta(idA), fmt.Sprintf("100 %d a", n), fmt.Sprintf("100 %d b", n+2), fmt.Sprintf("100 %d c", n+4), fmt.Sprintf("100 %d d", n+2))
			if len(d.ids) != 1 {
				d.t.Fatalf("%d generations", len(d.ids))
			}
		},
		"renamed_over_by_another_file": func(d *disk) {
			d.write("100", "a\nb\n")
			d.look()
			d.write("tmp", "c\n")
			d.must(os.Rename(d.path("tmp"), d.path("100")))
			d.look()
			d.want("100 0 a", "100 2 b", "100 0 c")
		},
		"inode_reused_after_delete_and_create": func(d *disk) {
			d.write("100", "a\nb\n")
			d.look()
			d.must(os.Remove(d.path("100")))
			d.write("100", "x\ny\nz\n") // ext4 gives the inode again at once
			d.look()
			d.want("100 0 a", "100 2 b", "100 0 x", "100 2 y", "100 4 z")
		},
		"same_content_in_a_new_file_is_the_same_segment": func(d *disk) {
			d.write("100", "a\nb\n")
			d.look()
			d.write("tmp", "a\nb\nc\n") // restored from a copy
			d.must(os.Rename(d.path("tmp"), d.path("100")))
			d.look()
			d.want("100 0 a", "100 2 b", "100 4 c")
			d.wantLost()
		},
		"removed_while_open_is_read_to_its_end": func(d *disk) {
			d.write("100", "a\n")
			d.look()
			d.add("100", "b\n")
			d.must(os.Remove(d.path("100")))
			d.write("101", "c\n")
			d.look()
			d.want("100 0 a", "100 2 b", "101 0 c")
			d.wantLost()
		},
		"aged_before_it_was_read_is_counted": func(d *disk) {
			d.write("100", "a\n")
			d.write("101", "bb\n")
			s := d.stream()
			_, err := s.Refresh()
			d.must(err)
			d.must(os.Remove(d.path("100")))
			d.must(os.Remove(d.path("101")))
			d.write("102", "c\n")
			d.look()
			d.want("102 0 c")
			d.wantLost(Loss{Segment: "100", Reason: record.Aged, Bytes: 2}, Loss{Segment: "101", Reason: record.Aged, Bytes: 3})
		},
		"directory_removed_is_counted": func(d *disk) {
			d.write("100", "a\nbc")
			d.look()
			s := d.stream()
			d.must(os.RemoveAll(d.dir))
			_, err := d.tree.Scan()
			d.must(err)
			d.lost = append(d.lost, s.Losses()...)
			d.want("100 0 a")
		},
		"grown_after_the_next_was_begun_is_counted": func(d *disk) {
			d.write("100", "a\n")
			d.write("101", "b\n")
			d.look()
			d.add("100", "late\n")
			d.look()
			d.look()
			d.want("100 0 a", "101 0 b")
			d.wantLost(Loss{Segment: "100", Reason: Late, Bytes: 5})
		},
		"older_name_that_comes_late_is_counted": func(d *disk) {
			d.write("100", "a\n")
			d.look()
			d.write("99", "b\n")
			d.look()
			d.add("100", "c\n")
			d.look()
			d.want("100 0 a", "100 2 c")
			d.wantLost(Loss{Segment: "99", Reason: Late, Bytes: 2})
		},
		"identical_first_lines_are_different_segments": func(d *disk) {
			d.write("100", "same\na\n")
			d.write("101", "same\nb\n")
			d.look()
			d.want("100 0 same", "100 5 a", "101 0 same", "101 5 b")
			if d.ids[0] == d.ids[1] {
				d.t.Fatal("two segments have one id")
			}
		},
		"copy_and_hard_link_of_a_segment_are_read_once": func(d *disk) {
			d.write("100", meta(idA)+"\na\n")
			d.must(os.Link(d.path("100"), d.path("101")))
			d.write("102", meta(idA)+"\na\n")
			d.write("103", meta(idB)+"\nb\n")
			d.look()
			n := len(meta(idA)) + 1
			d.want("100 0 "+meta(idA), fmt.Sprintf("100 %d a", n), "103 0 "+meta(idB), fmt.Sprintf("103 %d b", n))
		},
		"compressed_in_the_middle_of_reading": func(d *disk) {
			d.write("100", "a\nb\n")
			s := d.stream()
			_, err := s.Refresh()
			d.must(err)
			_, _, err = s.Read(1, d)
			d.must(err)
			d.compress("100")
			d.write("101", "c\n")
			d.look()
			d.want("100 0 a", "100 2 b", "101 0 c")
			d.wantLost()
		},
		"damaged_compressed_segment_is_counted_and_left": func(d *disk) {
			d.write("100", strings.Repeat("abcdefg\n", 1000))
			d.compress("100")
			b, err := os.ReadFile(d.path("100.zst"))
			d.must(err)
			d.write("100.zst", string(b[:len(b)/2]))
			d.write("101", "c\n")
			d.look()
			if last := d.got[len(d.got)-1]; last != "101 0 c" {
				d.t.Fatalf("last line %q", last)
			}
			if len(d.lost) != 1 || d.lost[0].Reason != record.Corrupt {
				d.t.Fatalf("lost %+v", d.lost)
			}
		},
		"line_too_long_is_counted_and_skipped": func(d *disk) {
			d.write("100", "a\n"+strings.Repeat("x", 3<<20)+"\nb\n")
			d.look()
			if len(d.got) != 2 || !strings.HasSuffix(d.got[1], " b") {
				d.t.Fatalf("lines %.80q", d.got)
			}
			d.wantLost(Loss{Segment: "100", Reason: TooLong, Bytes: 3<<20 + 1, Lines: 1})
		},
		"symbolic_link_and_fifo_are_not_opened": func(d *disk) {
			d.must(os.Symlink("/etc/passwd", d.path("99")))
			d.must(mkfifo(d.path("98")))
			d.write("100", "a\n")
			d.look()
			d.want("100 0 a")
		},
	}
	for name, run := range cases {
		t.Run(name, func(t *testing.T) { run(newDisk(t, Options{})) })
	}
}

func (d *disk) compress(name string) {
	d.t.Helper()
	b, err := os.ReadFile(d.path(name))
	d.must(err)
	w, err := zstd.NewWriter(nil)
	d.must(err)
	d.write(name+".zst", string(w.EncodeAll(b, nil)))
	d.must(w.Close())
	d.must(os.Remove(d.path(name)))
}

// TestRestart reads a stream in two halves, the second by a new tree that begins
// at the first one's position.
func TestRestart(t *testing.T) {
	d := newDisk(t, Options{})
	first := meta(idA) + "\n"
	d.write("100", "old\n")
	d.write("101", first+"a\n")
	d.look()
	p := d.stream().Position()
	if want := (Position{Segment: "101", ID: 0xaa, Offset: int64(len(first) + 2)}); p != want {
		t.Fatalf("Position() = %+v, want %+v", p, want)
	}
	d.add("101", "b\n")
	d.write("102", "c\n")
	again := func(p Position) {
		t.Helper()
		d.got, d.tree = nil, New(d.root, Options{})
		_, err := d.stream().Start(p)
		d.must(err)
		d.look()
		d.must(d.tree.Close())
	}
	again(p)
	d.want(fmt.Sprintf("101 %d b", len(first)+2), "102 0 c")
	again(Position{Segment: "101", ID: 0xbb, Offset: 5}) // another generation has the name
	d.want("100 0 old", "101 0 "+meta(idA), fmt.Sprintf("101 %d a", len(first)), fmt.Sprintf("101 %d b", len(first)+2), "102 0 c")
	d.must(os.Remove(d.path("101")))
	again(p) // the segment is gone: on with the next
	d.want("102 0 c")
	again(Position{Segment: "../../etc", Offset: 5}) // a damaged cursor
	d.want("100 0 old", "102 0 c")
	again(Position{Segment: "1000"}) // the directory was made anew
	d.want("100 0 old", "102 0 c")
}

// TestFewFiles reads more segments (LAGGARD_TEST_FILES, 2,000 by default) than may
// be open, in turns.
func TestFewFiles(t *testing.T) {
	root := t.TempDir()
	files := 2000
	if n, err := strconv.Atoi(os.Getenv("LAGGARD_TEST_FILES")); err == nil {
		files = n
	}
	const ranks = 100
	segments := files / ranks
	t.Logf("%d segments of %d ranks, 64 open files", ranks*segments, ranks)
	for r := range ranks {
		dir := filepath.Join(root, "job", fmt.Sprint(r))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for s := range segments {
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(100+s)), fmt.Appendf(nil, "%d-%d-a\n%d-%d-b\n", r, s, r, s), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	tree := New(root, Options{Files: 64})
	d := &disk{t: t, tree: tree}
	streams, err := tree.Scan()
	if err != nil || len(streams) != ranks {
		t.Fatalf("%d streams: %v", len(streams), err)
	}
	for _, s := range streams {
		if _, err := s.Refresh(); err != nil {
			t.Fatal(err)
		}
	}
	for busy := true; busy; {
		busy = false
		for _, s := range streams {
			n, _, err := s.Read(100, d)
			if err != nil {
				t.Fatal(err)
			}
			busy = busy || n > 0
			if len(tree.open) > 64 {
				t.Fatalf("%d files open", len(tree.open))
			}
		}
	}
	seen := map[string]bool{}
	for _, line := range d.got {
		_, line, _ = strings.Cut(line, " ")
		seen[line] = true
	}
	if len(d.got) != 2*ranks*segments {
		t.Fatalf("%d lines, want %d", len(d.got), 2*ranks*segments)
	}
	if err := tree.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestLease(t *testing.T) {
	dir := t.TempDir()
	foreign, err := TakeLease(dir, false)
	if err != nil || !foreign.Held() || foreign.Claimed() {
		t.Fatalf("TakeLease: %v, held %t, claimed %t", err, foreign.Held(), foreign.Claimed())
	}
	own, err := TakeLease(dir, true)
	if !errors.Is(err, ErrLeased) || own.Held() {
		t.Fatalf("second TakeLease: %v", err)
	}
	if !foreign.Claimed() {
		t.Fatal("the holder does not see the claim")
	}
	if err := foreign.Close(); err != nil {
		t.Fatal(err)
	}
	if err := own.Retry(); err != nil || !own.Held() {
		t.Fatalf("Retry: %v", err)
	}
	if err := own.Close(); err != nil {
		t.Fatal(err)
	}
	if third, err := TakeLease(dir, false); err != nil || third.Claimed() || third.Close() != nil {
		t.Fatalf("after both are gone: %v", err)
	}
}

func TestCursor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state", "cursor.json")
	if m, err := LoadCursor(path, "s"); m != nil || err != nil {
		t.Fatalf("LoadCursor without a file: %v, %v", m, err)
	}
	want := map[Key]Position{{"j", 3}: {Segment: "100", ID: 1<<64 - 1, Offset: 42, State: "{\"x\":1}"}, {"k\xff", 0}: {}}
	if err := SaveCursor(path, "s", want); err != nil {
		t.Fatal(err)
	}
	got, err := LoadCursor(path, "s")
	if err != nil || got[Key{"j", 3}] != want[Key{"j", 3}] {
		t.Fatalf("LoadCursor: %v, %v", got, err)
	}
	if m, err := LoadCursor(path, "another"); len(m) != 0 || err != nil {
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
		if m, err := LoadCursor(path, "s"); err == nil || m != nil {
			t.Fatalf("LoadCursor of %d of %d bytes: %v, %v", i, len(b), m, err)
		}
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(path), ".cursor-*"))
	if err != nil || len(left) != 0 {
		t.Fatalf("left behind: %v, %v", left, err)
	}
}

func FuzzCursor(f *testing.F) {
	f.Add([]byte("{}\n00000000\n"))
	f.Fuzz(func(t *testing.T, b []byte) { _, _ = parseCursor(b, "s") })
}
