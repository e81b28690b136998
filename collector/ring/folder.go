package ring

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/laggard-dev/laggard/schemas/record"
)

// maxRings bounds the rings that a reader looks for in one folder: far more than
// budget holds.
const maxRings = 256

// ErrNotRing is returned for a folder or file that is not what FORMAT.md
// describes: another version, a foreign file, or one that became too short.
var ErrNotRing = errors.New("not a laggard ring")

// Status is what a process's recorder and agent have published last.
type Status struct {
	State      uint32 // Live or Closed
	Identity   uint32 // string id of the identity, 0 none yet
	Wanted     uint32 // switch words
	Followed   uint32
	FollowedAt int64             // ns since the Unix epoch
	Lost       [lostKinds]uint64 // ranges by kind that found no ring
	Rings      uint32            // made so far: files ring-1 and on, at most maxRings
	used       uint32            // bytes of the strings area
}

// Folder is the reading half of a process folder.
type Folder struct {
	Identity Identity // as the recorder wrote it; Incarnation is the folder's name
	Owner    uint32   // uid of the folder and of the process file
	checksum uint32

	dir, lock    int // descriptors, -1 none
	file         *os.File
	runDir, name string
	capacity     int                    // bytes of the strings area
	texts        []string               // the strings seen so far
	textsAt      int                    // offset of the next one in the strings area
	header       [2][processHeader]byte // two copies, see settled; reused by each read
}

// Descriptors is how many a Folder with a lock holds open.
const Descriptors = 3

// OpenFiles is how many files this process may open.
func OpenFiles() int {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return 1024 // what systems give at least
	}

	return int(min(limit.Cur, 1<<20))
}

// OpenFolder opens the folder called name in a run directory. The error wraps
// ErrNotRing when there is something else there.
func OpenFolder(runDir, name string) (*Folder, error) {
	run, err := openRun(runDir)
	if err != nil {
		return nil, fmt.Errorf("open ring folder %s: %w", name, err)
	}
	defer unix.Close(run)
	f, err := openFolder(run, name)
	if err != nil {
		return nil, err
	}

	f.runDir = runDir
	return f, nil
}

// openFolder opens the folder called name in a run directory that is open.
func openFolder(run int, name string) (_ *Folder, err error) {
	id, suffix, ok := parseName(name)
	if !ok || suffix != "" {
		return nil, fmt.Errorf("open ring folder %q: %w", name, ErrNotRing)
	}

	f := &Folder{name: name, dir: -1, lock: -1}
	defer func() {
		if err != nil {
			f.Close()
			err = fmt.Errorf("open ring folder %s: %w", name, err)
		}
	}()
	if f.dir, err = openAt(run, name, unix.O_DIRECTORY|unix.O_RDONLY, 0); err != nil {
		return nil, notOurs(err)
	}

	var size int64
	if f.file, size, f.Owner, err = openFile(f.dir, ProcessName); err != nil {
		return nil, err
	}

	var st unix.Stat_t
	if err := unix.Fstat(f.dir, &st); err != nil {
		return nil, fmt.Errorf("stat it: %w", err)
	}

	if st.Uid != f.Owner {
		return nil, fmt.Errorf("it belongs to uid %d and its %s to uid %d: %w", st.Uid, ProcessName, f.Owner, ErrNotRing)
	}

	return f, f.parse(id, size)
}

// notOurs says ErrNotRing where opening failed because something else stands in the place of a folder or file.
func notOurs(err error) error {
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EISDIR) || errors.Is(err, unix.ENXIO) {
		return errors.Join(ErrNotRing, err)
	}

	return err
}

