package drain

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/laggard-dev/laggard/collector/ring"
)

const (
	// plenty is how many files a process may open that need not count those it has open:
	// the drain takes half.
	plenty = 4096
	// ofOthers is what the rest of the agent has open at least, spareFiles what it opens
	// for moments: a folder's listing, a cursor, a row group.
	ofOthers   = 16
	spareFiles = 10
)

// openFiles is how many files this process may open.
func openFiles() int {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return 1024 // what systems give at least
	}
	return int(min(limit.Cur, 1<<20))
}

// roomLocked returns how many descriptors may be held open: what the rest of the agent
// leaves.
func (d *Drain) roomLocked() int {
	if d.o.Files > 0 {
		return d.o.Files
	}
	limit := openFiles()
	if limit >= plenty {
		return limit / 2
	}
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0 // there is none to look with
	}
	ours := 0
	for _, p := range d.processes {
		ours += p.descriptors()
	}
	return limit - spareFiles - (len(open) - 1 - ours)
}

// descriptors is how many the process holds open.
func (p *process) descriptors() int {
	n := ring.Descriptors + len(p.rings)
	if p.w != nil {
		n++
	}
	return n
}
