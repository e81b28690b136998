package e2e

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"
)

// logged is a system call of a traced agent that was made, and when.
type logged struct {
	sysCall
	at time.Time
}

// syncedDisk is a disk as POSIX promises it and no more: what is not synced may be lost
// in any part and in any order, file contents by blocks, names by directory.
type syncedDisk struct {
	files map[string]*content // the names as the program sees them
	safe  map[string]*content // the names that a loss of power leaves
	names map[string][]change // by directory: what happened to names since its fsync
}

// content is a file; nil stands for a directory.
type content struct {
	data, safe []byte    // as written, and as last synced
	dirty      []extent  // written since
	since      time.Time // the first of these
}

type extent struct{ from, to int }

// change gives a name another file, or none.
type change struct {
	from, name string // from: the old name of a rename, "" otherwise
	file       *content
	made       bool
}

func newDisk() *syncedDisk {
	return &syncedDisk{files: map[string]*content{}, safe: map[string]*content{}, names: map[string][]change{}}
}

func (p *syncedDisk) note(path string, c change) {
	c.name = path
	dir := filepath.Dir(path)
	p.names[dir] = append(p.names[dir], c)
}

// do makes one call.
func (p *syncedDisk) do(c *logged) {
	f := p.files[c.path]
	switch c.name {
	case "mkdir":
		p.files[c.path] = nil
		p.note(c.path, change{made: true})
	case "open":
		if f == nil && c.flags&syscall.O_CREAT != 0 {
			f = &content{}
			p.files[c.path] = f
			p.note(c.path, change{file: f, made: true})
		}

		if f != nil && c.flags&syscall.O_TRUNC != 0 && len(f.data) > 0 {
			f.cut(0, c.at)
		}
	case "write":
		if f != nil {
			f.write(len(f.data), c.data, c.at)
		}
	case "pwrite":
		if f != nil {
			f.write(int(c.offset), c.data, c.at)
		}
	case "truncate":
		if f != nil {
			f.cut(int(c.offset), c.at)
		}
	case "fsync":
		if f != nil {
			f.safe, f.dirty = slices.Clone(f.data), nil
			return
		}

		for _, c := range p.names[c.path] {
			apply(p.safe, c)
		}

		delete(p.names, c.path)
	case "rename":
		delete(p.files, c.path)
		p.files[c.to] = f
		p.note(c.to, change{from: c.path, file: f, made: true})
	case "unlink":
		delete(p.files, c.path)
		p.note(c.path, change{})
	}
}

func apply(names map[string]*content, c change) {
	if c.from != "" {
		delete(names, c.from)
	}

	if c.made {
		names[c.name] = c.file
	} else {
		delete(names, c.name)
	}
}

func (f *content) touch(from, to int, at time.Time) {
	if len(f.dirty) == 0 {
		f.since = at
	}

	f.dirty = append(f.dirty, extent{from, to})
}

func (f *content) write(at int, b []byte, when time.Time) {
	if n := at + len(b); n > len(f.data) {
		f.data = append(f.data, make([]byte, n-len(f.data))...)
	}

	copy(f.data[at:], b)
	f.touch(at, at+len(b), when)
}

func (f *content) cut(size int, when time.Time) {
	size = min(size, len(f.data))
	f.touch(size, len(f.data), when)
	f.data = f.data[:size:size]
}

// lose returns what a loss of power leaves of the names.
func (p *syncedDisk) lose(r *rand.Rand) map[string]*content {
	names := make(map[string]*content, len(p.safe))
	for name, f := range p.safe {
		names[name] = f
	}

	dirs := make([]string, 0, len(p.names))
	for dir := range p.names {
		dirs = append(dirs, dir)
	}

	slices.Sort(dirs)
	for _, dir := range dirs {
		changes := p.names[dir]
		switch r.IntN(3) {
		case 0: // a journal: some of them, in order
			for _, c := range changes[:r.IntN(len(changes)+1)] {
				apply(names, c)
			}
		case 1:
			for _, c := range changes {
				apply(names, c)
			}

		default: // any of them
			for _, c := range changes {
				if r.IntN(2) == 0 {
					apply(names, c)
				}
			}
		}
	}

	return names
}

// lose returns what a loss of power leaves of a file: blocks that were written since
// the last sync are old, new, or (beyond the old end) zeros, the size is anything
// between, and one block may be torn.
func (f *content) lose(r *rand.Rand) []byte {
	if len(f.dirty) == 0 || r.IntN(4) == 0 {
		return f.data
	}

	if r.IntN(4) == 0 {
		return f.safe
	}

	least, most := len(f.safe), len(f.data)
	if least > most {
		least, most = most, least
	}

	size := least + r.IntN(most-least+1)
	out := make([]byte, size)
	copy(out, f.safe)
	ordered := r.IntN(2) == 0
	const block = 512
	for _, e := range f.dirty {
		for from := e.from; from < min(e.to, size, len(f.data)); {
			to := min((from/block+1)*block, e.to, size, len(f.data))
			if r.IntN(16) == 0 { // torn: its beginning only
				to = from + r.IntN(to-from) + 1
			}

			if ordered || r.IntN(3) > 0 {
				copy(out[from:to], f.data[from:to])
			}

			from = (from/block + 1) * block
		}
	}

	return out
}

// lay writes an image to a real directory, the roots mapped to those of a stage.
func lay(t *testing.T, names map[string]*content, r *rand.Rand, place func(string) string) {
	t.Helper()
	paths := make([]string, 0, len(names))
	for path := range names {
		paths = append(paths, path)
	}

	slices.Sort(paths)
	for _, path := range paths {
		f, to := names[path], place(path)
		if f == nil {
			if err := os.Mkdir(to, 0o755); err != nil && !os.IsNotExist(err) { // the one above it may be lost
				t.Fatal(err)
			}

			continue
		}

		if err := os.WriteFile(to, f.lose(r), 0o644); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
}
