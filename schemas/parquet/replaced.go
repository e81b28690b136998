package parquet

import (
	"encoding/json"
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

// current leaves out the files that a compacted file beside them replaces: a crash
// may have come between its rename and their removal. paths are of one folder.
func current(paths []string) ([]string, error) {
	gone := map[string]bool{}
	for _, path := range paths {
		if !strings.HasPrefix(filepath.Base(path), CompactedPrefix) {
			continue
		}

		names, err := Replaces(path)
		if err != nil {
			return nil, err
		}

		for _, name := range names {
			gone[filepath.Join(filepath.Dir(path), name)] = true
		}
	}

	if len(gone) == 0 {
		return paths, nil
	}

	return slices.DeleteFunc(paths, func(path string) bool { return gone[path] }), nil
}

// Replaces returns the names of the files that a compacted file replaces.
func Replaces(path string) ([]string, error) {
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
