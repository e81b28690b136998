package main

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"

	"laggard/collector/native"
	"laggard/collector/python"
)

func installCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "install DIR",
		Short: "writes the recorders (C header and source, Python package) into DIR: what an init container does",
		Example: `  laggard install /opt/laggard
  PYTHONPATH=/opt/laggard/python LAGGARD_AUTO=1 python3 train.py`,
		Args: positional("DIR"),
		RunE: func(c *cobra.Command, args []string) error {
			for _, part := range []struct {
				folder string
				files  fs.FS
			}{{"python", python.Files}, {"native", native.Sources()}} {
				n, err := copyFiles(filepath.Join(args[0], part.folder), part.files)
				if err != nil {
					return err
				}
				fmt.Fprintf(c.OutOrStdout(), "%s: %d files\n", filepath.Join(args[0], part.folder), n)
			}
			return buildNative(c, args[0])
		},
	}
}

// buildNative compiles the C recorder where there is a compiler, and says so where
// there is none.
func buildNative(c *cobra.Command, dir string) error {
	src := filepath.Join(dir, "native")
	if _, err := exec.LookPath("cc"); err != nil {
		fmt.Fprintf(os.Stderr, "no C compiler (cc) here and this build of laggard carries no .so: %s is source; the Python package needs none\n", src)
		return nil
	}
	library := filepath.Join(src, native.Library)
	if err := native.Build(c.Context(), "", src, library); err != nil {
		return err
	}
	fmt.Fprintln(c.OutOrStdout(), library)
	return nil
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
		return replaceFile(path, b)
	})
	if err != nil {
		return n, fmt.Errorf("install into %s: %w", dir, err)
	}
	return n, nil
}

func replaceFile(path string, b []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".install-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	if _, err := f.Write(b); err != nil {
		f.Close()
		return err
	}
	if err := f.Chmod(0o644); err != nil {
		f.Close()
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
