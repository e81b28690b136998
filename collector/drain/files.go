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
	// ofOthers is what the rest of the agent has open at least.
	ofOthers = 16
)

// SpareFiles is how many descriptors stay free for what is open for moments (a folder's
// listing, a note, the next segment, a row group): who opens files to hold them leaves
// as many. Without them no line could be flushed, and so no ring be given up again.
const SpareFiles = 10

// FreeFiles returns how many files this process may open now, 0 when that cannot be
// told, and some number above SpareFiles where the limit is so high that nobody counts.
func FreeFiles() int {
	limit := openFiles()
	if limit >= plenty {
		return limit / 2
	}
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0 // there is none to look with
	}
	return limit - (len(open) - 1) // one of them is the listing's
}

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
	if limit := openFiles(); limit >= plenty {
		return limit / 2
	}
	ours := 0
	for _, p := range d.processes {
		ours += p.descriptors()
	}
	return FreeFiles() + ours - SpareFiles
}

// descriptors is how many the process holds open.
func (p *process) descriptors() int {
	n := ring.Descriptors + len(p.rings)
	if p.w != nil {
		n++
	}
	return n
}
