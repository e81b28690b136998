package main

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/laggard-dev/laggard/analyzer/detect"
)

// thresholds lists what an operator may change, and every constant of the
// detector's files of thresholds where its source is here.
func thresholds() string {
	b, err := json.MarshalIndent(detect.Default(), "", " ")
	if err != nil {
		return err.Error()
	}

	fixed, err := constants()
	if err != nil {
		return string(b)
	}

	return string(b) + "\n" + fixed
}

// constants prints the names and values of the files of thresholds under analyzer/detect.
func constants() (string, error) {
	names, err := detectorFiles()
	if err != nil {
		return "", fmt.Errorf("list the detector: %w", err)
	}

	var b strings.Builder
	for _, name := range names {
		if filepath.Base(name) != "thresholds.go" {
			continue
		}

		text, err := os.ReadFile(name)
		if err != nil {
			return "", fmt.Errorf("read thresholds: %w", err)
		}

		f, err := parser.ParseFile(token.NewFileSet(), name, text, 0)
		if err != nil {
			return "", fmt.Errorf("read thresholds: %w", err)
		}

		printConstants(&b, text, f)
	}

	return b.String(), nil
}

// printConstants prints constants and variables as the source has them, a line each.
func printConstants(b *strings.Builder, text []byte, f *ast.File) {
	for _, d := range f.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.CONST && g.Tok != token.VAR {
			continue
		}

		for _, s := range g.Specs {
			v, ok := s.(*ast.ValueSpec)
			if !ok || len(v.Names) != len(v.Values) {
				continue
			}

			for i := range v.Names {
				x := v.Values[i]
				fmt.Fprintf(b, "%s = %s\n", v.Names[i].Name, text[x.Pos()-f.FileStart:x.End()-f.FileStart])
			}
		}
	}
}

// detectorFiles are the sources of the detector and of what it is made of, in order.
func detectorFiles() (names []string, err error) {
	root, err := moduleRoot()
	if err != nil {
		return nil, err
	}

	for _, dir := range []string{"detect", "frame"} {
		err := filepath.WalkDir(filepath.Join(root, "analyzer", dir), func(name string, _ fs.DirEntry, err error) error {
			if strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") {
				names = append(names, name)
			}

			return err
		})
		if err != nil {
			return nil, err
		}
	}

	return names, nil
}
