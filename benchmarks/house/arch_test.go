package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// heavy are the libraries that must not reach what runs in or beside the trainer.
var heavy = []string{
	"github.com/ClickHouse/", "github.com/apache/arrow/", "github.com/parquet-go/", "gonum.org/",
}

// module is the path of ours; the table below names packages by what comes after it.
const module = "github.com/laggard-dev/laggard"

// arrows are the imports a package may have among ours: a prefix of its path →
// prefixes of what it may import (ARCHITECTURE.md draws them). The first match counts.
var arrows = []struct {
	from    string
	allowed []string
	banned  []string // third-party prefixes
}{
	{"schemas/record", nil, append([]string{"."}, heavy...)},
	{"schemas/", []string{"schemas/"}, []string{"gonum.org/"}},
	{"collector/", []string{"schemas/", "collector/"}, heavy},
	{"writer/segment", []string{"schemas/"}, heavy},
	{"writer/agent", []string{"schemas/", "writer/", "collector/", "ageing"}, []string{"gonum.org/"}},
	{"writer/", []string{"schemas/", "writer/"}, []string{"gonum.org/"}},
	{"ageing", []string{"schemas/", "writer/segment"}, heavy},
	{"analyzer/frame", []string{"schemas/row", "schemas/record"}, heavy[:3]},
	{"analyzer/feed", []string{"schemas/", "analyzer/frame"}, heavy},
	{"analyzer/replay", []string{"schemas/", "analyzer/frame", "analyzer/replay"}, heavy},
	{"analyzer/detect/robust", nil, heavy[:3]},
	{"analyzer/detect/state", nil, heavy},
	{"analyzer/detect/threshold", nil, heavy},
	{"analyzer/detect/link", []string{"schemas/", "analyzer/frame", "analyzer/detect/robust", "analyzer/detect/state", "analyzer/detect/threshold"}, heavy[:3]},
	{"analyzer/detect/cost", []string{"schemas/", "analyzer/frame", "analyzer/replay", "analyzer/detect/history", "analyzer/detect/residual", "analyzer/detect/robust", "analyzer/detect/sequential", "analyzer/detect/state", "analyzer/detect/threshold"}, heavy[:3]},
	{"analyzer/detect/history", []string{"schemas/", "analyzer/frame", "analyzer/detect/robust", "analyzer/detect/state", "analyzer/detect/threshold"}, heavy[:3]},
	{"analyzer/detect/level", []string{"schemas/", "analyzer/frame", "analyzer/detect/robust", "analyzer/detect/state", "analyzer/detect/threshold"}, heavy[:3]},
	{"analyzer/detect/residual", []string{"schemas/", "analyzer/frame", "analyzer/detect/robust", "analyzer/detect/state", "analyzer/detect/threshold"}, heavy[:3]},
	{"analyzer/detect/saves", []string{"schemas/", "analyzer/frame", "analyzer/detect/residual", "analyzer/detect/robust", "analyzer/detect/state", "analyzer/detect/threshold"}, heavy[:3]},
	{"analyzer/detect/sequential", []string{"analyzer/detect/robust", "analyzer/detect/state", "analyzer/detect/threshold"}, heavy[:3]},
	{"analyzer/detect", []string{"schemas/", "analyzer/frame", "analyzer/replay", "analyzer/detect/"}, heavy[:3]},
	{"analyzer/source", []string{"schemas/", "analyzer/feed", "analyzer/frame", "writer/segment", "writer/rollup", "writer/profiles"}, nil},
	{"analyzer/simulate", []string{"schemas/", "writer/segment"}, heavy[:3]},
	{"analyzer/watch/depth", []string{"schemas/", "analyzer/", "collector/"}, heavy[:3]},
	{"analyzer/", []string{"schemas/", "analyzer/"}, heavy[:3]},
	{"deploy", []string{"deploy", "schemas/", "collector/"}, heavy},
	{"benchmarks/", []string{""}, nil},
	{"", []string{""}, nil},
}

// TestArrows holds the imports to the record's way: collector → writer → store →
// analyzer, schemas under all of them, and nothing heavy beside the trainer.
func TestArrows(t *testing.T) {
	list := exec.Command("go", "list", "-f", "{{.ImportPath}}|{{join .Deps \" \"}}", "./...")
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}

	for _, line := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		path, deps, _ := strings.Cut(line, "|")
		checkArrows(t, strings.TrimPrefix(strings.TrimPrefix(path, module), "/"), strings.Fields(deps))
	}
}

