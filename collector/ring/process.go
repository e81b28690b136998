package ring

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/laggard-dev/laggard/schemas/record"
)

// Process is the writing half of a process folder. Its methods may be called
// from any goroutine. A process can have one folder a run directory in its life:
// the incarnation names it.
type Process struct {
	Identity Identity

	dir     int    // descriptor of the folder
	lock    int    // descriptor of process, whose flock says that we live
	mem     []byte // the file process, mapped; never unmapped once it is published
	strings *Strings

	mu    sync.Mutex // guards what follows
	used  int64      // bytes of our files
	rings []*Writer
	done  bool
}

// Create makes the folder of a process in a run directory, which is made with mode 01777
// when it is missing; wanted are the bits of the switch word at start. It returns an
// error and leaves nothing behind when the files can't be had in full: then there is no
// recording.
func Create(runDir string, id Identity, texts *Strings, wanted uint32) (_ *Process, err error) {
	run, err := OpenRunDir(runDir)
	if err != nil {
		return nil, err
	}
	defer unix.Close(run)
	name := id.Incarnation.String()
	fresh := "." + name + newSuffix
	p := &Process{Identity: id, dir: -1, lock: -1, strings: texts}
	defer func() {
		if err != nil {
			p.release()
			err = errors.Join(err, removeUnnamed(run, fresh))
		}
	}()
	if err := removeUnnamed(run, fresh); err != nil {
		return nil, err
	}

	if err := unix.Mkdirat(run, fresh, 0o770); err != nil {
		return nil, fmt.Errorf("make ring folder %s: %w", filepath.Join(runDir, fresh), err)
	}

	if p.dir, err = openAt(run, fresh, unix.O_DIRECTORY|unix.O_RDONLY, 0); err != nil {
		return nil, err
	}

	if err := setMode(p.dir, 0o770); err != nil {
		return nil, fmt.Errorf("set mode of ring folder: %w", err)
	}

	if p.mem, err = allocate(p.dir, ProcessName, processSize); err != nil {
		return nil, err
	}

	if err := room(run, name, 0, true); err != nil {
		return nil, err
	}

	// A mapping keeps the open file it was made from, and that file's lock, alive
	// in every child that inherits it: the lock is on an open file of its own.
	if p.lock, err = openAt(p.dir, ProcessName, unix.O_RDWR, 0); err != nil {
		return nil, err
	}

	if err := unix.Flock(p.lock, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, fmt.Errorf("lock %s: %w", ProcessName, err)
	}

	p.used = processSize
	p.fill(wanted)
	texts.attach(p)
	if err := rename(run, fresh, name); err != nil {
		texts.detach()
		return nil, fmt.Errorf("publish ring folder %s: %w", filepath.Join(runDir, name), err)
	}

	return p, nil
}

// fill writes the constant fields of process, FORMAT.md section 2.1. The file has its
// final name only afterwards, so nobody reads half of them.
func (p *Process) fill(wanted uint32) {
	le, m, id := binary.LittleEndian, p.mem, p.Identity
	copy(m, processMagic)
	le.PutUint32(m[pVersion:], version)
	le.PutUint32(m[pStringsOff:], processHeader)
	le.PutUint32(m[pStringsCap:], stringsSize)
	le.PutUint32(m[pPID:], uint32(id.PID))
	le.PutUint64(m[pTicks:], id.Ticks)
	le.PutUint64(m[pStarted:], uint64(id.StartedNs))
	le.PutUint64(m[pIncarnation:], uint64(id.Incarnation))
	le.PutUint64(m[pNamespace:], id.Namespace)
	copy(m[pBootID:pBootID+bootIDSize], id.BootID)
	le.PutUint32(m[pChecksum:], CRC32C)
	le.PutUint32(m[pState:], Live)
	le.PutUint32(m[pWanted:], wanted)
	le.PutUint32(m[pFollowed:], wanted)
	le.PutUint64(m[pFollowedAt:], uint64(id.StartedNs))
}

// u32 and u64 return mapped fields for atomic access. Offsets are multiples of
// the size and the mapping begins at a page.
func (p *Process) u32(at int) *uint32 { return (*uint32)(unsafe.Pointer(&p.mem[at])) }
func (p *Process) u64(at int) *uint64 { return (*uint64)(unsafe.Pointer(&p.mem[at])) }

// Wanted returns the word the agent set last, or errFault.
func (p *Process) Wanted() (word uint32, err error) {
	err = errFault // what a fault leaves behind
	defer survive(debug.SetPanicOnFault(true))
	return atomic.LoadUint32(p.u32(pWanted)), nil
}

