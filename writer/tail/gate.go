package tail

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/laggard-dev/laggard/writer/segment"
)

// reachedName is the file in a rank directory that holds the number of the newest
// segment of which anything may have been stored, by any process.
const reachedName = ".reached"

// errReading is returned by Release for a segment that was begun: what of it is
// stored is not known before the store has answered.
var errReading = errors.New("segment is being shipped")

// gate decides once for each segment whether it is shipped or deleted. To begin a
// segment is written down first, so that the decision outlives the process.
type gate struct {
	mu       sync.Mutex
	on       bool
	reached  int64         // no segment above it was begun
	released map[int64]int // will never be begun → listings since without it
	aged     func(name string) bool
	file     *os.File // of reached; nil where the directory can't be written
}

// Guard makes the stream begin no segment that was released, or that aged tells is
// accounted for as lost (nil: none). It must be called with the directory's lease
// held, before the first Read.
func (s *Stream) Guard(aged func(name string) bool) error {
	g := &s.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	g.on, g.aged, g.released = true, aged, map[int64]int{}
	path := filepath.Join(s.Dir.Path, reachedName)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o664)
	if unlockable(err) {
		return nil // nothing can be deleted there either
	}

	if err != nil {
		return s.wrap(err)
	}

	var b [reachedLen + 1]byte
	n, _ := f.ReadAt(b[:], 0)
	if text := strings.TrimSpace(string(b[:n])); text != "" {
		if g.reached, err = strconv.ParseInt(text, 10, 64); err != nil {
			if g.reached, err = s.newest(); err != nil {
				return errors.Join(s.wrap(err), f.Close())
			}

			s.tree.o.Logger.Warn("a loss of power left no number: every segment that is there counts as begun", "file", path, "upto", g.reached)
		}
	}

	g.file = f
	return nil
}

// newest returns the number of the newest segment there is, 0 for none.
func (s *Stream) newest() (int64, error) {
	infos, err := segment.ListAll(s.Dir.Path)
	if err != nil || len(infos) == 0 {
		return 0, err
	}

	return infos[len(infos)-1].Number, nil
}

// reachedLen is the length of the text in the file: one write of it is atomic in
// practice, being well within a sector.
const reachedLen = 20

// enter reports whether a segment may be begun, and writes down that it is.
func (s *Stream) enter(f *file) (bool, error) {
	g := &s.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case !g.on:
		return true, nil
	case g.knows(f):
		return false, nil
	case f.number <= g.reached:
		return true, nil
	}

	if g.file != nil {
		if _, err := g.file.WriteAt(fmt.Appendf(nil, "%-*d\n", reachedLen-1, f.number), 0); err != nil {
			return false, s.wrap(err)
		}

		if err := unix.Fdatasync(int(g.file.Fd())); err != nil && !errors.Is(err, unix.EINVAL) {
			return false, s.wrap(err)
		}
	}

	g.reached = f.number
	return true, nil
}

// Release makes sure that nothing of a segment will ever be yielded, when account has
// written down that it is lost. A segment that was begun is errReading; after an error
// of account it may be yielded as before, and meanwhile nothing is begun: were a
// segment passed over whose loss is written nowhere, it would count as shipped. It may
// be called from any goroutine, after Guard.
func (s *Stream) Release(number int64, account func() error) error {
	g := &s.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.on || number <= g.reached {
		return errReading
	}

	if err := account(); err != nil {
		return err
	}

	g.released[number] = 0
	return nil
}

// knows reports whether the loss of a segment is accounted for. g.mu is held.
func (g *gate) knows(f *file) bool {
	_, released := g.released[f.number]
	return released || g.aged != nil && g.aged(f.name)
}

// Begun reports whether a segment was begun, by this process or one before it. It
// may be called from any goroutine, after Guard.
func (s *Stream) Begun(number int64) bool {
	g := &s.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	return number <= g.reached
}

// Releasing reports whether a released segment is still there.
func (s *Stream) Releasing() bool {
	g := &s.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.released) > 0
}

// left reports whether the loss of a file that is gone is accounted for elsewhere.
func (s *Stream) left(f *file) bool {
	g := &s.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.on && g.knows(f)
}

// sweep forgets released segments that two listings have not shown: the first may
// have been made before the segment was.
func (s *Stream) sweep(listed map[int64]bool) {
	g := &s.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	for number, missing := range g.released {
		switch {
		case listed[number]:
		case missing > 0:
			delete(g.released, number)
		default:
			g.released[number] = 1
		}
	}
}

// closeGate ends what Guard began: the stream is given up.
func (s *Stream) closeGate() {
	g := &s.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.file != nil {
		_ = g.file.Close() // every write was synced
		g.file = nil
	}

	g.on = false
}

// Unacknowledged returns the bytes that were read of the segments from a number on.
func (s *Stream) Unacknowledged(from int64) int64 {
	var n int64
	for i := range s.files {
		if f := &s.files[i]; f.number >= from && f.begun {
			n += f.offset
		}
	}

	return n
}
