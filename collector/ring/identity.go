package ring

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/laggard-dev/laggard/schemas/record"
)

// tick is the length of a clock tick in /proc/<pid>/stat: USER_HZ is 100 on
// every architecture that Go runs on.
const tick = 10_000_000 // ns

// Identity says which process a folder belongs to.
type Identity struct {
	PID         int
	Ticks       uint64 // start in clock ticks after boot
	StartedNs   int64  // start, ns since the Unix epoch
	BootID      string // at most 36 bytes
	Namespace   uint64 // inode of the pid namespace, 0 unknown
	Incarnation record.ID
}

// Self returns the identity of the calling process.
func Self() (Identity, error) {
	id := Identity{PID: os.Getpid(), Namespace: ownNamespace()}
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return id, fmt.Errorf("read process start: %w", err)
	}

	var ok bool
	if _, id.Ticks, ok = parseStat(stat); !ok {
		return id, errors.New("read process start: /proc/self/stat has no 22nd field")
	}

	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return id, fmt.Errorf("read boot id: %w", err)
	}

	id.BootID = strings.TrimSpace(string(boot))
	var now, sinceBoot unix.Timespec
	if err := errors.Join(unix.ClockGettime(unix.CLOCK_REALTIME, &now), unix.ClockGettime(unix.CLOCK_BOOTTIME, &sinceBoot)); err != nil {
		return id, fmt.Errorf("read clocks: %w", err)
	}

	id.StartedNs = now.Nano() - sinceBoot.Nano() + int64(id.Ticks)*tick
	id.Incarnation = record.IncarnationOf(id.BootID, id.PID, id.Ticks)
	return id, nil
}

// ownNamespace returns the inode of the caller's pid namespace, 0 when /proc
// does not tell. A process stays in the one that it began in.
var ownNamespace = sync.OnceValue(func() uint64 {
	var st unix.Stat_t
	if unix.Stat("/proc/self/ns/pid", &st) != nil {
		return 0
	}

	return st.Ino
})

// parseStat reads fields 3 and 22 of /proc/<pid>/stat. The second field, the command, is
// in parentheses and may hold anything, so counting starts at the last ')'.
func parseStat(b []byte) (state byte, ticks uint64, ok bool) {
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return 0, 0, false
	}

	f := bytes.Fields(b[i+1:])
	if len(f) < 20 || len(f[0]) != 1 {
		return 0, 0, false
	}

	ticks, err := strconv.ParseUint(string(f[19]), 10, 64)
	return f[0][0], ticks, err == nil
}

// processLives looks a process up in our own pid namespace by /proc and the signal table.
// known is false where they can't tell: for a process of another namespace, one that
// hides (hidepid), and a pid that was reused. The lock decides then, because a foreign
// /proc could be mounted here.
func processLives(id Identity) (lives, known bool) {
	if id.Namespace == 0 || id.Namespace != ownNamespace() || id.PID <= 0 {
		return false, false
	}

	if errors.Is(unix.Kill(id.PID, 0), unix.ESRCH) {
		return false, true
	}

	b, err := os.ReadFile("/proc/" + strconv.Itoa(id.PID) + "/stat")
	if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
		return true, true // most likely, and it is asked again
	}

	if err != nil {
		return false, false // gone between the two looks, or hidden
	}

	state, since, ok := parseStat(b)
	lives = ok && since == id.Ticks && state != 'Z' && state != 'X'
	return lives, lives
}
