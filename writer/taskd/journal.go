package taskd

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"

	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/topology"
	"github.com/laggard-dev/laggard/writer/segment"
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
	next := map[uint32]uint64{}
	maps.Copy(next, s.Next)
	for _, r := range records {
		if r.ring != 0 {
			next[r.ring] = r.seq + 1
		}
	}

	return state{s.Name, s.Size + bytes, next, records[len(records)-1].id, s.Ended}
}

// entry is what the journal holds: the last write, which was carried out wholly or
// not at all, in the directory of a rank.
type entry struct {
	Job    string `json:"job"`
	Rank   int    `json:"rank"`
	Boot   string `json:"boot"` // id: what the host's end took from a file is no write of ours
	Before state  `json:"before"`
	After  state  `json:"after"`
}

// settle carries a write that was under way out, or takes it back, in a rank's
// directory, and returns where that leaves it.
func (e *entry) settle(rankDir string) (state, error) {
	size, err := sizeOf(rankDir, e.After.Name)
	switch {
	case err != nil:
		return e.Before, err
	case size >= e.After.Size:
		return e.After, nil
	case e.After.Name == e.Before.Name && size > e.Before.Size:
		if err := cut(filepath.Join(rankDir, e.After.Name), e.Before.Size); err != nil {
			return e.Before, fmt.Errorf("cut a torn write off %s: %w", e.After.Name, err)
		}
	}

	return e.Before, nil
}

// cut makes a segment shorter.
func cut(path string, size int64) error {
	f, err := segment.Disk.Append(path)
	if err != nil {
		return err
	}

	return errors.Join(f.Truncate(size), f.Close())
}

// sizeOf returns a segment's size, 0 when it is not there (any more).
func sizeOf(rankDir, name string) (int64, error) {
	info, err := os.Lstat(filepath.Join(rankDir, name))
	if name == "" || errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}

	if err != nil {
		return 0, err
	}

	if !info.Mode().IsRegular() {
		return 0, fmt.Errorf("%s: %w", name, segment.ErrNotRegular)
	}

	return info.Size(), nil
}

// Settle takes back what a kill left of writes into the profiling directory root. It
// is called before anybody reads there: a follower that had read lines of such a write
// would take the segment, shorter now, for another one, and store it again. Journals
// of another boot (as /proc/sys/kernel/random/boot_id prints its id) are left alone. An
// error is of single journals; the others are settled.
func Settle(root, stateDir, boot string) error {
	paths, err := filepath.Glob(filepath.Join(stateDir, "taskd-*.json"))
	errs := []error{err}
	for _, p := range paths {
		e, ok, err := readJournal(p)
		if err == nil && ok && e.Job != "" && e.Boot == boot {
			_, err = e.settle(filepath.Join(root, e.Job, strconv.Itoa(e.Rank)))
		}

		errs = append(errs, err)
	}

	return errors.Join(errs...)
}

// readJournal reads a journal: a file that is replaced as a whole. It need not survive the
// host: the rings it speaks of don't either.
func readJournal(path string) (e entry, ok bool, err error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return e, false, nil
	}

	if err == nil {
		err = json.Unmarshal(b, &e)
	}

	if err == nil {
		err = e.check()
	}

	if err != nil {
		return e, false, fmt.Errorf("read journal %s: %w", path, err)
	}

	return e, true, nil
}

// check holds that an entry names nothing outside of a rank's directory.
func (e *entry) check() error {
	if e.Job != "" && (filepath.Base(e.Job) != e.Job || e.Job == "." || e.Job == "..") || e.Rank < 0 {
		return fmt.Errorf("it is of job %.80q, rank %d", e.Job, e.Rank)
	}

	for _, s := range []state{e.Before, e.After} {
		if _, ok := segment.Number(s.Name); s.Name != "" && !ok || s.Size < 0 {
			return fmt.Errorf("it names %d bytes of %.80q, which is no segment", s.Size, s.Name)
		}
	}

	return nil
}

// writeJournal replaces a journal.
func writeJournal(path string, e entry) error {
	b, err := json.Marshal(e)
	if err != nil {
		return err
	}

	if err := replace(path, b); err != nil {
		return fmt.Errorf("write journal: %w", err)
	}

	return nil
}

// replace writes a file by a rename. It syncs nothing: a journal is written before each write, and
// need not survive the host; groups are written again.
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

// writeGroups writes the rank's parallel_group.json unless it says so already.
func writeGroups(rankDir string, groups []record.Group) error {
	b, err := topology.FormatParallelGroup(groups)
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
