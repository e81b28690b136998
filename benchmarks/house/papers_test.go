package main

import (
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// root is the repository, from this package's folder.
const root = "../.."

// tracked returns the files of the repository with one of the endings.
func tracked(t *testing.T, endings ...string) (names []string) {
	t.Helper()
	out, err := exec.Command("git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		t.Fatalf("list tracked files: %v", err)
	}

	for name := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		_, err := os.Lstat(filepath.Join(root, name))
		for _, e := range endings {
			if err == nil && strings.HasSuffix(name, e) {
				names = append(names, name)
			}
		}
	}

	return names
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}

	return string(text)
}

var (
	citation = regexp.MustCompile(`\b([RP])([1-9][0-9]?)(?:[–-]([RP]?)([1-9][0-9]?))?\b`)
	promise  = regexp.MustCompile(`(?m)^\| ([RP][0-9]+) \|.*\|$`)
	heldBy   = regexp.MustCompile("`(?:([a-z0-9/]+)\\.)?((?:Test|Benchmark|Fuzz)\\w+)`")
	declared = regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Fuzz)\w+)\(`)
)

// cited returns the numbers of promises in a text: R3, and all of R9–R19. Words that only
// look like one are left out: percentiles in capitals (P50, P95, P99) and registers (R10 in
// code, which stands in no comment).
func cited(text string) (all []string) {
	for _, m := range citation.FindAllStringSubmatch(text, -1) {
		first, _ := strconv.Atoi(m[2])
		last := first
		if m[4] != "" && (m[3] == "" || m[3] == m[1]) {
			last, _ = strconv.Atoi(m[4])
		}

		for n := first; n <= last; n++ {
			if m[1] == "P" && n >= 50 {
				continue
			}

			all = append(all, m[1]+strconv.Itoa(n))
		}
	}

	return all
}

// comments returns what a Go file says in comments that take a line of their own.
func comments(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "//") {
			fmt.Fprintln(&b, line)
		}
	}

	return b.String()
}

var (
	paragraph = regexp.MustCompile(`(?m)^\*\*` + "`([^`]+)`" + `\*\* \S`)
	arrow     = regexp.MustCompile(`(?m)^\t\{"([a-z/]+)", `)
)

// TestArchitecture holds ARCHITECTURE.md to the tree: a paragraph for each folder with Go
// files, none for others, and a line for each arrow that arch_test.go holds.
func TestArchitecture(t *testing.T) {
	page := read(t, "ARCHITECTURE.md")

	missing := map[string]bool{}
	for _, name := range tracked(t, ".go") {
		if !slices.Contains(strings.Split(name, "/"), "testdata") {
			missing[path.Dir(name)] = true
		}
	}

	seen := map[string]bool{}
	for _, m := range paragraph.FindAllStringSubmatch(page, -1) {
		switch folder := m[1]; {
		case seen[folder]:
			t.Errorf("ARCHITECTURE.md has two paragraphs on %s", folder)
		case !missing[folder]:
			t.Errorf("ARCHITECTURE.md has a paragraph on %s, where there is no package", folder)
		default:
			seen[folder] = true
		}
	}

	for folder := range missing {
		if !seen[folder] {
			t.Errorf("ARCHITECTURE.md has no paragraph on %s", folder)
		}
	}

	held := arrow.FindAllStringSubmatch(read(t, "benchmarks/house/arch_test.go"), -1)
	if len(held) < 10 {
		t.Fatalf("arch_test.go: only %d arrows were seen", len(held))
	}

	for _, m := range held {
		if !strings.Contains(page, "\n| `"+m[1]+"`") {
			t.Errorf("ARCHITECTURE.md's table has no line for %s", m[1])
		}
	}
}

func TestCited(t *testing.T) {
	for text, want := range map[string]string{
		"R1, of P50 and P3":  "[R1 P3]",
		"(P18–P20, R9-R11)":  "[P18 P19 P20 R9 R10 R11]",
		"R100, XR1, P1x, r1": "[]",
	} {
		if got := fmt.Sprint(cited(text)); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

// TestPromises holds the catalogue to the tree: every number that a comment or a page cites
// has its row, every row names what holds it, and everything named exists.
func TestPromises(t *testing.T) {
	const page = "benchmarks/PROMISES.md"
	text := read(t, page)

	rows := map[string]string{}
	for _, m := range promise.FindAllStringSubmatch(text, -1) {
		if rows[m[1]] != "" {
			t.Errorf("%s has two rows %s", page, m[1])
		}

		rows[m[1]] = m[0]
	}

	for n := 1; n <= 32; n++ {
		if rows["R"+strconv.Itoa(n)] == "" {
			t.Errorf("%s has no R%d", page, n)
		}
	}

	for n := 1; n <= 20; n++ {
		if rows["P"+strconv.Itoa(n)] == "" {
			t.Errorf("%s has no P%d", page, n)
		}
	}

	tests := map[string]bool{} // "folder.Name", and "Name" alone
	for _, name := range tracked(t, "_test.go") {
		for _, m := range declared.FindAllStringSubmatch(read(t, name), -1) {
			tests[path.Dir(name)+"."+m[1]] = true
			tests[m[1]] = true
		}
	}

	for number, row := range rows {
		held := heldBy.FindAllStringSubmatch(row, -1)
		if len(held) == 0 && !strings.Contains(row, "| dropped") {
			t.Errorf("%s names no test of %s", page, number)
		}

		for _, m := range held {
			if !tests[strings.Trim(m[0], "`")] {
				t.Errorf("%s: %s is held by %s, which does not exist", page, number, m[0])
			}
		}
	}

	for _, name := range tracked(t, ".go", ".md") {
		if name == page || strings.HasPrefix(name, "benchmarks/house/") {
			continue
		}

		text := read(t, name)
		if path.Ext(name) == ".go" {
			text = comments(text)
		}

		for _, number := range cited(text) {
			if rows[number] == "" {
				t.Errorf("%s cites %s, which %s does not have", name, number, page)
			}
		}
	}
}
