package report

import (
	"fmt"
	"io"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// terminal opens a pseudo-terminal of that width.
func terminal(t *testing.T, width uint16) *os.File {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { master.Close() })
	fd := int(master.Fd())
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}

	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 40, Col: width})
	}

	if err != nil {
		t.Fatal(err)
	}

	f, err := os.OpenFile(fmt.Sprint("/dev/pts/", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { f.Close() })
	return f
}

// TestNewPrinter: colours on a terminal alone, and not where the user wants none.
func TestNewPrinter(t *testing.T) {
	tty := terminal(t, 132)
	pipe, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	defer w.Close()
	for _, c := range []struct {
		name, noColor, term string
		out                 io.Writer
		want                Printer
	}{
		{"terminal", "", "xterm", tty, Printer{Color: true, Width: 132}},
		{"NO_COLOR", "1", "xterm", tty, Printer{Width: 132}},
		{"dumb", "", "dumb", tty, Printer{Width: 132}},
		{"pipe", "", "xterm", w, Printer{}},
		{"no file", "", "xterm", io.Discard, Printer{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("NO_COLOR", c.noColor)
			t.Setenv("TERM", c.term)
			c.want.W = c.out
			if got := NewPrinter(c.out); *got != c.want {
				t.Errorf("%+v, want %+v", *got, c.want)
			}
		})
	}
}
