package main

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
)

// way is one of the three ways through the program that somebody has to understand whole.
type way struct {
	name    string
	entries []string
}

// ways are named by the packages that carry them. The rest of each follows from imports.
var ways = []way{
	// Files of another writer, or of our own, up to rows in a store: what ingest composes.
	{"TaskD line → row", []string{"writer/intake"}},

	// The Python recorder, the drain, the disk cap, and again the files' way to a store:
	// what writer/agent composes, its switch and its HTTP pages aside.
	{"Python range → row", []string{"collector/python", "collector/drain", "ageing", "writer/intake"}},

	// Rows into columns, statistics, and the report: what analyze composes behind the
	// reader. analyzer/source is left out: it imports the first way to read files.
	{"rows → verdict", []string{"analyzer/feed", "analyzer/detect", "analyzer/report"}},
}

// missing returns the entries that the tree has no package for.
func (h *house) missing(entries []string) (none []string) {
	for _, e := range entries {
		if h.packages[e] == nil {
			none = append(none, e)
		}
	}

	return none
}

// way returns packages, files, types and lines of the import closure. What an older tree has no
// package of its own for is in one of the others there; "–" is a tree that has none of them.
func (h *house) way(w way) string {
	names := h.closure(w.entries)
	if len(names) == 0 {
		return "–"
	}

	all := h.sum(names...)
	return fmt.Sprintf("%d / %d / %d / %d", len(names), all.files, all.types, all.lines.all())
}

// closure returns the packages that the entries reach, themselves included, sorted.
func (h *house) closure(entries []string) []string {
	seen := map[string]bool{}

	var visit func(string)
	visit = func(dir string) {
		p := h.packages[dir]
		if p == nil || seen[dir] {
			return
		}

		seen[dir] = true
		for imported := range p.imports {
			visit(imported)
		}
	}

	for _, e := range entries {
		visit(e)
	}

	return slices.Sorted(maps.Keys(seen))
}

// within turns an import path into a folder of the tree; ok is false for other modules'.
// modules are the paths of the tree's modules by their folders.
func within(modules map[string]string, imported string) (dir string, ok bool) {
	for folder, module := range modules {
		rest, found := strings.CutPrefix(imported, module)
		if found && (rest == "" || rest[0] == '/') {
			return path.Join(folder, strings.TrimPrefix(rest, "/")), true
		}
	}

	return "", false
}
