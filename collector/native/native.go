// Package native holds the C and C++ recorder: laggard.h, laggard.hpp and the
// source of liblaggard.so, and builds the library with a plain C compiler.
//
// Invariant: the library needs no header or symbol beyond a C library of 2012
// (GLIBC_2.17) and exports the functions of laggard.h only.
package native

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
)

//go:embed src
var files embed.FS

// Library is the file name of the library.
const Library = "liblaggard.so"

// Sources returns the library's files: laggard.h and laggard.hpp for users, the
// rest to build it.
func Sources() fs.FS {
	sub, err := fs.Sub(files, "src")
	if err != nil {
		panic("BUG: " + err.Error()) // src is embedded above
	}

	return sub
}

// Install writes the sources into dir, which it makes when it is missing.
func Install(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("install C recorder: %w", err)
	}

	return fs.WalkDir(Sources(), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}

		b, err := fs.ReadFile(Sources(), name)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), b, 0o644)
		}

		if err != nil {
			return fmt.Errorf("install C recorder: %w", err)
		}

		return nil
	})
}

// Flags are what the library is compiled with.
var Flags = []string{
	"-std=gnu11", "-O3", "-fno-plt", "-g", "-fPIC", "-fvisibility=hidden", "-pthread", "-Wall", "-Wextra",
}

// Build compiles the library out of the sources that Install wrote into src, and
// writes it to the file out. cc is the compiler, "" for cc; extra follows Flags.
// The library is never unloaded: threads that end later run its code.
func Build(ctx context.Context, cc, src, out string, extra ...string) error {
	if cc == "" {
		cc = "cc"
	}

	c, err := filepath.Glob(filepath.Join(src, "*.c"))
	if err != nil || len(c) == 0 {
		return fmt.Errorf("build %s: no sources in %s", Library, src)
	}

	args := append(append([]string{}, Flags...), "-shared", "-Wl,-z,nodelete", "-Wl,-soname,"+Library, "-o", out)
	args = append(append(args, c...), extra...)
	if b, err := exec.CommandContext(ctx, cc, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", Library, err, b)
	}

	return nil
}

// Program compiles a program in one C file against the library that Build put
// into dir, which it finds there when it runs.
func Program(ctx context.Context, cc, dir, src, out string, extra ...string) error {
	if cc == "" {
		cc = "cc"
	}

	args := []string{"-std=gnu11", "-O2", "-g", "-pthread", "-Wall", "-Wextra", "-I" + dir, "-o", out, src}
	args = append(append(args, extra...), "-L"+dir, "-llaggard", "-Wl,-rpath,"+dir)
	if b, err := exec.CommandContext(ctx, cc, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", filepath.Base(out), err, b)
	}

	return nil
}
