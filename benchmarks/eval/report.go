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
	"strings"
	"time"
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
	fmt.Fprintf(w, "\n## Thresholds\n\n```json\n%s\n```\n", thresholds())
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
	Short      []string `json:"short"`
	Before     *account `json:"before,omitempty"` // with other thresholds
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
		Thresholds: thresholds(), Date: r.began.UTC().Format("2006-01-02"), Short: short(r.tallies),
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
	if x := now.Before; x != nil {
		fmt.Fprintf(&b, "\n## Before the last change of a threshold (%s, `%s`)\n\n```json\n%s\n```\n\nShort of the bar then: %d\n", x.Date, x.Command, x.Thresholds, len(x.Short))
		for _, s := range x.Short {
			fmt.Fprintf(&b, "- %s\n", s)
		}
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
