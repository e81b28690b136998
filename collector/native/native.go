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

// Build compiles the library out of the sources in the directory src and writes it into
// the directory out; extra follows the compiler's flags.
func Build(ctx context.Context, src, out string, extra ...string) error {
	c, err := filepath.Glob(filepath.Join(src, "*.c"))
	if err != nil || len(c) == 0 {
		return fmt.Errorf("build %s: no sources in %s", Library, src)
	}

	return Link(ctx, filepath.Join(out, Library), append(c, extra...)...)
}

// Link compiles C sources, and what else the compiler is told after its flags, to the
// shared library out. It is never unloaded: threads that end later run its code.
func Link(ctx context.Context, out string, sources ...string) error {
	name := filepath.Base(out)
	args := append([]string{
		"-std=gnu11", "-O3", "-fno-plt", "-g", "-fPIC", "-fvisibility=hidden", "-pthread", "-Wall", "-Wextra",
		"-shared", "-Wl,-z,nodelete", "-Wl,-soname," + name, "-o", out,
	}, sources...)
	if b, err := exec.CommandContext(ctx, "cc", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", name, err, b)
	}

	return nil
}
