package mspti

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
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

// Install writes the sources into dir, which it makes when it is missing, with the C
// recorder's.
func Install(dir string) error {
	if err := native.Install(dir); err != nil {
		return err
	}

	own := Sources()
	return fs.WalkDir(own, ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}

		b, err := fs.ReadFile(own, name)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), b, 0o644)
		}

		if err != nil {
			return fmt.Errorf("install libmspti recorder: %w", err)
		}

		return nil
	})
}

// Build compiles both libraries out of the sources that Install wrote into src, and
// writes them into the directory out. cc is the compiler, "" for cc; extra follows
// native.Flags. No library of Ascend's is needed for it.
func Build(ctx context.Context, cc, src, out string, extra ...string) error {
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

	if err := library(ctx, cc, filepath.Join(out, Library), append(recorder[:len(recorder):len(recorder)], taker...), extra); err != nil {
		return err
	}

	return library(ctx, cc, filepath.Join(out, RangeLibrary), append(recorder[:len(recorder):len(recorder)], ranges...), extra)
}

func library(ctx context.Context, cc, out string, sources, extra []string) error {
	if cc == "" {
		cc = "cc"
	}

	name := filepath.Base(out)
	args := append([]string{}, native.Flags...)
	args = append(args, "-shared", "-Wl,-z,nodelete", "-Wl,-soname,"+name, "-o", out)
	args = append(append(args, sources...), extra...)
	if b, err := exec.CommandContext(ctx, cc, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", name, err, b)
	}

	return nil
}