// openFile opens a regular file with one name for reading and writing.
func openFile(dir int, name string) (f *os.File, size int64, uid uint32, err error) {
	fd, err := openAt(dir, name, unix.O_RDWR, 0)
	if err != nil {
		return nil, 0, 0, notOurs(err)
	}

	f = os.NewFile(uintptr(fd), name)
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil && (st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink != 1) {
		err = fmt.Errorf("%s is no plain file: %w", name, ErrNotRing)
	}

	if err != nil {
		f.Close()
		return nil, 0, 0, err
	}

	return f, st.Size, st.Uid, nil
}

// parse reads the constant fields.
func (f *Folder) parse(id record.ID, size int64) error {
	h := f.header[0][:]
	if err := readFull(f.file, h, 0); err != nil {
		return err
	}

	le := binary.LittleEndian
	f.capacity = int(le.Uint32(h[pStringsCap:]))
	f.checksum = le.Uint32(h[pChecksum:])
	f.Identity = Identity{
		PID:         int(int32(le.Uint32(h[pPID:]))),
		Ticks:       le.Uint64(h[pTicks:]),
		StartedNs:   int64(le.Uint64(h[pStarted:])),
		BootID:      bootID(h[pBootID : pBootID+bootIDSize]),
		Namespace:   le.Uint64(h[pNamespace:]),
		Incarnation: record.ID(le.Uint64(h[pIncarnation:])),
	}
	switch {
	case string(h[:8]) != processMagic || le.Uint32(h[pVersion:]) != version:
		return fmt.Errorf("%s has another magic or version: %w", ProcessName, ErrNotRing)
	case f.checksum != CRC32C && f.checksum != CRC32:
		return fmt.Errorf("%s has unknown checksum kind %d: %w", ProcessName, f.checksum, ErrNotRing)
	case le.Uint32(h[pStringsOff:]) != processHeader || f.capacity > stringsSize || size < int64(processHeader+f.capacity):
		return fmt.Errorf("%s has strings where they can't be: %w", ProcessName, ErrNotRing)
	case f.Identity.Incarnation != id:
		return fmt.Errorf("%s belongs to incarnation %s: %w", ProcessName, f.Identity.Incarnation, ErrNotRing)
	}

	return nil
}

// bootID keeps what looks like one.
func bootID(b []byte) string {
	s, _, _ := strings.Cut(string(b), "\x00")
	for _, c := range []byte(s) {
		if c <= ' ' || c > '~' {
			return ""
		}
	}

	return s
}

// Lock takes agent.lock without waiting. False: another agent drains the folder.
func (f *Folder) Lock() (bool, error) {
	fd, err := openAt(f.dir, LockName, unix.O_CREAT|unix.O_RDWR, 0o660)
	if err != nil {
		return false, fmt.Errorf("lock ring folder %s: %w", f.name, err)
	}

	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		unix.Close(fd)
		if errors.Is(err, unix.EWOULDBLOCK) {
			return false, nil
		}

		return false, fmt.Errorf("lock ring folder %s: %w", f.name, err)
	}

	f.lock = fd
	return true, nil
}

// Gone reports whether nothing will be written into the folder any more: the
// recorder closed it, or its process is dead. The lock tells across pid
// namespaces; in our own the process table corrects it where a child holds a
// copy of the descriptor, or the trainer closed it.
func (f *Folder) Gone(state uint32) bool {
	free := !f.Held()
	switch lives, known := processLives(f.Identity); {
	case !known:
		return free
	case lives:
		return free && state == Closed
	}

	return true
}

// Held reports whether the recorder, or a child with a copy of its descriptor, holds
// its lock. It costs a fraction of Gone.
func (f *Folder) Held() bool {
	fd := int(f.file.Fd())
	if unix.Flock(fd, unix.LOCK_SH|unix.LOCK_NB) != nil {
		return true
	}

	unix.Flock(fd, unix.LOCK_UN)
	return false
}

