package parquet

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

const (
	// ReplacesKey is the footer's key under which a compacted file lists the names of
	// the files whose rows it holds, as a JSON array.
	ReplacesKey = "laggard.replaces"
	// CompactedPrefix begins the names of compacted files.
	CompactedPrefix = "c-"
)

// replaces remembers what compacted files list: a name is made from what it
// replaces, so it never changes.
var replaces sync.Map // path → []string

// list returns all data files of a folder, sorted, and which of them a compacted file beside them
// replaces: a crash may have come between its rename and their removal.
func list(folder string) (all []string, replaced map[string]bool, err error) {
	entries, err := os.ReadDir(folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("list Parquet files: %w", err)
	}

	replaced = map[string]bool{}
	for _, e := range entries {
		if !e.Type().IsRegular() || !strings.HasSuffix(e.Name(), Suffix) || strings.HasPrefix(e.Name(), ".") {
			continue
		}

		path := filepath.Join(folder, e.Name())
		all = append(all, path)
		if !strings.HasPrefix(e.Name(), CompactedPrefix) {
			continue
		}

		names, err := replacedBy(path)
		if err != nil {
			return nil, nil, err
		}

		for _, name := range names {
			replaced[filepath.Join(folder, name)] = true
		}
	}

	return all, replaced, nil
}

// replacedBy returns the names of the files that a compacted file replaces.
func replacedBy(path string) ([]string, error) {
	if names, ok := replaces.Load(path); ok {
		return names.([]string), nil
	}

	file, closer, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer closer.Close()
	var names []string
	if text, ok := file.Lookup(ReplacesKey); ok && json.Unmarshal([]byte(text), &names) != nil {
		names = nil // another program's file
	}

	names = slices.DeleteFunc(names, func(name string) bool { return name != filepath.Base(name) || name == filepath.Base(path) })
	replaces.Store(path, names)
	return names, nil
}
