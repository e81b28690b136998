package main

import (
	"fmt"
	"os"
	"strings"
	"sync"

	"golang.org/x/term"
)

// progress shows on stderr how far long work has come: a bar when that is a terminal,
// else a line each quarter.
type progress struct {
	mu       sync.Mutex // done may come while whoever follows the work still calls at
	what     string
	terminal bool
	quarter  int  // the last one that was said, of an output that is no terminal
	drawn    bool // a bar stands in the line, which done has to end
}

// newProgress shows nothing yet.
func newProgress(what string) *progress {
	return &progress{what: what, terminal: term.IsTerminal(int(os.Stderr.Fd()))}
}

// at shows that n of a total are done. It may become another: files are found while others are
// read. Of 0 nobody knows yet, and nothing is shown.
func (p *progress) at(n, total int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if total <= 0 {
		return
	}

	if !p.terminal {
		// A log keeps each line, so it gets four.
		if q := 4 * n / total; q > p.quarter {
			p.quarter = q
			fmt.Fprintf(os.Stderr, "%s: %d of %d\n", p.what, n, total)
		}

		return
	}

	const width = 30
	full := min(width, width*n/total)
	fmt.Fprintf(os.Stderr, "\r%s %s%s %d/%d", p.what, strings.Repeat("█", full), strings.Repeat("░", width-full), n, total)
	p.drawn = true
}

// done ends the bar's line.
func (p *progress) done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.drawn {
		fmt.Fprintln(os.Stderr)
	}
}
