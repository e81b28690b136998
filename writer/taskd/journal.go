package taskd

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"laggard/schemas/record"
	"laggard/schemas/topology"
)

// state is where a writer stands.
type state struct {
	Name  string            `json:"name"` // current segment
	Size  int64             `json:"size"`
	Next  map[uint32]uint64 `json:"next"` // per ring, the next sequence number
	ID    uint64            `json:"id"`   // TaskD's range Id drawn last
	Ended bool              `json:"ended,omitempty"`
}

// after returns the state when the records are written, bytes long.
func (s state) after(records []mark, bytes int64) state {
	next := make(map[uint32]uint64, len(s.Next)+1)
	for ring, seq := range s.Next {
		next[ring] = seq
	}
	for _, r := range records {
		if r.ring != 0 {
			next[r.ring] = r.seq + 1
		}
	}
	return state{s.Name, s.Size + bytes, next, records[len(records)-1].id, s.Ended}
}

// entry is what the journal holds: the last write, which was carried out wholly or
// not at all.
type entry struct {
	Before state `json:"before"`
	After  state `json:"after"`
}

// journal is a file that is replaced as a whole. It need not survive the host:
// the rings it speaks of don't either.
type journal struct{ path string }

func (j journal) read() (e entry, ok bool, err error) {
	b, err := os.ReadFile(j.path)
	if errors.Is(err, os.ErrNotExist) {
		return e, false, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &e)
	}
	if err != nil {
		return e, false, fmt.Errorf("read journal %s: %w", j.path, err)
	}
	return e, true, nil
}

func (j journal) write(e entry) error {
	b, err := json.Marshal(e)
	if err != nil {
		return err
	}
	if err := replace(j.path, b); err != nil {
		return fmt.Errorf("write journal: %w", err)
	}
	return nil
}

// replace writes a file by a rename.
func replace(path string, b []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	next := path + ".new"
	if err := os.WriteFile(next, b, 0o644); err != nil {
		return err
	}
	return os.Rename(next, path)
}

// group is one entry of parallel_group.json (taskd-compat.md 1.5).
type group struct {
	Name  string `json:"group_name"`
	Rank  int    `json:"group_rank"`
	Ranks []int  `json:"global_ranks"`
}

// writeGroups writes the rank's parallel_group.json unless it says so already.
func writeGroups(rankDir string, groups []record.Group) error {
	table := map[string]group{}
	for _, g := range groups {
		dim := g.Dim
		if dim == "ep" {
			dim = "exp" // TaskD's word
		}
		table[g.Name] = group{dim, g.Index, g.Ranks}
	}
	b, err := json.MarshalIndent(table, "", "    ")
	if err != nil {
		return err
	}
	path := filepath.Join(rankDir, topology.ParallelGroupFile)
	if old, err := os.ReadFile(path); err == nil && string(old) == string(b) {
		return nil
	}
	if err := replace(path, b); err != nil {
		return fmt.Errorf("write parallel groups: %w", err)
	}
	return nil
}
