package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
)

// wanted reports whether counting needs a file's content.
func wanted(name string) bool { return path.Ext(name) == ".go" || path.Base(name) == "go.mod" }

// worktree reads the tracked files of a checkout as they lie on disk.
func worktree(root string) (map[string][]byte, error) {
	list, err := git(root, "ls-files", "-z")
	if err != nil {
		return nil, err
	}

	files := map[string][]byte{}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(list), "\x00"), "\x00") {
		if !wanted(name) {
			continue
		}

		text, err := os.ReadFile(filepath.Join(root, name))
		if errors.Is(err, os.ErrNotExist) {
			continue // deleted, not yet committed
		}

		if err != nil {
			return nil, err
		}

		files[name] = text
	}

	return files, nil
}

// commit reads the files of a commit without checking it out: neither the checkout nor its index
// changes.
func commit(root, name string) (map[string][]byte, error) {
	archive, err := git(root, "archive", "--format=tar", name)
	if err != nil {
		return nil, err
	}

	files := map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}

		if err != nil {
			return nil, fmt.Errorf("read archive of %s: %w", name, err)
		}

		if header.Typeflag != tar.TypeReg || !wanted(header.Name) {
			continue
		}

		if files[header.Name], err = io.ReadAll(r); err != nil {
			return nil, fmt.Errorf("read archive of %s: %w", name, err)
		}
	}
}

// git returns what a git command prints, and its complaint as the error.
func git(root string, args ...string) ([]byte, error) {
	command := exec.Command("git", append([]string{"-C", root}, args...)...)

	var words bytes.Buffer
	command.Stderr = &words

	out, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("git %s: %w: %s", args[0], err, bytes.TrimSpace(words.Bytes()))
	}

	return out, nil
}
