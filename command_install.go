package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/laggard-dev/laggard/collector/mspti"
	"github.com/laggard-dev/laggard/collector/native"
	"github.com/laggard-dev/laggard/collector/python"
	"github.com/laggard-dev/laggard/schemas/keep"
)

// installCommand is what an init container runs: the program carries its recorders in itself.
func installCommand() *cobra.Command {
	interpreter := "python3"
	c := &cobra.Command{
		Use:   "install DIR",
		Short: "writes the recorders (C, Python, libmspti) into DIR and builds what can be built here: what an init container does",
		Long: `Writes the recorders into DIR, and builds what can be built here:

  DIR/python   the Python package; set PYTHONPATH to it. Its C extension is built for
               --python; for another interpreter at the trainer's first import, into the
               user's cache, where that has cc and Python.h. Without it all works.
  DIR/native   laggard.h, laggard.hpp, the C source and liblaggard.so
  DIR/mspti    for Ascend: liblaggard_mspti.so for LD_PRELOAD behind libmspti.so, and
               libms_tools_ext.so for a machine without an NPU, with their sources`,
		Example: `  laggard install /opt/laggard
  PYTHONPATH=/opt/laggard/python LAGGARD_AUTO=1 python3 train.py`,
		Args: positional("DIR"),
		RunE: func(c *cobra.Command, args []string) error {
			for _, part := range []struct {
				folder string
				files  []fs.FS
			}{
				{"python", []fs.FS{python.Files}},
				{"python/laggard/native", []fs.FS{native.Sources()}},
				{"native", []fs.FS{native.Sources()}},
				{"mspti", []fs.FS{native.Sources(), mspti.Sources()}},
			} {
				dir, files := filepath.Join(args[0], filepath.FromSlash(part.folder)), 0
				for _, f := range part.files {
					n, err := copyFiles(dir, f)
					if err != nil {
						return err
					}

					files += n
				}

				fmt.Fprintf(c.OutOrStdout(), "%s: %d files\n", dir, files)
			}

			if err := buildLibraries(c, args[0]); err != nil {
				return err
			}

			buildExtension(c, interpreter, args[0])
			return nil
		},
	}
	c.Flags().StringVar(&interpreter, "python", interpreter, "the trainers' Python: the C extension is built for it")
	return c
}

// buildLibraries compiles the C recorder and the libmspti recorder where there is a
// compiler, and says so where there is none.
func buildLibraries(c *cobra.Command, dir string) error {
	if _, err := exec.LookPath("cc"); err != nil {
		fmt.Fprintf(c.ErrOrStderr(), "no C compiler (cc) here and this build of laggard carries no .so: %s and %s are source; the Python package needs none\n",
			filepath.Join(dir, "native"), filepath.Join(dir, "mspti"))
		return nil
	}

	for _, l := range []struct {
		folder string
		names  []string
		build  func(ctx context.Context, src, out string, extra ...string) error
	}{
		{"native", []string{native.Library}, native.Build},
		{"mspti", []string{mspti.Library, mspti.RangeLibrary}, mspti.Build},
	} {
		if err := buildInto(c, filepath.Join(dir, l.folder), l.names, l.build); err != nil {
			return err
		}
	}

	return nil
}

// buildInto builds libraries aside and renames them into folder: a trainer that starts
// meanwhile loads the old one or the new one.
func buildInto(c *cobra.Command, folder string, names []string, build func(ctx context.Context, src, out string, extra ...string) error) error {
	aside, err := os.MkdirTemp(folder, ".build-*")
	if err != nil {
		return fmt.Errorf("build in %s: %w", folder, err)
	}
	defer os.RemoveAll(aside)
	if err := build(c.Context(), folder, aside); err != nil {
		return err
	}

	for _, name := range names {
		path := filepath.Join(folder, name)
		if err := os.Rename(filepath.Join(aside, name), path); err != nil {
			return fmt.Errorf("install %s: %w", path, err)
		}

		fmt.Fprintln(c.OutOrStdout(), path)
	}

	return nil
}

// buildExtension builds the Python package's C extension for an interpreter. Where that
// can't be done it says why: trainers try again, and do without.
func buildExtension(c *cobra.Command, interpreter, dir string) {
	path, err := exec.LookPath(interpreter)
	if err != nil {
		fmt.Fprintf(c.ErrOrStderr(), "no extension of the Python package: no %s here; a trainer with cc and Python.h builds it at its first import, others do without\n", interpreter)
		return
	}

	cmd := exec.CommandContext(c.Context(), path, "-B", "-m", "laggard", "build", "--here")
	// The build must not record itself, nor say anything but why it failed.
	cmd.Env = append(os.Environ(), "PYTHONPATH="+filepath.Join(dir, "python"), "LAGGARD_AUTO=0", "LAGGARD_DEBUG=0")
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		why, _, _ := strings.Cut(strings.TrimSpace(said.String()), "\n")
		fmt.Fprintf(c.ErrOrStderr(), "no extension of the Python package for %s (%s); a trainer with cc and Python.h builds it at its first import, others do without\n",
			path, cmp.Or(strings.TrimPrefix(why, "laggard: "), err.Error()))
		return
	}

	fmt.Fprint(c.OutOrStdout(), string(out))
}

// copyFiles writes a tree of files into dir, each by a rename, so that a trainer
// that starts meanwhile reads the old file or the new one.
func copyFiles(dir string, files fs.FS) (n int, err error) {
	err = fs.WalkDir(files, ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}

		path := filepath.Join(dir, filepath.FromSlash(name))
		if e.IsDir() {
			return os.MkdirAll(path, 0o755)
		}

		b, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}

		n++
		return keep.Write(path, 0o644, b)
	})
	if err != nil {
		return n, fmt.Errorf("install into %s: %w", dir, err)
	}

	return n, nil
}
