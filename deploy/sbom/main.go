// Command sbom writes the bill of materials of laggard's binaries, CycloneDX 1.5 as
// JSON: `go run ./deploy/sbom -o dist/laggard.cdx.json dist/laggard-linux-*`.
//
// Invariant: what it lists is what the linker put into each binary (the build
// information that `go version -m` shows), with the module sums of go.sum, and the same
// binaries give the same bytes. Caveat: the recorders in C and Python inside a binary are
// parts of laggard itself and not listed apart.
package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
)

func main() {
	file := flag.String("o", "", "the file; empty is stdout")
	flag.Parse()
	var b bytes.Buffer
	err := run(flag.Args(), &b)
	switch {
	case err != nil:
	case *file == "":
		_, err = os.Stdout.Write(b.Bytes())
	default:
		err = os.WriteFile(*file, b.Bytes(), 0o644)
	}

	if err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

// bill is a CycloneDX document, as far as we fill it: https://cyclonedx.org/docs/1.5/json.
// It has no serial number and no time, which would differ from build to build.
type bill struct {
	Format   string `json:"bomFormat"`
	Spec     string `json:"specVersion"`
	Version  int    `json:"version"`
	Metadata struct {
		Component component `json:"component"`
	} `json:"metadata"`
	Components   []component  `json:"components"`
	Dependencies []dependency `json:"dependencies"`
}

// component is a binary, or a module in one. Ref is its name within the document, PURL what scanners of
// vulnerabilities look it up by.
type component struct {
	Type    string     `json:"type"`
	Ref     string     `json:"bom-ref"`
	Name    string     `json:"name"`
	Version string     `json:"version,omitempty"`
	PURL    string     `json:"purl,omitempty"`
	Hashes  []hash     `json:"hashes,omitempty"`
	About   []property `json:"properties,omitempty"`
}

// hash is a checksum of a component's file.
type hash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"` // hexadecimal
}

// property is what CycloneDX has no field for.
type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// dependency says what was linked into a binary. Which module needs which is not known:
// the build information is a list.
type dependency struct {
	Ref       string   `json:"ref"`
	DependsOn []string `json:"dependsOn"`
}

// run writes the bill of the binaries, in the order of their names. The application is that
// of the first.
func run(binaries []string, out io.Writer) error {
	if len(binaries) == 0 {
		return errors.New("name the binaries")
	}

	b := bill{Format: "CycloneDX", Spec: "1.5", Version: 1}
	parts := map[string]component{}
	for _, path := range slices.Sorted(slices.Values(binaries)) {
		info, err := buildinfo.ReadFile(path)
		if err != nil {
			return fmt.Errorf("read build information of %s: %w", path, err)
		}

		file, err := binary(path, info)
		if err != nil {
			return err
		}

		if b.Metadata.Component.Name == "" {
			b.Metadata.Component = component{Type: "application", Ref: info.Main.Path, Name: filepath.Base(info.Main.Path), Version: info.Main.Version}
		}

		needs := dependency{Ref: file.Ref}
		for _, m := range append(info.Deps, &debug.Module{Path: "stdlib", Version: info.GoVersion}) {
			c, err := module(m)
			if err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}

			parts[c.Ref] = c // once, however many binaries have it
			needs.DependsOn = append(needs.DependsOn, c.Ref)
		}

		slices.Sort(needs.DependsOn)
		b.Components, b.Dependencies = append(b.Components, file), append(b.Dependencies, needs)
	}

	b.Components = append(b.Components, slices.SortedFunc(maps.Values(parts), func(x, y component) int { return cmp.Compare(x.Ref, y.Ref) })...)
	e := json.NewEncoder(out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(b)
}

// binary is the file itself, with its checksum and how it was built.
func binary(path string, info *buildinfo.BuildInfo) (component, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return component{}, err
	}

	sum := sha256.Sum256(b)
	c := component{Type: "file", Ref: "file:" + filepath.Base(path), Name: filepath.Base(path),
		Hashes: []hash{{"SHA-256", hex.EncodeToString(sum[:])}}, About: []property{{"go:version", info.GoVersion}}}
	for _, s := range info.Settings {
		if s.Key == "GOARCH" || s.Key == "GOOS" || s.Key == "CGO_ENABLED" || strings.HasPrefix(s.Key, "vcs.") {
			c.About = append(c.About, property{"go:" + s.Key, s.Value})
		}
	}

	return c, nil
}

// module is a library that was linked in; a replaced one by what replaced it. The package
// URL is that of github.com/package-url/purl-spec: scanners look vulnerabilities up by it.
func module(m *debug.Module) (component, error) {
	if m.Replace != nil {
		m = m.Replace
	}

	purl := "pkg:golang/" + m.Path + "@" + m.Version
	c := component{Type: "library", Ref: purl, Name: m.Path, Version: m.Version, PURL: purl}
	if m.Sum == "" {
		return c, nil // the standard library
	}

	sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(m.Sum, "h1:"))
	if err != nil {
		return c, fmt.Errorf("sum of %s: %w", m.Path, err)
	}

	// h1 is the SHA-256 of the module's list of files, not of an archive.
	c.About = []property{{"go:sum.h1.sha256", hex.EncodeToString(sum)}}
	return c, nil
}
