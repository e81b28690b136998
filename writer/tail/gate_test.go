package tail

import (
	"errors"
	"os"
	"strings"
	"testing"
)

// TestRelease: a segment is either begun or released, never both, and the decision
// outlives the process.
func TestRelease(t *testing.T) {
	d := newDisk(t, Options{})
	d.write("100", "a\n")
	s := d.stream()
	d.must(s.Guard(nil))
	d.look()
	written := func() error { return nil }
	if err := s.Release(100, written); !errors.Is(err, errReading) {
		t.Fatalf("released what is being read: %v", err)
	}

	d.write("101", "b\n")
	d.write("102", "c\n")
	d.must(s.Release(101, written))
	d.look()
	if !s.Releasing() {
		t.Fatal("101 is still there and forgotten")
	}

	d.must(os.Remove(d.path("101")))
	d.look()
	d.look()
	if s.Releasing() {
		t.Fatal("101 is gone and not forgotten")
	}

	d.want("100 0 a", "102 0 c")
	d.wantLost() // who released it has the account

	d.tree.Close()
	d.tree = New(d.root, Options{}) // the next process
	s = d.stream()
	d.must(s.Guard(func(name string) bool { return name == "103" }))
	if err := s.Release(102, written); !errors.Is(err, errReading) {
		t.Fatalf("released what an earlier process may have stored: %v", err)
	}

	d.got = nil
	d.write("103", "aged\n")
	d.write("104", "d\n")
	d.look()
	d.want("100 0 a", "102 0 c", "104 0 d")
	d.wantLost()
}

// TestRelease_NotAccounted: the loss could not be written down, so nothing is lost.
func TestRelease_NotAccounted(t *testing.T) {
	d := newDisk(t, Options{})
	d.write("100", "a\n")
	s := d.stream()
	d.must(s.Guard(nil))
	full := errors.New("disk full")
	if err := s.Release(100, func() error { return full }); !errors.Is(err, full) {
		t.Fatalf("Release()=%v", err)
	}

	d.look()
	d.want("100 0 a")
}

// TestReachedIsNoNumber: a loss of power may leave anything of a mark that was being
// made. What is there counts as begun then, so that nothing is both stored and lost.
func TestReachedIsNoNumber(t *testing.T) {
	for _, left := range []string{"garbage", "17530000\x00\x00\x00\x00", strings.Repeat("\x00", reachedLen)} {
		d := newDisk(t, Options{})
		d.write("100", "a\n")
		d.write("101", "b\n")
		d.write(reachedName, left)
		s := d.stream()
		d.must(s.Guard(nil))
		if !s.Begun(101) || s.Begun(102) {
			t.Errorf("%q: begun up to 100: %t, 101: %t, 102: %t; want up to 101", left, s.Begun(100), s.Begun(101), s.Begun(102))
		}

		if err := s.Release(101, func() error { return nil }); !errors.Is(err, errReading) {
			t.Errorf("%q: Release()=%v", left, err)
		}

		d.look()
		d.want("100 0 a", "101 0 b")
	}
}