// Status reads the changing fields.
func (f *Folder) Status() (Status, error) {
	a, b := f.header[0][:rCounters], f.header[1][:rCounters]
	if err := errors.Join(readFull(f.file, a, 0), readFull(f.file, b, 0)); err != nil {
		return Status{}, fmt.Errorf("read %s of %s: %w", ProcessName, f.name, err)
	}

	le := binary.LittleEndian
	s := Status{
		State: le.Uint32(a[pState:]), Identity: le.Uint32(a[pIdentity:]),
		Wanted: le.Uint32(a[pWanted:]), Followed: le.Uint32(a[pFollowed:]),
		FollowedAt: int64(le.Uint64(b[pFollowedAt:])),
		Rings:      min(le.Uint32(b[pRings:]), maxRings),
		used:       le.Uint32(b[pStringsUsed:]),
	}
	for k := range s.Lost {
		s.Lost[k] = settled(a, b, pLost+8*k)
	}

	return s, nil
}

// settled returns a growing counter out of two copies of a header, b read after
// a. A copy is not atomic: one taken during a carry can show a value that is too
// large, but never one beyond what the counter holds at the next carry. The
// smaller of two is therefore not above the counter's value now.
func settled(a, b []byte, at int) uint64 {
	return min(binary.LittleEndian.Uint64(a[at:]), binary.LittleEndian.Uint64(b[at:]))
}

// Text returns the string with an id of which Status said that it is there.
// False: not (yet) seen.
func (f *Folder) Text(id uint16) (string, bool) {
	if id == 0 {
		return "", true
	}

	if int(id) <= len(f.texts) {
		return f.texts[id-1], true
	}

	return "", false
}

// ReadTexts reads the strings that were added since the last call.
func (f *Folder) ReadTexts(s Status) error {
	end := min(int(s.used), f.capacity)
	if end <= f.textsAt {
		return nil
	}

	b := make([]byte, end-f.textsAt)
	if err := readFull(f.file, b, int64(processHeader+f.textsAt)); err != nil {
		return fmt.Errorf("read strings of %s: %w", f.name, err)
	}

	f.addTexts(b)
	return nil
}

// Meta returns the identity that the recorder has published, by a Status from before the
// strings were read; a zero one of who has not said who he is. What can't be read of it is
// left at zero: it is JSON that somebody else wrote. False: its string is not (yet) seen.
func (f *Folder) Meta(s Status) (m record.Meta, ok bool) {
	if s.Identity > math.MaxUint16 {
		return m, false
	}

	text, ok := f.Text(uint16(s.Identity))
	_ = json.Unmarshal([]byte(text), &m)
	return m, ok
}

// addTexts reads entries of the strings area out of b, until one whose checksum is wrong
// (yet) or that does not fit.
func (f *Folder) addTexts(b []byte) {
	for len(b) >= 8 && len(f.texts) < math.MaxUint16 {
		n := int64(binary.LittleEndian.Uint32(b))
		size := 8 + (n+7)&^7
		if size > int64(len(b)) || sum(f.checksum, b[8:8+n]) != binary.LittleEndian.Uint32(b[4:]) {
			return
		}

		f.texts = append(f.texts, string(b[8:8+n]))
		f.textsAt += int(size)
		b = b[size:]
	}
}

// SetWanted asks the recorder to act on bits from now on. It does nothing when
// it was asked so before.
func (f *Folder) SetWanted(s Status, bits uint32) error {
	if s.Wanted&AllOn == bits&AllOn {
		return nil
	}

	var b [4]byte
	binary.LittleEndian.PutUint32(b[:], (s.Wanted>>generationShift+1)<<generationShift|bits&AllOn)
	if _, err := f.file.WriteAt(b[:], pWanted); err != nil {
		return fmt.Errorf("set switch of %s: %w", f.name, err)
	}

	return nil
}

// Close closes the descriptors, which gives the lock up.
func (f *Folder) Close() {
	_ = f.file.Close()
	for _, fd := range []*int{&f.lock, &f.dir} {
		if *fd >= 0 {
			unix.Close(*fd)
			*fd = -1
		}
	}
}
