package tail

import (
	"errors"
	"os"
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
	if err := s.Release(100, written); !errors.Is(err, ErrReading) {
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

	d.must(d.tree.Close())
	d.tree = New(d.root, Options{}) // the next process
	s = d.stream()
	d.must(s.Guard(func(name string) bool { return name == "103" }))
	if err := s.Release(102, written); !errors.Is(err, ErrReading) {
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

func TestReachedIsNoNumber(t *testing.T) {
	d := newDisk(t, Options{})
	d.write("100", "a\n")
	d.write(reachedName, "garbage")
	if err := d.stream().Guard(nil); err == nil {
		t.Fatal("a damaged mark is no error")
	}
}
