package report

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/laggard-dev/laggard/analyzer/frame"
)

// ANSI sequences. The colours are those of the terminal's palette, dark on light or light on dark.
const (
	reset  = "\x1b[0m"
	bold   = "\x1b[1m"
	dim    = "\x1b[2m"
	red    = "\x1b[31m"
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	cyan   = "\x1b[36m"
)

// Printer writes a verdict for people, as plain text unless it says more. It keeps the first
// error, which all its methods return from then on: what follows it is not written.
type Printer struct {
	W     io.Writer
	Color bool         // ANSI colours
	Width int          // columns; 0 means 100
	Frame *frame.Frame // for sparklines; nil leaves them out
	Made  string       // a sentence, as Made has it; "" leaves it out

	err error
}

// NewPrinter returns a printer to an output: with colours and the width of
// the window when it is a terminal, and without colours when NO_COLOR is set or TERM
// is "dumb".
func NewPrinter(w io.Writer) *Printer {
	p := &Printer{W: w}
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return p
	}

	p.Color = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	if width, _, err := term.GetSize(int(f.Fd())); err == nil {
		p.Width = width
	}

	return p
}

// width is how many columns a line has: a narrower window breaks it itself.
func (p *Printer) width() int { return max(40, cmp.Or(p.Width, 100)) }

// printf writes, unless something before could not be written.
func (p *Printer) printf(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.W, format, args...)
	}
}

// in returns s in a style, or as it is without colours.
func (p *Printer) in(style, s string) string {
	if !p.Color || s == "" {
		return s
	}

	return style + s + reset
}

// wrapped prints words broken at the width: the first line after the indent, the
// others under it. Without words it prints no line. A word that is too long stays whole.
func (p *Printer) wrapped(indent, s string) {
	line, used := indent, 0
	for _, word := range strings.Fields(s) {
		n := utf8.RuneCountInString(word)
		if used > 0 && len(indent)+used+1+n > p.width() {
			p.printf("%s\n", line)
			line, used = strings.Repeat(" ", len(indent)), 0
		}

		if used > 0 {
			line, used = line+" ", used+1
		}

		line, used = line+word, used+n
	}

	if used > 0 {
		p.printf("%s\n", line)
	}
}

// aligned prints a table with two spaces between columns; numbers are aligned
// right. paint colours a padded cell, after prints what follows a line; nil do nothing.
func aligned(p *Printer, head []string, lines [][]string, paint func(line, column int, cell string) string, after func(line int)) {
	widths := make([]int, len(head))
	right := make([]bool, len(head))
	for c, h := range head {
		widths[c] = utf8.RuneCountInString(h)
		right[c] = len(lines) > 0
		for _, l := range lines {
			widths[c] = max(widths[c], utf8.RuneCountInString(l[c]))
			// A number begins with a digit, with < or >, or with the first byte of ≤; what holds a comma,
			// a dash or a bracket is a list, or nothing.
			right[c] = right[c] && l[c] != "" && strings.IndexByte("0123456789<>\xe2", l[c][0]) >= 0 && !strings.ContainsAny(l[c], ",–(")
		}
	}

	cell := func(c int, s string) string {
		if right[c] {
			return strings.Repeat(" ", widths[c]-utf8.RuneCountInString(s)) + s
		}

		return pad(s, widths[c])
	}
	write := func(line int, cells []string) {
		text := "  "
		for c, s := range cells {
			s = cell(c, s)
			if c == len(cells)-1 && !right[c] {
				s = strings.TrimRight(s, " ")
			}

			if line < 0 {
				s = p.in(dim, s)
			} else if paint != nil {
				s = paint(line, c, s)
			}

			if c > 0 {
				text += "  "
			}

			text += s
		}

		p.printf("%s\n", text)
	}
	p.printf("\n")
	write(-1, head)
	for i, l := range lines {
		if write(i, l); after != nil {
			after(i)
		}
	}
}

// pad fills s with blanks up to n characters.
func pad(s string, n int) string {
	return s + strings.Repeat(" ", max(0, n-utf8.RuneCountInString(s)))
}
