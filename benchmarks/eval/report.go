package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/laggard-dev/laggard/analyzer/simulate"
)

// Titles of the sections that a run may renew without the others.
const (
	hoursTitle  = "## Healthy node-hours (10 s steps, 8 ranks a node)"
	parityTitle = "## Through files and store"
)

// report is one run's results.
type report struct {
	*suite
	began    time.Time
	took     time.Duration
	tallies  map[string]tally // nil where none ran
	families map[string]tally
	hours    []hours // of this run
	parity   *parity

	before *familyAccount // the families of the detector before, nil where they are not here
}

// print writes everything for a person: this run, and what now keeps of those before.
func (r *report) print(w io.Writer, now *account) {
	fmt.Fprintf(w, "# Detection suite\n\n")
	fmt.Fprintf(w, "Made by `go run ./benchmarks/eval -n %d -seed %d -hours %g -parity %d` on %s, %s, in %v.\n\n",
		r.n, r.seed, r.nodeHours, r.through, machine(), r.began.UTC().Format("2006-01-02"), r.took.Round(time.Second))
	if len(r.traces) == 0 {
		fmt.Fprintf(w, "The recorded jobs were not there: nothing was replayed.\n\n")
	}

	if r.tallies != nil {
		p, n := 0, 0
		for _, t := range r.tallies {
			p, n = p+t.cases((*outcome).positive), n+len(t)
		}

		fmt.Fprintf(w, "%d cases with something wrong with a node or link, %d without. \"Falsely\" = a node or link accused that is innocent.\n\n", p, n-p)
		printTable(w, r.tallies)
	}

	if len(r.families) > 0 {
		fmt.Fprintf(w, "\n## Families of jobs\n\n")
		printFamilies(w, r.families, r.before)
	}

	if len(now.Hours) > 0 {
		fmt.Fprintf(w, "\n%s\n\n", hoursTitle)
		printHours(w, now.Hours)
	}

	if now.Parity != "" {
		fmt.Fprintf(w, "\n%s\n\n%s\n", parityTitle, now.Parity)
	}

	fmt.Fprintf(w, "\n## Thresholds\n\n```\n%s```\n", thresholds())
	if r.tallies != nil {
		fmt.Fprintf(w, "\n## Cases that went wrong\n")
		for _, n := range simulate.Names() {
			r.tallies[n].failures(w, n, "cases")
		}

		var short []string
		for _, c := range allChecks(r.tallies) {
			if !c.OK {
				short = append(short, "- "+c.String()+"\n")
			}
		}

		if len(short) > 0 {
			fmt.Fprintf(w, "\n## Short of the bar\n\n%s", strings.Join(short, ""))
		} else {
			fmt.Fprintf(w, "\nEvery demand was met.\n")
		}
	}
}

// machine names the machine a run was made on.
func machine() string {
	model := runtime.GOARCH
	if f, err := os.Open("/proc/cpuinfo"); err == nil {
		defer f.Close()
		for s := bufio.NewScanner(f); s.Scan(); {
			if k, v, ok := strings.Cut(s.Text(), ":"); ok && strings.TrimSpace(k) == "model name" {
				model = strings.TrimSpace(v)
				break
			}
		}
	}

	return fmt.Sprintf("%s, %d CPUs, %s", model, runtime.NumCPU(), runtime.Version())
}
