package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"laggard/benchmarks/simulate"
)

// report is one run's results.
type report struct {
	*flags
	began   time.Time
	took    time.Duration
	tallies map[string]*tally
	hours   []hours
	parity  *parity
}

// print writes everything for a person.
func (r *report) print(w io.Writer) {
	fmt.Fprintf(w, "# Detection suite\n\n")
	fmt.Fprintf(w, "Made by `go run ./benchmarks/eval -n %d -seed %d -hours %g -parity %d` on %s, %s, in %v.\n\n",
		r.n, r.seed, r.flags.hours, r.flags.parity, machine(), r.began.UTC().Format("2006-01-02"), r.took.Round(time.Second))
	if len(r.traces) == 0 {
		fmt.Fprintf(w, "The recorded jobs were not there: nothing was replayed.\n\n")
	}
	if r.tallies != nil {
		p, n := totals(r.tallies)
		fmt.Fprintf(w, "%d cases with something wrong with a node or link, %d without. \"In vain\" = a node or link accused that is innocent.\n\n", p, n)
		printTable(w, r.tallies)
	}
	if r.hours != nil {
		fmt.Fprintf(w, "\n## Healthy node-hours (10 s steps, 8 ranks a node)\n\n")
		printHours(w, r.hours)
	}
	if r.parity != nil {
		fmt.Fprintf(w, "\n## Through files and store\n\n%s\n", r.parity)
	}
	fmt.Fprintf(w, "\n## Thresholds\n\n```\n%s```\n", thresholds())
	if r.tallies != nil {
		fmt.Fprintf(w, "\n## Cases that went wrong\n")
		printFailures(w, r.tallies)
		if s := short(r.tallies); len(s) > 0 {
			fmt.Fprintf(w, "\n## Short of the bar\n\n- %s\n", strings.Join(s, "\n- "))
		} else {
			fmt.Fprintf(w, "\nEvery demand was met.\n")
		}
	}
}

// account is what results files keep of the run before the thresholds changed.
type account struct {
	Thresholds string   `json:"thresholds"`
	Command    string   `json:"command"`
	Date       string   `json:"date"`
	Rows       []line   `json:"rows"`
	Before     *account `json:"before,omitempty"` // with other thresholds
}

// line is one demand of the bar in an account.
type line struct {
	Scenario string `json:"scenario"`
	Demand   string `json:"demand"`
	Target   string `json:"target"`
	Reached  string `json:"reached"`
	OK       bool   `json:"ok"`
}

// lines are all demands of a run.
func lines(tallies map[string]*tally) []line {
	var out []line
	add := func(name string, list []check) {
		for _, c := range list {
			out = append(out, line{name, c.what, c.target, c.reached, c.ok})
		}
	}
	for _, n := range simulate.Names() {
		if t := tallies[n]; t != nil && t.cases > 0 {
			add(n, t.checks())
		}
	}
	if len(out) > 0 {
		add("all", overall(tallies))
	}
	return out
}

// compareTo prints the demands as they were with other thresholds beside now.
func (a *account) compareTo(w io.Writer, old *account) {
	fmt.Fprintf(w, "\n## Before and after the last change of a threshold\n\nBefore: %s, `%s`. Demands whose figure changed:\n\n", old.Date, old.Command)
	fmt.Fprintln(w, "| scenario | demand | target | before | | after | |\n|---|---|---|---|---|---|---|")
	was := map[[2]string]line{}
	for _, l := range old.Rows {
		was[[2]string{l.Scenario, l.Demand}] = l
	}
	for _, l := range a.Rows {
		b, ok := was[[2]string{l.Scenario, l.Demand}]
		if ok && b.Reached != l.Reached {
			fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %s | %s |\n", l.Scenario, l.Demand, l.Target, b.Reached, mark(b.OK), l.Reached, mark(l.OK))
		}
	}
	fmt.Fprintln(w, "\nThresholds before, where they were others:\n\n```")
	now := strings.Split(a.Thresholds, "\n")
	for _, l := range strings.Split(old.Thresholds, "\n") {
		if !slices.Contains(now, l) {
			fmt.Fprintln(w, l)
		}
	}
	fmt.Fprintln(w, "```")
}

// save writes RESULTS.md, with what the run before the last change of a threshold
// fell short of.
func (r *report) save() error {
	path := r.results
	if path == "" {
		if r.scenario != "" || r.n < 100 || r.flags.hours < 30000 {
			return nil
		}
		root, err := moduleRoot()
		if err != nil {
			return fmt.Errorf("find where to write results: %w", err)
		}
		path = filepath.Join(root, "benchmarks", "eval", "RESULTS.md")
	}
	now := &account{
		Thresholds: thresholds(), Date: r.began.UTC().Format("2006-01-02"), Rows: lines(r.tallies),
		Command: fmt.Sprintf("go run ./benchmarks/eval -n %d -seed %d", r.n, r.seed),
	}
	side := strings.TrimSuffix(path, filepath.Ext(path)) + ".json"
	old, err := load(side)
	if err != nil {
		return err
	}
	if old != nil {
		now.Before = old.Before
		if old.Thresholds != now.Thresholds {
			old.Before = nil
			now.Before = old
		}
	}
	var b bytes.Buffer
	r.print(&b)
	if now.Before != nil {
		now.compareTo(&b, now.Before)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	j, err := json.MarshalIndent(now, "", " ")
	if err != nil {
		return fmt.Errorf("encode results: %w", err)
	}
	if err := os.WriteFile(side, append(j, '\n'), 0o644); err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	return nil
}

func load(path string) (*account, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read earlier results: %w", err)
	}
	h := &account{}
	if err := json.Unmarshal(b, h); err != nil {
		return nil, fmt.Errorf("read earlier results %s: %w", path, err)
	}
	return h, nil
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
