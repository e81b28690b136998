package main

import (
	"os/exec"
	"strings"
	"testing"
)

// heavy are the libraries that must not reach what runs in or beside the trainer.
var heavy = []string{
	"github.com/ClickHouse/", "github.com/apache/arrow/", "github.com/parquet-go/", "gonum.org/",
}

// arrows are the imports a package may have among ours: a prefix of its path →
// prefixes of what it may import (DESIGN.md section 1). The first match counts.
var arrows = []struct {
	from    string
	allowed []string
	banned  []string // third-party prefixes
}{
	{"laggard/schemas/record", nil, append([]string{"."}, heavy...)},
	{"laggard/schemas/", []string{"laggard/schemas/"}, []string{"gonum.org/"}},
	{"laggard/collector/", []string{"laggard/schemas/", "laggard/collector/"}, heavy},
	{"laggard/writer/segment", []string{"laggard/schemas/"}, heavy},
	{"laggard/writer/", []string{"laggard/schemas/", "laggard/writer/"}, []string{"gonum.org/"}},
	{"laggard/ageing", []string{"laggard/schemas/", "laggard/writer/segment"}, heavy},
	{"laggard/analyzer/frame", []string{"laggard/schemas/"}, heavy[:3]},
	{"laggard/analyzer/detect", []string{"laggard/schemas/", "laggard/analyzer/frame"}, heavy[:3]},
	{"laggard/analyzer/source", []string{"laggard/schemas/", "laggard/analyzer/frame", "laggard/writer/segment", "laggard/writer/rollup"}, nil},
	{"laggard/analyzer/", []string{"laggard/schemas/", "laggard/analyzer/"}, heavy[:3]},
	{"laggard/deploy", []string{"laggard/deploy", "laggard/schemas/", "laggard/collector/"}, heavy},
	{"laggard/benchmarks/", []string{"laggard/"}, nil},
	{"laggard", []string{"laggard/"}, nil},
}

// TestArrows holds the imports to the record's way: collector → writer → store →
// analyzer, schemas under all of them, and nothing heavy beside the trainer.
func TestArrows(t *testing.T) {
	out, err := exec.Command("go", "list", "-f", "{{.ImportPath}}|{{join .Deps \" \"}}", "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for _, line := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		path, deps, _ := strings.Cut(line, "|")
		checkArrows(t, path, strings.Fields(deps))
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
			if d == "laggard" || strings.HasPrefix(d, "laggard/") {
				if !hasPrefix(d, a.allowed) {
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
