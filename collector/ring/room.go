package ring

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

const (
	// userBytes and userFolders bound what one user's processes take of a run directory, which is memory
	// of the host: at least sixteen processes fit, however many their threads (budget), and a job that
	// restarts in a loop without an agent does not fill the host.
	userBytes   = 256 << 20
	userFolders = 1024

	// page is the least that the kernel takes back of a file on tmpfs, bytes.
	page = 4096
	// small is the size up to which a file is left as it is: freeing it gains next to nothing.
	small = 64 << 10
	// lastSlots stay below a head: an agent tells from them how a process ended.
	lastSlots = 64
)

// errNoRoom is returned when the user's processes have their share of the run directory.
var errNoRoom = errors.New("the rings of this user's processes fill their share of the run directory: is an agent draining it?")

// room returns errNoRoom when this user's processes take more of a run directory than
// their share, with so many bytes more. What dead ones hold for nothing is freed first:
// always for a new folder, else when it is needed. own is the caller's folder.
func room(run int, own string, more int64, folder bool) error {
	for _, freeing := range []bool{false, true} {
		if folder && !freeing {
			continue
		}

		bytes, folders, err := survey(run, own, freeing)
		if err != nil {
			return err
		}

		if bytes+more <= userBytes && (!folder || folders <= userFolders) {
			return nil
		}
	}

	return errNoRoom
}

// survey adds up this user's folders, those that are still being made among them. With
// freeing it first takes from each what its dead process holds for nothing.
func survey(run int, own string, freeing bool) (bytes int64, folders int, err error) {
	names, err := namesIn(run, -1)
	if err != nil {
		return 0, 0, fmt.Errorf("list run directory: %w", err)
	}

	for _, name := range names {
		_, suffix, ok := parseName(name)
		var st unix.Stat_t
		if !ok || suffix == goneSuffix || unix.Fstatat(run, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR || st.Uid != uint32(os.Geteuid()) {
			continue
		}

		dir, err := openAt(run, name, unix.O_DIRECTORY|unix.O_RDONLY, 0)
		if err != nil {
			continue
		}

		folders++
		n := taken(dir)
		if freeing && suffix == "" && n > 2*small && name != own {
			freeDead(run, name)
			n = taken(dir)
		}

		bytes += n
		unix.Close(dir)
	}

	return bytes, folders, nil
}

// taken returns the bytes of memory that a folder's files take: what was punched out of a
// file is not counted, though its size is the same. st_blocks counts 512 bytes (stat(2)).
func taken(dir int) (n int64) {
	names, _ := namesIn(dir, -1)
	for _, name := range names {
		var st unix.Stat_t
		if unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG {
			n += st.Blocks * 512
		}
	}

	return n
}

// freeDead gives back what a dead process's folder holds for nothing: FORMAT.md section
// 2.4. Whoever holds both locks may: an agent that drains the folder is not disturbed.
func freeDead(run int, name string) {
	f, err := openFolder(run, name)
	if err != nil {
		return
	}
	defer f.Close()
	s, err := f.Status()
	if err != nil || f.Owner != uint32(os.Geteuid()) || unix.Flock(int(f.file.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return
	}

	if lives, _ := processLives(f.Identity); lives && s.State != Closed {
		return
	}

	if ours, err := f.Lock(); err != nil || !ours {
		return
	}

	_ = unix.Fchmod(f.lock, 0o660) // whatever the umask: the agent may be another user of the group
	punch(int(f.file.Fd()), processHeader+min(int64(s.used), stringsSize), processSize)
	for n := range s.Rings {
		f.freeRing(n + 1)
	}
}

// freeRing gives back the slots of a ring that an agent has taken. Errors leave it as it
// is: another process, or the agent's removal of the folder, frees it later.
func (f *Folder) freeRing(n uint32) {
	r, err := f.OpenReader(n)
	if err != nil {
		return
	}
	defer r.Close()
	var st unix.Stat_t
	c, err := r.Counters()
	fd := int(r.file.Fd())
	if err != nil || unix.Fstat(fd, &st) != nil || st.Blocks*512 <= small {
		return
	}

	freeLane(fd, ringHeader, uint64(r.Slots[Light]), c.Head[Light], c.Tail[Light])
	freeLane(fd, ringHeader+slotSize*int64(r.Slots[Light]), uint64(r.Slots[Bulk]), c.Head[Bulk], c.Tail[Bulk])
}

// freeLane keeps the slots that no agent has taken, and the last ones: those from low up to
// head, of a ring of slots at base. Free is what lies before and behind them in the file, or,
// where they go round the ring's end, between their two parts. A tail beyond the head is no
// agent's; then nothing is freed.
func freeLane(fd int, base int64, slots, head, tail uint64) {
	low := min(tail, head-min(head, lastSlots))
	if tail > head || head-low >= slots {
		return
	}

	at := func(slot uint64) int64 { return base + slotSize*int64(slot&(slots-1)) }
	if a, b := at(head), at(low); low == head || b < a {
		punch(fd, base, b)
		punch(fd, a, base+slotSize*int64(slots))
	} else {
		punch(fd, a, b)
	}
}

// punch gives the whole pages from one byte to another back. What can't be stays.
func punch(fd int, from, to int64) {
	from, to = (from+page-1)/page*page, to/page*page
	if from < to {
		_ = unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, from, to-from)
	}
}
