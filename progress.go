package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"golang.org/x/term"
)

// progress shows how far long work has come: a bar when it goes to a terminal,
// else a line each quarter.
type progress struct {
	mu       sync.Mutex // done may come while whoever follows the work still calls at
	w        io.Writer
	what     string
	total    int // 0 until somebody knows: nothing is shown before
	terminal bool
	quarter  int  // the last one that was said, of an output that is no terminal
	drawn    bool // a bar stands in the line, which done has to end
}

// newProgress shows nothing yet; a total of 0 waits until of names one.
func newProgress(f *os.File, what string, total int) *progress {
	return &progress{w: f, what: what, total: total, terminal: term.IsTerminal(int(f.Fd()))}
}

// of shows that n of a total are done that may become another: files are found while others are
// read.
func (p *progress) of(n, total int) {
	p.total = total
	p.at(n)
}

// at shows that n of the total are done.
func (p *progress) at(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.total <= 0 {
		return
	}

	if !p.terminal {
		// A log keeps each line, so it gets four.
		if q := 4 * n / p.total; q > p.quarter {
			p.quarter = q
			fmt.Fprintf(p.w, "%s: %d of %d\n", p.what, n, p.total)
		}

		return
	}

	const width = 30
	full := min(width, width*n/p.total)
	fmt.Fprintf(p.w, "\r%s %s%s %d/%d", p.what, strings.Repeat("█", full), strings.Repeat("░", width-full), n, p.total)
	p.drawn = true
}

// done ends the bar's line.
func (p *progress) done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.drawn {
		fmt.Fprintln(p.w)
	}
}
