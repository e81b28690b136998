package tail

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/writer/segment"
)

// scale returns a number from the environment, for the long forms of tests.
func scale(t *testing.T, name string, short int) int {
	t.Helper()
	n := short
	if text := os.Getenv(name); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}

	t.Logf("scale: %d (%s)", n, name)
	return n
}

// TestInodeReuseStorm deletes a file and makes another one, again and again: under
// a new name or the same one, with the reader there or away, mostly with the same
// inode. Nothing is skipped and nothing is read twice. R16.
func TestInodeReuseStorm(t *testing.T) {
	n := scale(t, "LAGGARD_TEST_REUSES", 3000)
	d := newDisk(t, Options{})
	reused, inode, at := 0, uint64(0), segment.Position{}
	for i := range n {
		name := strconv.Itoa(100 + i/2) // each name twice
		d.write(name, fmt.Sprintf("%d-a\n%d-b\n", i, i))
		var st unix.Stat_t
		d.must(unix.Stat(d.path(name), &st))
		if st.Ino == inode {
			reused++
		}

		inode = st.Ino
		if i%4 < 2 && i > 0 { // the reader was away: it comes back with its position
			d.tree = New(d.root, Options{})
			_, err := d.stream().Start(at)
			d.must(err)
		}

		d.look()
		at = d.stream().Position()
		if (i+1)%4 < 2 {
			d.tree.Close()
		} else { // others need their turn: an open file would keep the inode from being given again
			d.tree.open[0].release()
		}

		d.must(os.Remove(d.path(name)))
	}

	t.Logf("%d of %d files had the inode of the one before", reused, n)
	if len(d.got) != 2*n {
		t.Fatalf("%d lines read, want %d", len(d.got), 2*n)
	}

	for i, got := range d.got {
		name, want := strconv.Itoa(100+i/4), fmt.Sprintf("%d-%c", i/2, 'a'+i%2)
		if !strings.HasPrefix(got, name+" ") || !strings.HasSuffix(got, " "+want) {
			t.Fatalf("line %d is %q, want %s of segment %s", i, got, want, name)
		}
	}

	for _, l := range d.lost {
		if l.Bytes != 0 {
			t.Fatalf("lost %+v", l)
		}
	}

	if reused < n/2 {
		t.Logf("THIS FILE SYSTEM GIVES FEW INODES AGAIN, the storm was a breeze: run on ext4")
	}
}

// lastLines counts lines and keeps those that are not the common ones.
type lastLines struct {
	common []byte
	lines  int
	last   map[string]int
	ids    map[record.ID]bool
}

func (v *lastLines) Segment(id record.ID, _ string) { v.ids[id] = true }

func (*lastLines) Torn(int64) {}

func (v *lastLines) Line(_ int64, line []byte) {
	v.lines++
	if !bytes.Equal(line, v.common) {
		v.last[string(line)]++
	}
}

// TestIdenticalPrefixes: a thousand files begin with the same bytes (a megabyte in
// the long form), and each is read, once. R18.
func TestIdenticalPrefixes(t *testing.T) {
	const files, width = 1000, 1024
	prefix := scale(t, "LAGGARD_TEST_PREFIX", 16<<10)
	v := &lastLines{common: bytes.Repeat([]byte("x"), width-1), last: map[string]int{}, ids: map[record.ID]bool{}}
	d := newDisk(t, Options{})
	head := strings.Repeat(string(v.common)+"\n", prefix/width)
	for i := range files {
		d.write(strconv.Itoa(100+i), head+fmt.Sprintf("file %d\n", i))
	}

	streams, err := d.tree.Scan()
	d.must(err)
	for range 2 { // the second time there is nothing more
		err = streams[0].Refresh()
		d.must(err)
		for more := true; more; {
			_, more, err = streams[0].Read(1<<20, v)
			d.must(err)
		}
	}

	if want := files * (prefix/width + 1); v.lines != want || len(v.last) != files || len(v.ids) != files {
		t.Fatalf("%d lines, %d different, %d ids; want %d, %d, %d", v.lines, len(v.last), len(v.ids), want, files, files)
	}

	for line, times := range v.last {
		if times != 1 {
			t.Fatalf("%q was read %d times", line, times)
		}
	}

	if left, _ := filepath.Glob(filepath.Join(d.dir, "*")); len(left) != files {
		t.Fatalf("%d files left, want %d", len(left), files)
	}
}
