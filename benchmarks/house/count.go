package main

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strings"
)

// house is what one tree holds: a line of figures is one of its fields or methods.
type house struct {
	packages  map[string]*pkg // by folder, "." for the root
	functions []int           // lengths in lines
	longest   named
	largest   named

	exported, documented int
	rootFiles, rootAll   int
}

// pkg is one package of the tree.
type pkg struct {
	files, types int
	lines        lines
	imports      map[string]bool // folders of the tree
}

// lines are counts of lines by what they hold.
type lines struct{ code, comment, blank int }

func (l lines) all() int { return l.code + l.comment + l.blank }

func (l *lines) add(o lines) {
	l.code += o.code
	l.comment += o.comment
	l.blank += o.blank
}

// named is a length and whose it is.
type named struct {
	length int
	of     string
}

func (n named) String() string { return fmt.Sprintf("%d (%s)", n.length, n.of) }

// generated is the line that Go's tools agree on.
var generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

// moduleLine names a module in its go.mod.
var moduleLine = regexp.MustCompile(`(?m)^module (\S+)$`)

// count reads a tree: contents by path.
func count(files map[string][]byte) (*house, error) {
	h := &house{packages: map[string]*pkg{}}

	modules := map[string]string{}
	for name, text := range files {
		if m := moduleLine.FindSubmatch(text); path.Base(name) == "go.mod" && m != nil {
			modules[path.Dir(name)] = string(m[1])
		}
	}

	for name, text := range files {
		if err := h.file(name, text, modules); err != nil {
			return nil, err
		}
	}

	slices.Sort(h.functions)

	return h, nil
}

// counted reports whether a path is a Go file that a reader of the program reads.
func counted(name string, text []byte) bool {
	return path.Ext(name) == ".go" && !strings.HasSuffix(name, "_test.go") &&
		!slices.Contains(strings.Split(name, "/"), "testdata") && !generated.Match(text)
}

// file adds one file. What does not parse is an error: figures of half a tree say nothing.
func (h *house) file(name string, text []byte, modules map[string]string) error {
	if path.Dir(name) == "." && path.Ext(name) == ".go" {
		h.rootAll++
	}

	if !counted(name, text) {
		return nil
	}

	if path.Dir(name) == "." {
		h.rootFiles++
	}

	set := token.NewFileSet()
	tree, err := parser.ParseFile(set, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return fmt.Errorf("parse %s: %w", name, err)
	}

	p := h.packages[path.Dir(name)]
	if p == nil {
		p = &pkg{imports: map[string]bool{}}
		h.packages[path.Dir(name)] = p
	}

	l := classify(text)
	p.files++
	p.lines.add(l)
	h.largest = larger(h.largest, named{l.all(), name})

	for _, i := range tree.Imports {
		if dir, ok := within(modules, strings.Trim(i.Path.Value, `"`)); ok {
			p.imports[dir] = true
		}
	}

	for _, d := range tree.Decls {
		h.declaration(d, p, set, name, tree.Name.Name == "main")
	}

	return nil
}

// declaration adds what one declaration declares. A function's length is from its first line to
// its last, its comment aside.
func (h *house) declaration(d ast.Decl, p *pkg, set *token.FileSet, file string, command bool) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		length := set.Position(d.End()).Line - set.Position(d.Pos()).Line + 1
		h.functions = append(h.functions, length)
		h.longest = larger(h.longest, named{length, d.Name.Name + ", " + file})

		if !command && (d.Recv == nil || ast.IsExported(receiver(d.Recv.List[0].Type))) {
			h.name(d.Name, d.Doc)
		}
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				p.types++
				if !command {
					h.name(s.Name, d.Doc, s.Doc, s.Comment)
				}
			case *ast.ValueSpec:
				for _, n := range s.Names {
					if !command {
						h.name(n, d.Doc, s.Doc, s.Comment)
					}
				}
			}
		}
	}
}

// name counts an exported name, and whether any of the comments documents it.
func (h *house) name(n *ast.Ident, docs ...*ast.CommentGroup) {
	if !n.IsExported() {
		return
	}

	h.exported++
	if slices.ContainsFunc(docs, func(d *ast.CommentGroup) bool { return d != nil }) {
		h.documented++
	}
}

// receiver returns the name of a method's type.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}

	return ""
}

// larger keeps the greater length; of two equal ones the first by name, so that the order
// in which files come does not matter.
func larger(a, b named) named {
	if c := cmp.Or(cmp.Compare(a.length, b.length), cmp.Compare(b.of, a.of)); c >= 0 && a.of != "" {
		return a
	}

	return b
}

// sum adds packages up: those named, or where none is all of the tree.
func (h *house) sum(names ...string) (all pkg) {
	for name, p := range h.packages {
		if len(names) == 0 || slices.Contains(names, name) {
			all.files, all.types = all.files+p.files, all.types+p.types
			all.lines.add(p.lines)
		}
	}

	return all
}

// percentile returns the smallest length that p per cent of the functions do not exceed.
func (h *house) percentile(p int) int {
	if len(h.functions) == 0 {
		return 0
	}

	return h.functions[(len(h.functions)*p+99)/100-1]
}

// classify counts the lines of a file that parses.
func classify(text []byte) lines {
	const code, comment = 2, 1

	n := bytes.Count(text, []byte("\n"))
	if len(text) > 0 && text[len(text)-1] != '\n' {
		n++
	}

	set := token.NewFileSet()
	file := set.AddFile("", set.Base(), len(text))

	var s scanner.Scanner
	s.Init(file, text, nil, scanner.ScanComments)

	holds := make([]int, n+1)
	for {
		pos, tok, literal := s.Scan()
		if tok == token.EOF {
			break
		}

		if tok == token.SEMICOLON && literal == "\n" {
			continue // put in by the scanner
		}

		what := code
		if tok == token.COMMENT {
			what = comment
		}

		// A raw string or a block comment spans lines.
		first := file.Line(pos)
		for i := range strings.Count(literal, "\n") + 1 {
			holds[first+i] = max(holds[first+i], what)
		}
	}

	l := lines{blank: n}
	for _, h := range holds[1:] {
		switch h {
		case code:
			l.code++
			l.blank--
		case comment:
			l.comment++
			l.blank--
		}
	}

	return l
}