// Follow publishes that from now on, at ns since the Unix epoch, the recorder
// acts on word.
func (p *Process) Follow(word uint32, at int64) {
	defer survive(debug.SetPanicOnFault(true))
	atomic.StoreUint64(p.u64(pFollowedAt), uint64(at))
	atomic.StoreUint32(p.u32(pFollowed), word)
}

// SetIdentity publishes the string with the given id as the identity.
func (p *Process) SetIdentity(id uint16) {
	defer survive(debug.SetPanicOnFault(true))
	atomic.StoreUint32(p.u32(pIdentity), uint32(id))
}

// Lose counts n ranges of kind k that found no ring.
func (p *Process) Lose(k record.Kind, n uint64) {
	defer survive(debug.SetPanicOnFault(true))
	atomic.AddUint64(p.u64(pLost+8*int(k)), n)
}

// NewWriter returns a pair of rings for one thread: those of a thread that has
// ended, else new ones within the budget. thread is the OS thread id, 0 unknown.
// Rings that are handed on before they were drained get thread 0: the reader
// could not tell whose slots they hold. So drained ones come first, and up to
// fullRings new ones are made before such are handed on.
func (p *Process) NewWriter(thread uint64) (w *Writer, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	err = errFault // what a fault leaves behind
	defer survive(debug.SetPanicOnFault(true))
	if p.done {
		return nil, errors.New("make ring: the recorder is closed")
	}

	left, undrained := p.closedLocked()
	if left == nil && (undrained == nil || len(p.rings) < fullRings) {
		made, e := p.makeLocked(thread)
		if e == nil || undrained == nil {
			return made, e
		}
	}

	if left == nil {
		left, thread = undrained, 0
	}

	left.open(thread)
	return left, nil
}

// closedLocked returns a ring whose thread has ended and that is drained, and
// the one of the others with the most room.
func (p *Process) closedLocked() (drained, undrained *Writer) {
	most := uint64(0)
	for _, w := range p.rings {
		if w.live.Load() {
			continue
		}

		room, empty := w.room()
		if empty {
			return w, nil
		}

		if room > most {
			most, undrained = room, w
		}
	}

	return nil, undrained
}

// makeLocked makes the next ring, within the user's share, under a hidden name and publishes it by
// renaming: a drain never sees half a ring. The caller holds p's lock.
func (p *Process) makeLocked(thread uint64) (*Writer, error) {
	n := uint32(len(p.rings) + 1)
	light, bulk, ok := fit(n, budget-p.used)
	if !ok {
		return nil, fmt.Errorf("make ring %d: the process's %d MiB are used up", n, budget>>20)
	}

	run, err := openAt(p.dir, "..", unix.O_DIRECTORY|unix.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(run)
	own := p.Identity.Incarnation.String()
	size := fileSize(light, bulk)
	if err := room(run, own, size, false); err != nil {
		return nil, err
	}

	name := "ring-" + strconv.Itoa(int(n))
	fresh := "." + name + newSuffix
	mem, err := allocate(p.dir, fresh, size)
	if err != nil {
		return nil, err
	}

	w := newWriter(mem, n, light, bulk, CRC32C)
	w.open(thread)
	err = room(run, own, 0, false) // once more, for others who looked at the same moment
	if err == nil {
		err = rename(p.dir, fresh, name)
	}

	if err != nil {
		return nil, errors.Join(fmt.Errorf("publish ring %d: %w", n, err), unix.Munmap(mem), unix.Unlinkat(p.dir, fresh, 0))
	}

	p.used += size
	p.rings = append(p.rings, w)
	atomic.StoreUint32(p.u32(pRings), n)
	return w, nil
}

// Close marks the process and its rings as left in order and gives the lock
// up. The mappings stay: a range that ends late must not fault.
func (p *Process) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done {
		return
	}

	p.done = true
	defer func() {
		unix.Close(p.lock)
		unix.Close(p.dir)
	}()
	p.strings.detach()
	for _, w := range p.rings {
		w.Close()
	}

	p.leave()
}

// leave says that the process records no more. The file may be gone by now (survive): who
// drains then goes by the lock.
func (p *Process) leave() {
	defer survive(debug.SetPanicOnFault(true))
	atomic.StoreUint32(p.u32(pState), Closed)
}

// release undoes a Create that failed.
func (p *Process) release() {
	if p.mem != nil {
		p.strings.detach()
		unix.Munmap(p.mem)
	}

	for _, fd := range [...]int{p.lock, p.dir} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}
