package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/laggard-dev/laggard/analyzer/simulate"
)

// familyJobs is how many jobs of each family are judged: all variants of each.
const familyJobs = 15

// What a family has to reach.
const (
	exactTarget = 0.97 // of its jobs
	causeTarget = 0.95 // of the culprits that are named
	costMedian  = 0.15 // relative error of half of the costs
	costWorst   = 0.5  // of nine in ten
	boundTarget = 0.95 // of the costs that can't be known
)

// exactTargets are the families whose faults are rarer than a verdict can always see.
var exactTargets = map[string]float64{"bursts-5": 0.9, "bursts-2": 0.7}

// familyLine is a family's row as it is kept.
type familyLine struct {
	Family  string  `json:"family"`
	Jobs    int     `json:"jobs"`
	Exact   float64 `json:"exact"`
	Victims int     `json:"victims"`
	Cause   float64 `json:"cause"`
	Costs   int     `json:"costs"`        // culprits whose cost could be compared
	Cost    float64 `json:"cost_median"`  // relative error
	Worst   float64 `json:"cost_worst"`   // of nine in ten
	Bound   float64 `json:"cost_bounded"` // share of the unknown costs within the bound
	Delay   int     `json:"delay_p95"`    // steps, -1 = nobody detected

	undecidable, replayed int
}

// familyAccount is a run of the families as it is kept.
type familyAccount struct {
	Command string       `json:"command"`
	Date    string       `json:"date"`
	Machine string       `json:"machine"`
	Rows    []familyLine `json:"rows"`
}

// familyLineOf sums up the jobs of one family.
func familyLineOf(name string, t tally) familyLine {
	var costs []float64
	unknown, bounded := 0, 0
	for _, o := range t {
		for _, c := range o.costs() {
			if c.known {
				costs = append(costs, c.off())
			} else {
				unknown, bounded = unknown+1, bounded+count(c.bounded())
			}
		}
	}

	l := familyLine{
		Family: name, Jobs: len(t), Exact: t.of((*outcome).exact), Victims: t.sum((*outcome).alarms), Cause: t.cause(),
		Costs: len(costs), Bound: share(bounded, unknown), Delay: t.percentile(0.95),
		undecidable: t.cases((*outcome).undecidable), replayed: t.cases((*outcome).replayed),
	}
	slices.Sort(costs)
	if n := len(costs); n > 0 {
		l.Cost, l.Worst = costs[(n-1)/2], costs[min(n-1, n*9/10)]
	}

	return l
}

// short says what of the targets a row does not reach.
func (l *familyLine) short() []string {
	var out []string
	target := exactTarget
	if t, ok := exactTargets[l.Family]; ok {
		target = t
	}

	for _, c := range []struct {
		what string
		ok   bool
	}{
		{"exact", l.Exact >= target}, {"victims", l.Victims == 0}, {"cause", l.Cause >= causeTarget},
		{"cost", l.Cost <= costMedian && l.Worst <= costWorst}, {"bound", l.Bound >= boundTarget},
	} {
		if !c.ok {
			out = append(out, c.what)
		}
	}

	return out
}

// cells are the figures of a row.
func (l *familyLine) cells() string {
	cost := "–"
	if l.Costs > 0 {
		cost = fmt.Sprintf("%.2f / %.2f", l.Cost, l.Worst)
	}

	return fmt.Sprintf("%.2f | %d | %.2f | %s | %.2f", l.Exact, l.Victims, l.Cause, cost, l.Bound)
}

// familyLines sums up the families that ran, in the order of their table.
func familyLines(tallies map[string]tally) []familyLine {
	var out []familyLine
	for _, n := range simulate.Families() {
		if t := tallies[n]; len(t) > 0 {
			out = append(out, familyLineOf(n, t))
		}
	}

	return out
}

// printFamilies prints a row a family beside the one before, and what went wrong.
func printFamilies(w io.Writer, tallies map[string]tally, before *familyAccount) {
	fmt.Fprint(w, "Exact: the named nodes and links are exactly the culprits (undecidable jobs: exit code 4, nobody named). Cost: |stated - true| / max(2 %, true), median / worst tenth,\n"+
		"where groups are known; bound: share of the others whose true cost is not above `job_impact_max`.\n\n")
	old := map[string]familyLine{}
	if before != nil {
		fmt.Fprintf(w, "Before: `%s`, %s, %s.\n\n", before.Command, before.Date, before.Machine)
		for _, l := range before.Rows {
			old[l.Family] = l
		}
	}

	fmt.Fprintln(w, "| family | jobs (undecidable, replayed) | p95 delay | exact | victims | cause | cost | bound | | before: exact | victims | cause | cost | bound |")
	fmt.Fprintln(w, "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|")
	for _, l := range familyLines(tallies) {
		_, what := simulate.Row(l.Family)
		mark := "reached"
		if s := l.short(); len(s) > 0 {
			mark = "**SHORT**: " + strings.Join(s, ", ")
		}

		was := " | | | | "
		if o, ok := old[l.Family]; ok {
			was = o.cells()
		}

		fmt.Fprintf(w, "| %s (`%s`) | %d (%d, %d) | %d | %s | %s | %s |\n", what, l.Family, l.Jobs, l.undecidable, l.replayed, l.Delay, l.cells(), mark, was)
	}

	for _, n := range simulate.Families() {
		tallies[n].failures(w, n, "jobs")
	}
}

// familiesBefore reads the rows of the detector before, nil where they are not here.
func familiesBefore() (*familyAccount, error) {
	b, err := os.ReadFile(filepath.Join(root, "benchmarks", "results", "families.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}

	if err != nil {
		return nil, fmt.Errorf("read the families before: %w", err)
	}

	a := &familyAccount{}
	if err := json.Unmarshal(b, a); err != nil {
		return nil, fmt.Errorf("parse the families before: %w", err)
	}

	return a, nil
}
