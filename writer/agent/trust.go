package agent

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/laggard-dev/laggard/writer/segment"
)

// trust returns whose rings are drained: our own, root's and those of --trust-uid,
// whatever their job; and of the users who own directories of jobs, those jobs' rings.
// Only directories count that were there before we started, for those we make are ours.
func (a *agent) trust() func(uid uint32) (jobs []string, all bool) {
	owned := jobsByOwner(a.o.Dir, a.o.RingDir)
	everything := append([]uint32{0, uint32(os.Geteuid())}, a.o.TrustUIDs...)
	return func(uid uint32) ([]string, bool) {
		return owned[uid], slices.Contains(everything, uid)
	}
}

// jobsByOwner returns the jobs whose directories each user owns. Within the rings'
// folder, where anybody may make directories, nothing counts.
func jobsByOwner(dir, rings string) map[uint32][]string {
	if within(dir, rings) {
		return nil
	}

	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}

	owned := make(map[uint32][]string)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}

		if uid, ok := segment.Owner(filepath.Join(dir, e.Name())); ok {
			owned[uid] = append(owned[uid], e.Name())
		}
	}

	return owned
}

// within reports whether dir is the folder or below it.
func within(dir, folder string) bool {
	path, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return true // nothing is known of it
	}

	if top, err := filepath.EvalSymlinks(folder); err == nil {
		folder = top
	}

	path, err1 := filepath.Abs(path)
	folder, err2 := filepath.Abs(folder)
	return err1 != nil || err2 != nil || path == folder || strings.HasPrefix(path, folder+string(filepath.Separator))
}