func checkArrows(t *testing.T, path string, deps []string) {
	t.Helper()
	for _, a := range arrows {
		if path != strings.TrimSuffix(a.from, "/") && !strings.HasPrefix(path, a.from) {
			continue
		}

		for _, d := range deps {
			if strings.HasPrefix(d, "k8s.io/") {
				t.Errorf("%s reaches %s: nobody imports client-go", path, d)
			}

			if ours, ok := strings.CutPrefix(d, module); ok {
				if !hasPrefix(strings.TrimPrefix(ours, "/"), a.allowed) {
					t.Errorf("%s reaches %s; it may reach only %v", path, d, a.allowed)
				}

				continue
			}

			for _, b := range a.banned {
				std := !strings.Contains(strings.SplitN(d, "/", 2)[0], ".")
				if b == "." && !std || b != "." && strings.HasPrefix(d, b) {
					t.Errorf("%s reaches %s, which is banned there (%q)", path, d, b)
				}
			}
		}

		return
	}

	t.Errorf("no arrow says what %s may import", path)
}

func hasPrefix(s string, prefixes []string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(s, p) {
			return true
		}
	}

	return false
}

// variable returns the words of a variable of the Makefile.
func variable(t *testing.T, name string) []string {
	t.Helper()
	list := regexp.MustCompile(`(?m)^` + name + ` := ((?:.*\\\n)*.*)$`).FindStringSubmatch(read(t, "Makefile"))
	if list == nil {
		t.Fatalf("the Makefile has no list %s", name)
	}

	return strings.Fields(strings.ReplaceAll(list[1], "\\\n", " "))
}

// TestMeeting holds that each part of the patterns by which `make test` chooses tests for
// the race detector, or leaves them out, finds some.
func TestMeeting(t *testing.T) {
	found(t, "MEETING", variable(t, "FEW_MEET"))
	found(t, "NOT_RACED", []string{"writer/intake", "writer/ship/shiptest"})
}

// found holds that each part of a pattern is in the name of a test of these packages.
func found(t *testing.T, pattern string, packages []string) {
	t.Helper()
	var names []string
	for _, p := range packages {
		files, err := filepath.Glob(filepath.Join(root, p, "*_test.go"))
		if err != nil || len(files) == 0 {
			t.Errorf("%s: %d files of tests, %v", p, len(files), err)
		}

		for _, f := range files {
			for _, m := range declared.FindAllStringSubmatch(read(t, strings.TrimPrefix(f, root)), -1) {
				names = append(names, m[1])
			}
		}
	}

	for _, part := range strings.Split(variable(t, pattern)[0], "|") {
		part, _, _ = strings.Cut(part, "/")
		if !slices.ContainsFunc(names, func(n string) bool { return strings.Contains(n, part) }) {
			t.Errorf("%s: no test of %v is called %s", pattern, packages, part)
		}
	}
}

// TestOneGoroutine holds that what `make test` runs without the race detector alone starts no
// goroutine and takes no lock.
func TestOneGoroutine(t *testing.T) {
	elsewhere := slices.Concat(variable(t, "RACED"), variable(t, "FEW_MEET"), variable(t, "PROCESSES"))
	for _, p := range elsewhere {
		if tests, err := filepath.Glob(filepath.Join(root, p, "*_test.go")); err != nil || len(tests) == 0 {
			t.Errorf("the Makefile's lists name %s: %d files of tests, %v", p, len(tests), err)
		}
	}

	files := tracked(t, ".go")
	tested := map[string]bool{}
	for _, f := range files {
		tested[filepath.Dir(f)] = tested[filepath.Dir(f)] || strings.HasSuffix(f, "_test.go")
	}

	looked := 0
	for _, f := range files {
		p := filepath.Dir(f)
		if tested[p] && !strings.HasSuffix(f, "_test.go") && !strings.HasPrefix(p, "deploy/kubernetes/apiserver") && !slices.Contains(elsewhere, p) {
			oneGoroutine(t, filepath.Join(root, f))
			looked++
		}
	}

	if looked < 100 {
		t.Errorf("only %d files were looked at", looked)
	}
}

func oneGoroutine(t *testing.T, path string) {
	t.Helper()
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}

	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			t.Errorf("%s: it starts a goroutine: test it with -race (the Makefile's list RACED)", set.Position(n.Pos()))
		case *ast.ImportSpec:
			if p := strings.Trim(n.Path.Value, `"`); p == "sync" || p == "sync/atomic" || strings.HasPrefix(p, "golang.org/x/sync") {
				t.Errorf("%s: it imports %s: test it with -race (the Makefile's list RACED)", set.Position(n.Pos()), p)
			}
		}

		return true
	})
}
