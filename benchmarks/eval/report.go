package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/laggard-dev/laggard/analyzer/simulate"
)

// report is one run's results.
type report struct {
	*suite
	began    time.Time
	took     time.Duration
	tallies  map[string]tally // nil where none ran
	families map[string]tally
	hours    map[string]tally // by kind of noise
	parity   *parity

	before *familyAccount // the families of the detector before, nil where they are not here
}

// print writes the page.
func (r *report) print(w io.Writer) {
	fmt.Fprintf(w, "# Detection suite\n\n")
	a := r.account()
	fmt.Fprintf(w, "Made by `%s` on %s, %s, in %v.\n\n", a.Command, a.Machine, a.Date, r.took.Round(time.Second))
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

	if len(r.hours) > 0 {
		fmt.Fprintf(w, "\n## Healthy node-hours (%g s steps, %d ranks a node)\n\n", healthyStep, healthyRanks)
		printHours(w, r.hours)
	}

	if r.parity != nil {
		fmt.Fprintf(w, "\n## Through files and store\n\n%s\n", r.parity)
	}

	if r.tallies != nil {
		fmt.Fprintf(w, "\n## Cases that went wrong\n")
		for _, n := range simulate.Names() {
			r.tallies[n].failures(w, n, "cases")
		}

		var short []string
		for _, c := range allChecks(r.tallies) {
			if !c.ok {
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

// account is the run as it is kept, with the rows of its families.
func (r *report) account() familyAccount {
	command := fmt.Sprintf("go run ./benchmarks/eval -n %d -seed %d -hours %g -parity %d", r.n, r.seed, r.nodeHours, r.through)
	if r.only != "" {
		command = fmt.Sprintf("go run ./benchmarks/eval -only %s -n %d -seed %d", r.only, r.jobs, r.seed)
	}

	return familyAccount{Command: command, Date: r.began.UTC().Format("2006-01-02"), Machine: machine(), Rows: familyLines(r.families)}
}

// path is where the results go, "" for nowhere: a look at a few cases must not replace those of
// a full run.
func (r *report) path() string {
	if r.results == "" && r.scenario == "" && r.n >= 100 && r.nodeHours >= 30000 {
		return filepath.Join(root, "benchmarks", "eval", "RESULTS.md")
	}

	return r.results
}

// finish prints the run, and saves the page where it goes into a file: of families alone the rows.
func (r *report) finish(out io.Writer) error {
	var err error
	if r.before, err = familiesBefore(); err != nil {
		return err
	}

	var page bytes.Buffer
	r.print(&page)
	path := r.path()
	if _, err := out.Write(page.Bytes()); err != nil || path == "" {
		return err
	}

	kept := page.Bytes()
	if r.only != "" {
		if kept, err = json.MarshalIndent(r.account(), "", " "); err != nil {
			return fmt.Errorf("encode families: %w", err)
		}

		kept = append(kept, '\n')
	}

	if err := os.WriteFile(path, kept, 0o644); err != nil {
		return fmt.Errorf("write results: %w", err)
	}

	return nil
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
