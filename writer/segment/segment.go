// Package segment is the files that records travel in: small, append-only, named
// by growing numbers, JSON lines inside (schemas/FORMAT.md section 1).
//
//	<dir>/<job>/<rank>/1753000000        {"meta":{…},"next":{…}}   who wrote it, and up to where
//	                   1753000001        {"kind":"Step",…}         a record a line
//	                   1753000002.zst    a closed one, compressed, same bytes inside
//
// Promises: a segment has one writer and never grows beyond its limit; a name is
// made with O_EXCL, is larger than every name before it and never used again; a
// line is in exactly one segment once Flush has returned, whatever failed before;
// only the last line of a file can be torn, and a reader never yields it.
//
// Directories are shared with others, so nothing in them is trusted: neither the
// last three parts of a path (job, rank, file) may be a symbolic link, FIFOs and
// devices are never opened, lines are bounded, and only a segment whose first line
// is this incarnation's is ever changed.
package segment

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/laggard-dev/laggard/schemas/record"
)

const (
	// DefaultLimit is the size that a segment never exceeds, in bytes.
	DefaultLimit = 10 << 20
	// maxLine bounds a line in bytes, without its '\n': writers refuse longer ones,
	// readers skip and count them. The longest line of ours is an identity with
	// the ranks of large groups.
	maxLine = 1 << 20
	// compressed is the ending of a compressed segment.
	compressed = ".zst"
	// maxDigits keeps every name, and the one after it, within an int64.
	maxDigits = 18
)

// ErrNotRegular is returned, wrapped, for a path that is no regular file: a
// symbolic link, a FIFO, a device, a directory.
var ErrNotRegular = errors.New("not a regular file")

// Info describes one segment file.
type Info struct {
	Name       string // base name: decimal digits, and ".zst" when Compressed
	Number     int64
	Size       int64 // bytes on disk
	ModTime    time.Time
	Compressed bool
	UID        uint32 // owner
	Links      uint64 // hard links; more than one is nobody's doing of ours
	Device     uint64
	Inode      uint64
}

// Position is a place in the segments of a rank directory, at which a line begins. Who reads on from
// there after a restart keeps in State what the lines before it told.
type Position struct {
	Segment string    `json:"segment"`         // its name, Plain; "" is the oldest that there is
	ID      record.ID `json:"id,omitzero"`     // its identity; 0 is not known
	Offset  int64     `json:"offset"`          // bytes, of what it inflates to
	State   string    `json:"state,omitempty"` // the reader's own
}

// Before reports whether p is read before o.
func (p Position) Before(o Position) bool {
	a, _ := Number(p.Segment)
	b, _ := Number(o.Segment)
	return cmp.Or(cmp.Compare(a, b), cmp.Compare(p.Offset, o.Offset)) < 0
}

// Plain returns the base name that a segment has or had before it was compressed. Accounts and
// cursors know it by this one, so that they still mean the same segment afterwards.
func Plain(name string) string { return strings.TrimSuffix(name, compressed) }

// Number returns the number in the base name of a segment, or false for a name
// that is none: ^\d+(\.zst)?$ of at most 18 digits.
func Number(name string) (int64, bool) {
	digits := Plain(name)
	if digits == "" || len(digits) > maxDigits {
		return 0, false
	}

	for i := range len(digits) {
		if digits[i] < '0' || digits[i] > '9' {
			return 0, false
		}
	}

	n, err := strconv.ParseInt(digits, 10, 64)
	return n, err == nil
}

// List returns the segments in a rank directory in order: by number. Where both a
// segment and its compressed twin exist (a crash between the rename and the
// unlink) it returns the plain one. What is no regular file is left out.
func List(rankDir string) ([]Info, error) {
	all, err := ListAll(rankDir)
	if err != nil {
		return nil, err
	}

	kept := all[:0]
	for _, s := range all {
		if n := len(kept); n > 0 && s.Name == kept[n-1].Name+compressed {
			continue
		}

		kept = append(kept, s)
	}

	return kept, nil
}

// ListAll is List with both of each pair of twins: what an account of bytes needs.
func ListAll(rankDir string) ([]Info, error) {
	dir, err := openDir(rankDir)
	if err != nil {
		return nil, dirError(rankDir, err)
	}
	defer dir.Close()
	var all []Info
	err = eachName(dir, func(name string) error {
		if _, ok := Number(name); !ok {
			return nil
		}

		s, err := statAt(dir, name)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, ErrNotRegular) {
			return nil // gone meanwhile, or nothing to read
		}

		if err == nil {
			all = append(all, s)
		}

		return err
	})
	if err != nil {
		return nil, dirError(rankDir, err)
	}

	slices.SortFunc(all, func(a, b Info) int { return cmp.Or(cmp.Compare(a.Number, b.Number), strings.Compare(a.Name, b.Name)) })
	return all, nil
}

// Identity returns the id of a segment: what its identity line says, or for a file
// without one HashID of job, rank, file name and first complete line. A segment
// keeps its id when it is compressed or moved to another job's tree by hand.
func Identity(job string, rank int, name string, firstLine []byte) record.ID {
	if n := len(firstLine); n > 0 && firstLine[n-1] == '\n' {
		firstLine = firstLine[:n-1]
	}

	var p record.Parser
	if t, err := p.Parse(firstLine); err == nil && t == record.LineMeta && len(p.Meta.Segment) == 16 {
		var id record.ID
		if id.UnmarshalText([]byte(p.Meta.Segment)) == nil {
			return id
		}
	}

	return record.HashID(job, strconv.Itoa(rank), Plain(filepath.Base(name)), string(firstLine))
}

// statAt describes a regular file in an open directory without following links.
func statAt(dir *os.File, name string) (Info, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return Info{}, fmt.Errorf("stat %s: %w", filepath.Join(dir.Name(), name), err)
	}

	return infoOf(name, &st)
}

// infoOf describes what was looked at, an error where it is no regular file.
func infoOf(name string, st *unix.Stat_t) (Info, error) {
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return Info{}, fmt.Errorf("%s: %w", name, ErrNotRegular)
	}

	n, _ := Number(name)
	return Info{
		Name: name, Number: n, Size: st.Size, ModTime: time.Unix(st.Mtim.Unix()),
		Compressed: strings.HasSuffix(name, compressed),
		UID:        st.Uid, Links: uint64(st.Nlink), Device: st.Dev, Inode: st.Ino,
	}, nil
}
