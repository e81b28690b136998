package drain

import "golang.org/x/sys/unix"

// OpenFiles is how many files this process may open.
func OpenFiles() int {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return 1024 // what systems give at least
	}

	return int(min(limit.Cur, 1<<20))
}
