// Package docs holds the operator's pages.
//
// Invariant: they name every metric and every column, and no subcommand, flag or
// file that doesn't exist; the tests hold them to it, and run the page that a new
// user reads first.
package docs_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/laggard-dev/laggard/schemas/row"
)

// program is laggard: the one that LAGGARD_PROGRAM names, else built once.
var program = os.Getenv("LAGGARD_PROGRAM")

func TestMain(m *testing.M) {
	os.Exit(func() int {
		if program != "" {
			return m.Run()
		}

		dir, err := os.MkdirTemp("", "laggard-docs-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		program = filepath.Join(dir, "laggard")
		build := exec.Command("go", "build", "-o", program, "github.com/laggard-dev/laggard")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build laggard: %v\n%s", err, out)
			return 1
		}

		return m.Run()
	}())
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	return string(b)
}

func pages(t *testing.T) []string {
	t.Helper()
	names, err := filepath.Glob("*.md")
	if err != nil || len(names) < 11 {
		t.Fatalf("pages %v, %v", names, err)
	}

	return append(names, "../README.md")
}

var described = regexp.MustCompile(`\b(?:description|counter|gauge)\("(\w+)"`)

// TestMetrics: the page has each metric of the agent and the watcher.
func TestMetrics(t *testing.T) {
	page := read(t, "metrics.md")
	for _, file := range []string{"../../writer/agent/metrics.go", "../../analyzer/watch/metrics.go"} {
		names := described.FindAllStringSubmatch(read(t, file), -1)
		if len(names) < 20 {
			t.Errorf("%s: only %d metrics were seen", file, len(names))
		}

		for _, m := range names {
			if !strings.Contains(page, "| `laggard_"+m[1]+"` |") {
				t.Errorf("metrics.md has no laggard_%s", m[1])
			}
		}
	}
}

// TestColumns: the page has each column under its table, with its type.
func TestColumns(t *testing.T) {
	page := read(t, "columns.md")
	for table, v := range map[string]any{
		row.RanksTable: row.Rank{}, row.StepsTable: row.Step{}, row.CommunicationsTable: row.Communication{},
		row.RecordsTable: row.Record{}, row.VerdictsTable: row.Verdict{}, row.LedgerTable: row.Ledger{},
	} {
		_, part, ok := strings.Cut(page, "## `"+table+"`\n")
		part, _, _ = strings.Cut(part, "\n## ")
		if !ok {
			t.Errorf("columns.md has no table %s", table)
		}

		typ := reflect.TypeOf(v)
		for i := range typ.NumField() {
			f := typ.Field(i)
			column := f.Type.String()
			if column == "record.ID" {
				column = f.Type.Kind().String()
			}

			if want := fmt.Sprintf("| `%s` | %s | ", f.Tag.Get("col"), column); !strings.Contains(part, want) {
				t.Errorf("columns.md: %s has no %s", table, want)
			}
		}
	}
}

var (
	block    = regexp.MustCompile("(?s)```sh\n(.*?)```")
	inline   = regexp.MustCompile("`(laggard [a-z][^`\n]*)`")
	flagWord = regexp.MustCompile(`(?m)^ +(?:-(\w), )?--([a-z-]+)`)
)

// commands returns the laggard command lines of a page.
func commands(page string) (lines []string) {
	for _, b := range block.FindAllStringSubmatch(page, -1) {
		for line := range strings.Lines(b[1]) {
			if line = strings.TrimSpace(line); strings.HasPrefix(line, "laggard ") {
				lines = append(lines, line)
			}
		}
	}

	for _, m := range inline.FindAllStringSubmatch(page, -1) {
		lines = append(lines, m[1])
	}

	return lines
}

