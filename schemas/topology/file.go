package topology

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/laggard-dev/laggard/schemas/keep"
	"github.com/laggard-dev/laggard/schemas/spelling"
)

// FileName is the topology file that is found by itself beside ranks or jobs.
const FileName = "topology.json"

const (
	// maxFile bounds the JSON files that are read: a rank table of a large job has tens of
	// megabytes.
	maxFile = 128 << 20
	// maxGroupFile bounds a rank's parallel_group.json. Each line of it is a rank: those
	// of a job of 100,000 ranks have 2.5 MB.
	maxGroupFile = 4 << 20
	// maxWorld bounds rank numbers: a typo must not allocate a matrix of 10^9 rows.
	maxWorld = 1 << 20
)

// Dim returns a dimension's word as topology files spell it: in lower case, "ep"
// for TaskD's "exp".
func Dim(word string) string {
	if word = strings.ToLower(strings.TrimSpace(word)); word == "exp" {
		return "ep"
	}

	return word
}

// Load reads and validates a topology file.
func Load(path string) (*File, error) { return load("topology", path, maxFile, parse) }

// load reads a file of at most so many bytes by parse. Errors say what it is, and name it.
func load[T any](what, path string, most int64, parse func([]byte) (T, error)) (v T, err error) {
	b, err := readFile(path, most)
	if err != nil {
		return v, fmt.Errorf("read %s: %w", what, err)
	}

	if v, err = parse(b); err != nil {
		err = fmt.Errorf("%s %s: %w", what, path, err)
	}

	return v, err
}

// parse is Load for the content of a file.
func parse(b []byte) (*File, error) {
	if err := checkKeys(b); err != nil {
		return nil, err
	}

	f := &File{}
	if err := json.Unmarshal(b, f); err != nil {
		return nil, describe(b, err)
	}

	return f, f.validate()
}

// validate checks f and brings it into one form: dimensions in lower case ("exp"
// becomes "ep"), a missing world_size becomes the largest rank + 1. Its errors name
// the key and what to do.
func (f *File) validate() error {
	if f.WorldSize < 0 || f.WorldSize > maxWorld {
		return fmt.Errorf("world_size %d: want 1 to %d", f.WorldSize, maxWorld)
	}

	largest := -1
	owner := map[int]string{}
	for _, node := range f.nodeNames() {
		if node == "" {
			return errors.New(`nodes: a node without a name; give it the name its agent uses (--node)`)
		}

		for _, r := range f.Nodes[node] {
			if err := f.checkRank(r); err != nil {
				return fmt.Errorf("nodes.%s: %w", node, err)
			}

			if other, ok := owner[r]; ok {
				if other == node {
					return fmt.Errorf("nodes.%s: rank %d is listed twice; remove one", node, r)
				}

				return fmt.Errorf("nodes.%s: rank %d is also in nodes.%s; a rank runs on one node", node, r, other)
			}

			owner[r] = node
			largest = max(largest, r)
		}
	}

	names := map[string]int{}
	for i := range f.Groups {
		if err := f.checkGroup(i, names); err != nil {
			return err
		}

		largest = max(largest, slices.Max(f.Groups[i].Ranks))
	}

	if f.WorldSize == 0 {
		f.WorldSize = largest + 1
	}

	return nil
}

// checkGroup validates the i-th group and brings its dimension into one form; names has the
// groups before it.
func (f *File) checkGroup(i int, names map[string]int) error {
	g := &f.Groups[i]
	key := "groups[" + strconv.Itoa(i) + "]"
	if g.Name == "" {
		return fmt.Errorf("%s.name: missing; name the group, e.g. dp-stage0", key)
	}

	key += " (" + g.Name + ")"
	if j, ok := names[g.Name]; ok {
		return fmt.Errorf("%s.name: groups[%d] has the same name; names must differ", key, j)
	}

	names[g.Name] = i
	if g.Dim = Dim(g.Dim); g.Dim == "" {
		return fmt.Errorf("%s.dim: missing; want tp, pp, dp, cp or ep (others define no role)", key)
	}

	if len(g.Ranks) == 0 {
		return fmt.Errorf("%s.ranks: empty; list the global ranks of the group", key)
	}

	seen := make(map[int]bool, len(g.Ranks))
	for _, r := range g.Ranks {
		if err := f.checkRank(r); err != nil {
			return fmt.Errorf("%s.ranks: %w", key, err)
		}

		if seen[r] {
			return fmt.Errorf("%s.ranks: rank %d is listed twice; remove one", key, r)
		}

		seen[r] = true
	}

	return nil
}

// checkRank refuses a rank that the world does not have. Where the file names no world size
// maxWorld stands for it: the largest rank becomes the size later.
func (f *File) checkRank(r int) error {
	limit := f.WorldSize
	if limit == 0 {
		limit = maxWorld
	}

	if r < 0 || r >= limit {
		return fmt.Errorf("rank %d is outside 0…%d; ranks are global, or world_size is too small", r, limit-1)
	}

	return nil
}

// nodeNames returns the names of the nodes, sorted.
func (f *File) nodeNames() []string { return slices.Sorted(maps.Keys(f.Nodes)) }

// checkKeys finds keys that look like a misspelt one of ours. Others are ignored:
// another tool's additions do no harm.
func checkKeys(b []byte) error {
	var top map[string]json.RawMessage
	if json.Unmarshal(b, &top) != nil {
		return nil // Parse says what is wrong
	}

	if err := nearKeys("", top, "world_size", "nodes", "groups"); err != nil {
		return err
	}

	var groups []map[string]json.RawMessage
	if json.Unmarshal(top["groups"], &groups) != nil {
		return nil
	}

	for i, g := range groups {
		if err := nearKeys("groups["+strconv.Itoa(i)+"].", g, "name", "dim", "ranks"); err != nil {
			return err
		}
	}

	return nil
}

// nearKeys finds a key of an object that is none of the known ones and looks like one of
// them that is missing: up to two letters differ. prefix is where the object stands.
func nearKeys(prefix string, have map[string]json.RawMessage, known ...string) error {
	for _, k := range slices.Sorted(maps.Keys(have)) {
		if slices.Contains(known, k) {
			continue
		}

		for _, want := range known {
			if _, ok := have[want]; !ok && spelling.Distance(strings.ToLower(k), want) <= 2 {
				return fmt.Errorf("unknown key %s%s; did you mean %s%s?", prefix, k, prefix, want)
			}
		}
	}

	return nil
}

// describe adds the line of a syntax error, or the key of a wrong type.
func describe(b []byte, err error) error {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		line := 1 + strings.Count(string(b[:min(int(syntax.Offset), len(b))]), "\n")
		return fmt.Errorf("line %d: %w; it must be one JSON object", line, err)
	case errors.As(err, &kind):
		return fmt.Errorf("%s: is a %s, want %s", kind.Field, kind.Value, kind.Type)
	}

	return err
}

// readFile reads a regular file of at most so many bytes. A rank directory may belong to
// another user than ours: a link that he puts there must not make us read for him.
func readFile(path string, most int64) ([]byte, error) {
	b, err := keep.Read(path, most)
	if !errors.Is(err, keep.ErrNotKept) && !errors.Is(err, syscall.ELOOP) {
		return b, err
	}

	if st, err := os.Lstat(path); err == nil && st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: larger than %d bytes", path, most)
	}

	return nil, fmt.Errorf("%s: not a regular file (links are not followed here)", path)
}
