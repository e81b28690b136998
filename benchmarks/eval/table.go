package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/laggard-dev/laggard/analyzer/simulate"
)

// shownFailures bounds the failing cases that are printed per scenario.
const shownFailures = 12

// printTable prints one scenario a block: every demand with target and reached,
// and what the anchors' rules make of the same cases.
func printTable(w io.Writer, tallies map[string]*tally) {
	head := "| # | injection | cases | demand | target | reached | |"
	line := "|---|---|---|---|---|---|---|"
	for _, r := range rules {
		head += " " + r.name + " |"
		line += "---|"
	}

	fmt.Fprintf(w, "%s\n%s\n", head, line)
	for _, n := range simulate.Names() {
		t := tallies[n]
		if t == nil || t.cases == 0 {
			continue
		}

		row, what := simulate.Row(n)
		for k, c := range t.checks() {
			first := fmt.Sprintf("| %d | %s (`%s`) | %s |", row, what, n, t.size())
			if k > 0 {
				first = "| | | |"
			}

			fmt.Fprintf(w, "%s %s | %s | %s | %s |", first, c.what, c.target, c.reached, mark(c.ok))
			for i := range rules {
				cell := ""
				if k == 0 && t.rules != nil {
					cell = t.anchor(i)
				}

				fmt.Fprintf(w, " %s |", cell)
			}

			fmt.Fprintln(w)
		}
	}

	fmt.Fprintln(w)
	for _, c := range overall(tallies) {
		fmt.Fprintf(w, "- %s %s: %s (target %s)\n", mark(c.ok), c.what, c.reached, c.target)
	}

	fmt.Fprintln(w, "\nThe anchors' columns: culprit nodes found / all, and the share of cases in which somebody innocent was accused.")
	for _, r := range rules {
		fmt.Fprintf(w, "- %s: %s\n", r.name, r.what)
	}
}

// size says how many cases there were and of what kind.
func (t *tally) size() string {
	s := fmt.Sprint(t.cases)
	var more []string
	if t.replayed > 0 {
		more = append(more, fmt.Sprintf("%d replayed", t.replayed))
	}

	if t.large > 0 {
		more = append(more, fmt.Sprintf("%d large", t.large))
	}

	if len(more) > 0 {
		s += " (" + strings.Join(more, ", ") + ")"
	}

	return s
}

// anchor is the cell of rule i.
func (t *tally) anchor(i int) string {
	r := t.rules[i]
	found := ""
	if r.hit+r.missed > 0 {
		found = fmt.Sprintf("%d/%d, ", r.hit, r.hit+r.missed)
	}

	return fmt.Sprintf("%s%.0f %% falsely", found, 100*share(t.ruleCases[i], max(1, t.cases)))
}

// mark says whether a demand was met.
func mark(ok bool) string {
	if ok {
		return "reached"
	}

	return "**SHORT**"
}

// printFailures lists the cases that went wrong, as what to type to see them.
func printFailures(w io.Writer, tallies map[string]*tally) {
	for _, n := range simulate.Names() {
		t := tallies[n]
		if t == nil || len(t.failures) == 0 {
			continue
		}

		fmt.Fprintf(w, "\n%s: %d of %d cases\n", n, len(t.failures), t.cases)
		for _, f := range t.failures[:min(len(t.failures), shownFailures)] {
			fmt.Fprintf(w, "  %s  # %s\n", f.command(), strings.Join(f.reasons, "; "))
		}

		if more := len(t.failures) - shownFailures; more > 0 {
			fmt.Fprintf(w, "  … and %d more\n", more)
		}
	}
}

// command replays a case.
func (t task) command() string {
	s := fmt.Sprintf("go run ./benchmarks/eval -scenario %s -seed %d -v", t.scenario, t.seed)
	if t.trace != nil {
		s += " -trace " + t.trace.Name
	}

	if t.world > 0 {
		s += fmt.Sprintf(" -world %d", t.world)
	}

	return s
}

// totals counts cases in which something was wrong with a node or link, and those
// in which nothing was.
func totals(tallies map[string]*tally) (positive, negative int) {
	for _, t := range tallies {
		positive += t.positives
		negative += t.cases - t.positives
	}

	return positive, negative
}

// short returns the demands that were not met.
func short(tallies map[string]*tally) []string {
	var out []string
	for _, n := range simulate.Names() {
		if t := tallies[n]; t != nil && t.cases > 0 {
			for _, c := range t.checks() {
				if !c.ok {
					out = append(out, fmt.Sprintf("%s: %s %s (target %s)", n, c.what, c.reached, c.target))
				}
			}
		}
	}

	for _, c := range overall(tallies) {
		if !c.ok {
			out = append(out, fmt.Sprintf("%s: %s (target %s)", c.what, c.reached, c.target))
		}
	}

	return slices.Clip(out)
}
