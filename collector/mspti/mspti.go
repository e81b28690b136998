package mspti

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/laggard-dev/laggard/collector/native"
)

//go:embed src/*.c src/*.h
var files embed.FS

const (
	// Library is the file name of the library for LD_PRELOAD.
	Library = "liblaggard_mspti.so"
	// RangeLibrary is the file name of the mstx functions for machines without an NPU.
	RangeLibrary = "libms_tools_ext.so"
)

// Of RangeLibrary alone, and of both.
const (
	rangeSource = "mstx.c"
	nameSource  = "mspti_name.c"
)

// Sources returns the libraries' own files. Build wants native.Sources beside them, in
// one folder: the C recorder is part of both libraries.
func Sources() fs.FS {
	own, err := fs.Sub(files, "src")
	if err != nil {
		panic("BUG: " + err.Error()) // src is embedded above
	}

	return own
}

// Build compiles both libraries out of the sources in the directory src and writes them
// into the directory out; extra follows the compiler's flags. No library of Ascend's is
// needed for it.
func Build(ctx context.Context, src, out string, extra ...string) error {
	all, err := filepath.Glob(filepath.Join(src, "*.c"))
	if err != nil || len(all) == 0 {
		return fmt.Errorf("build %s: no sources in %s", Library, src)
	}

	// The C recorder comes first: what is linked first begins first and ends last, and
	// the recorder has to be there all the time.
	var recorder, taker, ranges []string
	for _, f := range all {
		switch name := filepath.Base(f); {
		case name == rangeSource:
			ranges = append(ranges, f)
		case name == nameSource:
			ranges, taker = append(ranges, f), append(taker, f)
		case strings.HasPrefix(name, "mspti"):
			taker = append(taker, f)
		default:
			recorder = append(recorder, f)
		}
	}

	if err := native.Link(ctx, filepath.Join(out, Library), slices.Concat(recorder, taker, extra)...); err != nil {
		return err
	}

	return native.Link(ctx, filepath.Join(out, RangeLibrary), slices.Concat(recorder, ranges, extra)...)
}
