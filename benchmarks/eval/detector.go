package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"path/filepath"
	"strings"

	"github.com/laggard-dev/laggard/analyzer/detect"
	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// detector is what is measured, with the thresholds it comes with.
func detector(f *frame.Frame) *verdict.Verdict {
	return detect.Analyze(f, detect.Default())
}

// thresholds lists what an operator may change, and every constant of the
// detector's file of thresholds where its source is here.
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

// constants prints the names and values of analyzer/detect/thresholds.go.
func constants() (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}

	files := token.NewFileSet()
	f, err := parser.ParseFile(files, filepath.Join(root, "analyzer", "detect", "thresholds.go"), nil, 0)
	if err != nil {
		return "", fmt.Errorf("read thresholds: %w", err)
	}

	var b strings.Builder
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
				fmt.Fprintf(&b, "%s = ", v.Names[i].Name)
				if err := printer.Fprint(&b, files, v.Values[i]); err != nil {
					return "", fmt.Errorf("print %s: %w", v.Names[i].Name, err)
				}

				b.WriteByte('\n')
			}
		}
	}

	return b.String(), nil
}

// sources is a checksum of the detector's sources, "" where they are not here:
// results of the same detector may be added up.
func sources() string {
	root, err := moduleRoot()
	if err != nil {
		return ""
	}

	sum := sha256.New()
	for _, dir := range []string{"detect", "frame"} {
		names, _ := filepath.Glob(filepath.Join(root, "analyzer", dir, "*.go")) // the pattern is a good one
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}

			b, err := os.ReadFile(name)
			if err != nil {
				return ""
			}

			sum.Write(b)
		}
	}

	return hex.EncodeToString(sum.Sum(nil)[:8])
}