// TestCommands: each command line uses a subcommand and flags that exist.
func TestCommands(t *testing.T) {
	help := map[string]string{}
	seen := 0
	for _, page := range pages(t) {
		for _, line := range commands(read(t, page)) {
			seen++
			words := strings.Fields(line)[1:]
			sub := words[:1]
			if slices.Contains([]string{"trace", "schema"}, sub[0]) && len(words) > 1 {
				sub = words[:2]
			}

			key := strings.Join(sub, " ")
			if _, ok := help[key]; !ok {
				out, err := exec.Command(program, append(slices.Clone(sub), "--help")...).CombinedOutput()
				if err != nil || !strings.Contains(string(out), "laggard "+key) {
					t.Errorf("%s: %q: no such subcommand", page, line)
				}

				help[key] = string(out)
			}

			checkFlags(t, page, line, words[len(sub):], help[key])
		}
	}

	if seen < 20 {
		t.Errorf("only %d command lines were seen", seen)
	}
}

func checkFlags(t *testing.T, page, line string, words []string, help string) {
	t.Helper()
	known := map[string]bool{}
	for _, m := range flagWord.FindAllStringSubmatch(help, -1) {
		known["-"+m[1]], known["--"+m[2]] = m[1] != "", true
	}

	for _, w := range words {
		if name, _, _ := strings.Cut(w, "="); strings.HasPrefix(w, "-") && !known[name] {
			t.Errorf("%s: %q: no flag %s", page, line, name)
		}
	}
}

var link = regexp.MustCompile(`\]\(([^)#]+)\)|kubectl apply -k (\S+)`)

// TestLinks: what a page points at is there.
func TestLinks(t *testing.T) {
	for _, page := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(read(t, page), -1) {
			path := filepath.Join(filepath.Dir(page), m[1])
			if m[2] != "" {
				path = filepath.Join("../..", m[2])
			}

			if _, err := os.Stat(path); err != nil {
				t.Errorf("%s: %v", page, err)
			}
		}
	}
}

var (
	recovery = regexp.MustCompile(`(?m)^\t\t\{"([a-z ]+)", \w+\},$`)
	outcome  = regexp.MustCompile(`^(kept|better|lost|the same)\b`)
)

// TestRecoveryTable: taskd.md says of each recovery that is played what becomes of it
// when TaskD's worker is replaced, and when there is no TaskD.
func TestRecoveryTable(t *testing.T) {
	page := read(t, "taskd.md")
	names := recovery.FindAllStringSubmatch(read(t, "../examples/dataparallel/recovery_test.go"), -1)
	if len(names) != 9 {
		t.Fatalf("%d recoveries are played: %v", len(names), names)
	}

	for _, m := range names {
		_, line, ok := strings.Cut(page, "\n| "+m[1]+" | ")
		line, _, _ = strings.Cut(line, "\n")
		cells := strings.Split(strings.TrimSuffix(line, " |"), " | ")
		if !ok || len(cells) != 2 || !outcome.MatchString(cells[0]) || !outcome.MatchString(cells[1]) {
			t.Errorf("taskd.md: no row that says of %s kept, better or lost, twice: %q", m[1], cells)
		}
	}
}

// TestFirstVerdict runs the commands of the first page, as they stand.
func TestFirstVerdict(t *testing.T) {
	home := t.TempDir()
	last := ""
	for _, line := range commands(block.FindString(read(t, "../README.md"))) {
		c := exec.Command("bash", "-c", line)
		c.Dir = home
		c.Env = append(os.Environ(), "PATH="+alias(t)+":"+os.Getenv("PATH"))
		out, err := c.CombinedOutput()
		var exit *exec.ExitError
		decides := regexp.MustCompile(`^laggard (analyze|explain|watch) `).MatchString(line)
		degraded := errors.As(err, &exit) && exit.ExitCode() == 3 && decides
		if err != nil && !degraded {
			t.Fatalf("%s: %v\n%s", line, err, out)
		}

		last = string(out)
		if decides && !degraded {
			t.Errorf("%s found nothing:\n%s", line, out)
		}
	}

	if !strings.Contains(last, "compute") {
		t.Errorf("the verdict names no cause:\n%s", last)
	}
}

// alias returns a folder where the program is called laggard.
func alias(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	path, err := filepath.Abs(program)
	if err != nil {
		t.Fatal(err)
	}

	if err := os.Symlink(path, filepath.Join(dir, "laggard")); err != nil {
		t.Fatal(err)
	}

	return dir
}
