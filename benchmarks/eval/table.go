package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/laggard-dev/laggard/analyzer/simulate"
)

// printTable prints one scenario a block: every demand with target and reached,
// and what the other tools' rules make of the same cases.
func printTable(w io.Writer, tallies map[string]tally) {
	head := "| # | injection | cases | demand | target | reached | |"
	line := "|---|---|---|---|---|---|---|"
	for _, r := range rules {
		head += " " + r.name + " |"
		line += "---|"
	}

	fmt.Fprintf(w, "%s\n%s\n", head, line)
	for _, n := range simulate.Names() {
		if t := tallies[n]; len(t) > 0 {
			t.print(w)
		}
	}

	fmt.Fprintln(w)
	for _, c := range overall(tallies) {
		fmt.Fprintf(w, "- %s %s\n", mark(c.ok), &c)
	}

	fmt.Fprintln(w, "\nThe other tools' columns: culprit nodes found / all, and the share of cases in which somebody innocent was accused.")
	for _, r := range rules {
		fmt.Fprintf(w, "- %s: %s\n", r.name, r.what)
	}
}

// print prints the block of one scenario.
func (t tally) print(w io.Writer) {
	row, what := simulate.Row(t[0].scenario)
	for k, c := range t.checks() {
		first := fmt.Sprintf("| %d | %s (`%s`) | %s |", row, what, t[0].scenario, t.size())
		if k > 0 {
			first = "| | | |"
		}

		fmt.Fprintf(w, "%s %s | %s | %s | %s |", first, c.demand, c.target, c.reached, mark(c.ok))
		for i := range rules {
			cell := ""
			if k == 0 {
				cell = t.rule(i)
			}

			fmt.Fprintf(w, " %s |", cell)
		}

		fmt.Fprintln(w)
	}
}

// size says how many cases there were and of what kind.
func (t tally) size() string {
	s := fmt.Sprint(len(t))
	var more []string
	if n := t.cases((*outcome).replayed); n > 0 {
		more = append(more, fmt.Sprintf("%d replayed", n))
	}

	if n := t.cases(func(o *outcome) bool { return o.ranks > 256 }); n > 0 {
		more = append(more, fmt.Sprintf("%d large", n))
	}

	if len(more) > 0 {
		s += " (" + strings.Join(more, ", ") + ")"
	}

	return s
}

// rule is the cell of another tool's rule, "" where it was not asked.
func (t tally) rule(i int) string {
	found, wrong := 0, 0
	for _, o := range t {
		if len(o.rules) == 0 {
			return ""
		}

		hit := 0
		for _, n := range o.truth.SlowNodes {
			hit += count(o.rules[i][n])
		}

		found, wrong = found+hit, wrong+count(len(o.rules[i]) > hit)
	}

	s := fmt.Sprintf("%.0f %% falsely", 100*share(wrong, len(t)))
	if all := t.sum((*outcome).culprits); all > 0 {
		s = fmt.Sprintf("%d/%d, ", found, all) + s
	}

	return s
}

// mark says whether a demand was met.
func mark(ok bool) string {
	if ok {
		return "reached"
	}

	return "**SHORT**"
}
