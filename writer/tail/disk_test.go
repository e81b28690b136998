package tail

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/row"
)

// TestDisk has a case for each way a disk can surprise a reader. R17.
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
		"a_line_too_long_at_the_end_is_passed_over_once": func(d *disk) {
			long := strings.Repeat("x", 2<<20) + "\n"
			d.write("100", "a\n"+long)
			d.look()
			d.look()
			d.add("100", "b\n")
			d.look()
			d.want("100 0 a", fmt.Sprintf("100 %d b", 2+len(long)))
			d.wantLost(row.Ledger{Name: "100", Reason: tooLong, Bytes: uint64(len(long)), Records: 1})
			if len(d.ids) != 1 {
				d.t.Fatalf("%d generations", len(d.ids))
			}
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
			d.wantLost(row.Ledger{Name: "100", Reason: record.TornLine, Bytes: 3, Records: 1})
		},
		"truncated_to_nothing_and_grown": func(d *disk) {
			d.write("100", "a\nb\n")
			d.look()
			d.must(os.Truncate(d.path("100"), 0))
			d.look()
			d.add("100", "c\n")
			d.look()
			d.want("100 0 a", "100 2 b", "100 0 c")
			d.wantLost(row.Ledger{Name: "100", Reason: record.Truncated})
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
			d.wantLost(row.Ledger{Name: "100", Reason: record.Truncated, Bytes: 5})
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
			err := s.Refresh()
			d.must(err)
			d.must(os.Remove(d.path("100")))
			d.must(os.Remove(d.path("101")))
			d.write("102", "c\n")
			d.look()
			d.want("102 0 c")
			d.wantLost(row.Ledger{Name: "100", Reason: record.Aged, Bytes: 2}, row.Ledger{Name: "101", Reason: record.Aged, Bytes: 3})
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
			d.wantLost(row.Ledger{Name: "100", Reason: late, Bytes: 5})
		},
		"older_name_that_comes_late_is_counted": func(d *disk) {
			d.write("100", "a\n")
			d.look()
			d.write("99", "b\n")
			d.look()
			d.add("100", "c\n")
			d.look()
			d.want("100 0 a", "100 2 c")
			d.wantLost(row.Ledger{Name: "99", Reason: late, Bytes: 2})
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
			err := s.Refresh()
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

			d.wantLost(row.Ledger{Name: "100", Reason: tooLong, Bytes: 3<<20 + 1, Records: 1})
		},
		"smaller_than_64_bytes": func(d *disk) { // too little for a checksum of the head
			d.write("100", "a\n")
			d.look()
			d.write("100", "b\n") // the same inode and size
			d.look()
			d.write("101", "a\n")
			d.look()
			d.want("100 0 a", "100 0 b", "101 0 a")
			if d.ids[0] == d.ids[1] || d.ids[0] == d.ids[2] {
				d.t.Fatalf("ids %v of three segments", d.ids)
			}
		},
		"sparse_hole_is_skipped_and_counted": func(d *disk) {
			d.write("100", "a\n")
			const hole = 1 << 40 // a terabyte that takes no room and must take no time
			f, err := os.OpenFile(d.path("100"), os.O_WRONLY, 0)
			d.must(err)
			_, err = f.WriteAt([]byte("\nb\n"), hole)
			d.must(err)
			d.must(f.Close())
			d.look()
			d.want("100 0 a", fmt.Sprintf("100 %d b", hole+1))
			d.wantLost(row.Ledger{Name: "100", Reason: tooLong, Bytes: hole - 1, Records: 1})
		},
		"truncated_and_regrown_to_the_same_size": func(d *disk) {
			d.write("100", "aa\nbb\ncc\n")
			d.look()
			d.must(os.Truncate(d.path("100"), 0))
			d.add("100", "aa\nbb\nxx\n")
			d.look()
			d.want("100 0 aa", "100 3 bb", "100 6 cc", "100 0 aa", "100 3 bb", "100 6 xx")
		},
		"symbolic_link_and_fifo_are_not_opened": func(d *disk) {
			d.must(os.Symlink("/etc/passwd", d.path("99")))
			d.must(unix.Mkfifo(d.path("98"), 0o644))
			d.write("100", "a\n")
			d.look()
			d.want("100 0 a")
		},
	}
	for name, run := range cases {
		t.Run(name, func(t *testing.T) { run(newDisk(t, Options{})) })
	}
}
