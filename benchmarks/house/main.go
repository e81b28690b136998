// Command house counts the source: how much there is to read, and how much of it lies on
// each way of a record. `make house` prints this tree, `make house BASE=<commit>` prints
// that commit beside it.
//
// Invariant: both columns are counted by the same code, from tracked files alone, with
// nothing built: the same commit gives the same figures on every machine. Files that end in
// _test.go, that say they are generated, or that lie under testdata are not counted.
//
// A line is code when any part of it is code, a comment when all of it is, else blank.
// Types and exported names are those of package scope; a name is documented when it, or the
// group that it stands in, has a doc comment. Exported names of commands and methods of
// unexported types are not counted: nobody can call them.
//
// A way is the import closure, inside this module, of the packages that carry it (see
// ways), so it holds every package that a change to one of them may concern.
//
// Caveat: Go alone is counted. C and Python have files of their own in collector/native,
// collector/mspti and collector/python.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
)

func main() {
	base := flag.String("base", "", "a commit to print beside the tree as it is")
	flag.Parse()

	if err := run(os.Stdout, ".", *base); err != nil {
		fmt.Fprintln(os.Stderr, "house:", err)
		os.Exit(1)
	}
}

// run prints the table of the tree at root, with the base commit's column first.
func run(w io.Writer, root, base string) error {
	files, err := worktree(root)
	if err != nil {
		return err
	}

	now, err := count(files)
	if err != nil {
		return err
	}

	for _, way := range ways {
		if missing := now.missing(way.entries); len(missing) > 0 {
			return fmt.Errorf("way %q: no package %v: name the ones that carry it now (benchmarks/house/ways.go)", way.name, missing)
		}
	}

	columns := []*house{now}
	header := []string{"tree"}

	if base != "" {
		files, err := commit(root, base)
		if err != nil {
			return err
		}

		before, err := count(files)
		if err != nil {
			return fmt.Errorf("count %s: %w", base, err)
		}

		columns, header = []*house{before, now}, []string{"before (" + base + ")", "after"}
	}

	return table(w, header, columns)
}

// table prints one line a figure, one column a tree.
func table(w io.Writer, header []string, columns []*house) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)

	line := func(name string, figure func(*house) string) {
		fmt.Fprint(t, name)
		for _, h := range columns {
			fmt.Fprint(t, "\t", figure(h))
		}

		fmt.Fprintln(t)
	}

	fmt.Fprint(t, "non-test Go, tracked, not generated")
	for _, h := range header {
		fmt.Fprint(t, "\t", h)
	}

	fmt.Fprintln(t)

	for _, f := range figures {
		line(f.name, f.show)
	}

	line("ways: packages / files / types / lines", func(*house) string { return "" })
	for _, way := range ways {
		line("  "+way.name, func(h *house) string { return h.way(way) })
	}

	return t.Flush()
}

// figures are the lines of the table above the ways.
var figures = []struct {
	name string
	show func(*house) string
}{
	{"lines", func(h *house) string { return fmt.Sprint(h.sum().lines.all()) }},
	{"  code", func(h *house) string { return fmt.Sprint(h.sum().lines.code) }},
	{"  comment", func(h *house) string { return share(h.sum().lines.comment, h.sum().lines.all()) }},
	{"  blank", func(h *house) string { return share(h.sum().lines.blank, h.sum().lines.all()) }},
	{"packages", func(h *house) string { return fmt.Sprint(len(h.packages)) }},
	{"files", func(h *house) string { return fmt.Sprint(h.sum().files) }},
	{"largest file", func(h *house) string { return h.largest.String() }},
	{"types", func(h *house) string { return fmt.Sprint(h.sum().types) }},
	{"exported names", func(h *house) string { return fmt.Sprint(h.exported) }},
	{"  documented", func(h *house) string { return share(h.documented, h.exported) }},
	{"functions", func(h *house) string { return fmt.Sprint(len(h.functions)) }},
	{"  longest", func(h *house) string { return h.longest.String() }},
	{"  p99", func(h *house) string { return fmt.Sprint(h.percentile(99)) }},
	{"Go files in the root", func(h *house) string { return fmt.Sprintf("%d (%d with tests)", h.rootFiles, h.rootAll) }},
}

// share formats a part with its percentage of the whole.
func share(part, whole int) string {
	if whole == 0 {
		return "0"
	}

	return fmt.Sprintf("%d (%.1f %%)", part, 100*float64(part)/float64(whole))
}
