package profiles

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/klauspost/compress/gzip"
	"golang.org/x/sys/unix"

	"github.com/laggard-dev/laggard/schemas/record"
)

const (
	// mostFiles and deepest bound what is looked at below a folder: somebody may give his home. What is
	// beyond them is told.
	mostFiles = 1 << 16
	deepest   = 8
	// headSize is how much of a file a format decides by. A trace of many devices lists
	// them before its first event.
	headSize = 64 << 10
)

// profileFile is a file of the folder, opened when it is asked for.
type profileFile struct {
	// Path is what people call it: the folder as given, and the name below it.
	Path string
	Size int64

	root *os.Root
	name string // below root
	head []byte
}

// Name returns the file's own name.
func (f *profileFile) Name() string { return path.Base(f.name) }

// Head returns the beginning of the content, decompressed: at most 64 KiB, nothing of a file
// that can't be read.
func (f *profileFile) Head() []byte {
	if f.head == nil {
		f.head = []byte{}
		if r, err := f.Open(); err == nil {
			f.head, _ = io.ReadAll(io.LimitReader(r, headSize)) // what is cut is told when it is read
			r.Close()
		}
	}

	return f.head
}

// begins returns the first byte of the content that is no space, 0 without one.
func (f *profileFile) begins() byte {
	if i := space(f.Head(), 0); i < len(f.head) {
		return f.head[i]
	}

	return 0
}

// Open opens the content; what is compressed with gzip comes decompressed.
func (f *profileFile) Open() (io.ReadCloser, error) {
	raw, err := f.raw()
	if err != nil {
		return nil, err
	}

	b := bufio.NewReaderSize(raw, 64<<10)
	var content io.Reader = b
	if magic, _ := b.Peek(2); string(magic) == "\x1f\x8b" {
		if content, err = gzip.NewReader(b); err != nil {
			return nil, errors.Join(err, raw.Close())
		}
	}

	return struct {
		io.Reader
		io.Closer
	}{content, raw}, nil
}

// read has scan read the content. Where that breaks off behind something of use, as anything
// tells, it is cut and said; else it is an error.
func (f *profileFile) read(ctx context.Context, out *output, scan func(io.Reader) error, anything func() bool) (cut bool, err error) {
	r, err := f.Open()
	if err != nil {
		return false, err
	}
	defer r.Close()
	if err = scan(ctxReader{ctx, r}); err == nil || !anything() {
		return false, err
	}

	out.Unread(f.Path, "%s; what stands before was read", cause(err))
	return true, nil
}

// raw opens the bytes as they lie: a regular file only, and without waiting for one that is a pipe.
func (f *profileFile) raw() (*os.File, error) {
	raw, err := f.root.OpenFile(f.name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}

	info, err := raw.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("not a regular file")
	}

	if err != nil {
		return nil, errors.Join(err, raw.Close())
	}

	return raw, nil
}

// Beside returns the file of that name in the same folder, or in one that is named relative
// to it; nil where there is none.
func (f *profileFile) Beside(name string) *profileFile {
	below := path.Join(path.Dir(f.name), name)
	if !filepath.IsLocal(below) {
		return nil
	}

	info, err := f.root.Lstat(below)
	if err != nil || !info.Mode().IsRegular() {
		return nil
	}

	return &profileFile{Path: filepath.Join(filepath.Dir(f.Path), name), Size: info.Size(), root: f.root, name: below}
}

// hash returns the identity of the content: the first 8 bytes of its SHA-256.
func (f *profileFile) hash(ctx context.Context) (record.ID, error) {
	raw, err := f.raw()
	if err != nil {
		return 0, err
	}
	defer raw.Close()
	h := sha256.New()
	if _, err := io.Copy(h, ctxReader{ctx, raw}); err != nil {
		return 0, fmt.Errorf("read %s: %w", f.Path, err)
	}

	return record.ID(binary.BigEndian.Uint64(h.Sum(nil))), nil
}

// folder is an opened SOURCE: all regular files below it, sorted by name.
type folder struct {
	root  *os.Root
	files []*profileFile
	links []*profileFile // symbolic links, which are not followed
	notes []Problem
}

// openFolder lists the files of a folder, or the one file that at is.
func openFolder(at string) (*folder, error) {
	info, err := os.Stat(at)
	if err != nil {
		return nil, err
	}

	dir, only := at, ""
	if !info.IsDir() {
		dir, only = filepath.Split(at)
		dir = cmp.Or(dir, ".")
	}

	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}

	f := &folder{root: root}
	if only != "" {
		f.files = []*profileFile{{Path: at, Size: info.Size(), root: root, name: only}}
		return f, nil
	}

	f.walk(dir, ".", 0)
	slices.SortFunc(f.files, func(a, b *profileFile) int { return compareNames(a.name, b.name) })
	return f, nil
}

// walk adds the files below a folder. What it does not look into, or can't, is noted.
func (f *folder) walk(dir, below string, depth int) {
	here := filepath.Join(dir, below)
	if depth > deepest || len(f.files) >= mostFiles {
		f.notes = append(f.notes, Problem{here, fmt.Sprintf("not looked into: it lies more than %d folders deep, or behind %d files", deepest, mostFiles)})
		return
	}

	d, err := f.root.Open(below)
	if err != nil {
		f.notes = append(f.notes, Problem{here, cause(err)})
		return
	}

	entries, err := d.ReadDir(mostFiles)
	d.Close()
	if err != nil && !errors.Is(err, io.EOF) {
		f.notes = append(f.notes, Problem{here, cause(err)})
	}

	for _, e := range entries {
		name := path.Join(below, e.Name())
		switch {
		case strings.HasPrefix(e.Name(), "."):
		case e.IsDir():
			f.walk(dir, name, depth+1)
		case e.Type()&fs.ModeSymlink != 0 && len(f.links) < mostFiles:
			f.links = append(f.links, &profileFile{Path: filepath.Join(dir, name), name: name})
		case e.Type().IsRegular() && len(f.files) < mostFiles:
			size := int64(0)
			if info, err := e.Info(); err == nil {
				size = info.Size()
			}

			f.files = append(f.files, &profileFile{Path: filepath.Join(dir, name), Size: size, root: f.root, name: name})
		}
	}
}

// cause is an error without the path that a Problem names already.
func cause(err error) string {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err.Error()
	}

	return err.Error()
}

// ctxReader ends with the context.
type ctxReader struct {
	ctx context.Context
	r   io.Reader
}

// Read implements io.Reader.
func (c ctxReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}

	return c.r.Read(p)
}
