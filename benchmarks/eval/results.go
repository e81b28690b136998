package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// account is what results files keep of a run, and of the one before the thresholds changed. It is
// RESULTS.json; the page beside it is made for people, and is not read again but for its sections.
type account struct {
	Thresholds string   `json:"thresholds"`
	Command    string   `json:"command"`
	Date       string   `json:"date"`
	Detector   string   `json:"detector,omitempty"` // its sources' checksum
	Rows       []check  `json:"rows"`
	Hours      []piece  `json:"hours,omitempty"`
	Parity     string   `json:"parity,omitempty"`
	Before     *account `json:"before,omitempty"` // with other thresholds
}

// piece is the healthy hours of one command. Hours of the same detector add up.
type piece struct {
	Command string  `json:"command"`
	Date    string  `json:"date"`
	Seed    uint64  `json:"seed"`
	Rows    []hours `json:"rows"`
}

// compareTo prints the demands as they were with other thresholds beside now.
func (a *account) compareTo(w io.Writer, old *account) {
	fmt.Fprintf(w, "\n## Before and after the last change of a threshold\n\nBefore: %s, `%s`. Demands whose figure changed:\n\n", old.Date, old.Command)
	fmt.Fprintln(w, "| scenario | demand | target | before | | after | |\n|---|---|---|---|---|---|---|")
	was := map[[2]string]check{}
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

// path is where the results go, "" for nowhere: a look at a few cases must not replace those of
// a full run.
func (r *report) path() (string, error) {
	if r.results != "" {
		return r.results, nil
	}

	if r.scenario != "" || r.n < 100 || r.nodeHours < 30000 {
		return "", nil
	}

	root, err := moduleRoot()
	if err != nil {
		return "", fmt.Errorf("find where to write results: %w", err)
	}

	return filepath.Join(root, "benchmarks", "eval", "RESULTS.md"), nil
}

// account is what this run, and what is kept of those before, come to. Hours and parity of the same
// detector are kept, whatever ran this time; a seed that ran before is replaced, not counted twice.
func (r *report) account(old *account) *account {
	now := &account{
		Thresholds: thresholds(), Date: r.began.UTC().Format("2006-01-02"), Rows: allChecks(r.tallies), Detector: sources(),
		Command: fmt.Sprintf("go run ./benchmarks/eval -n %d -seed %d", r.n, r.seed),
	}
	if r.parity != nil {
		now.Parity = r.parity.String()
	}

	if old != nil && old.Detector == now.Detector && now.Detector != "" {
		now.Hours = slices.DeleteFunc(slices.Clone(old.Hours), func(p piece) bool { return r.hours != nil && p.Seed == r.seed })
		if now.Parity == "" {
			now.Parity = old.Parity
		}
	}

	if r.hours != nil {
		now.Hours = append(now.Hours, piece{Date: now.Date, Seed: r.seed, Rows: r.hours,
			Command: fmt.Sprintf("go run ./benchmarks/eval -n 0 -hours %g -parity 0 -seed %d", r.nodeHours, r.seed)})
	}

	if old != nil {
		now.Before = old.Before
		if old.Thresholds != now.Thresholds {
			old.Before, old.Hours, old.Parity = nil, nil, ""
			now.Before = old
		}
	}

	return now
}

// finish prints the run and saves it: all of it, or the hours and the parity alone
// beside cases of the same detector that were saved before.
func (r *report) finish(out io.Writer) error {
	path, err := r.path()
	if err != nil {
		return err
	}

	if r.before, err = familiesBefore(); err != nil {
		return err
	}

	if path == "" {
		r.print(out, r.account(nil))
		return nil
	}

	side := strings.TrimSuffix(path, filepath.Ext(path)) + ".json"
	old, err := loadJSON[account](side, "earlier results")
	if err != nil {
		return err
	}

	now := r.account(old)
	r.print(out, now)
	text, err := r.text(path, now, old)
	if err != nil {
		return err
	}

	if err := os.WriteFile(path, text, 0o644); err != nil {
		return fmt.Errorf("write results: %w", err)
	}

	return saveJSON(side, "results", now)
}

// text is the page of the results.
func (r *report) text(path string, now, old *account) ([]byte, error) {
	var b bytes.Buffer
	if r.tallies != nil || old == nil {
		r.print(&b, now)
		if now.Before != nil {
			now.compareTo(&b, now.Before)
		}

		return b.Bytes(), nil
	}

	if old.Detector != now.Detector {
		return nil, fmt.Errorf("add to %s: its cases are another detector's, run those first", path)
	}

	now.Rows, now.Command, now.Date, now.Before = old.Rows, old.Command, old.Date, old.Before
	page, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read earlier results: %w", err)
	}

	if len(now.Hours) > 0 {
		printHours(&b, now.Hours)
		page = renew(page, hoursTitle, b.String())
	}

	if now.Parity != "" {
		page = renew(page, parityTitle, now.Parity)
	}

	return page, nil
}

// renew replaces a section of a page, or adds it before the thresholds.
func renew(page []byte, title, text string) []byte {
	s := string(page)
	section := title + "\n\n" + text + "\n"
	at := strings.Index(s, title)
	if at < 0 {
		if at = strings.Index(s, "## Thresholds"); at < 0 {
			at = len(s)
		}

		return []byte(s[:at] + section + s[at:])
	}

	end := strings.Index(s[at+len(title):], "\n## ")
	if end < 0 {
		return []byte(s[:at] + section)
	}

	return []byte(s[:at] + section + s[at+len(title)+end+1:])
}

// loadJSON reads what an earlier run kept, nil where it is not here.
func loadJSON[T any](path, what string) (*T, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}

	if err != nil {
		return nil, fmt.Errorf("read %s: %w", what, err)
	}

	v := new(T)
	if err := json.Unmarshal(b, v); err != nil {
		return nil, fmt.Errorf("read %s %s: %w", what, path, err)
	}

	return v, nil
}

// saveJSON keeps a value for later runs.
func saveJSON(path, what string, v any) error {
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", what, err)
	}

	if err := os.WriteFile(path, append(b, '\n'), 0o644); err != nil {
		return fmt.Errorf("write %s: %w", what, err)
	}

	return nil
}
