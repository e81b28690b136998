package frame

import (
	"cmp"
	"slices"
)

// launch is one start of the job: the processes that began together, and those that
// took a rank's place later while the others went on.
type launch struct {
	world int                 // the largest that a process of it speaks of, 0 unknown
	first map[uint32]*Process // of each rank, the process it began with
}

// LaunchSpread is how long the processes of one launch may take to appear:
// containers are pulled, hosts' clocks differ by seconds.
const LaunchSpread = int64(300e9)

// launches splits all processes into launches, in the order of their starts, and tells each
// process which is its own. A process whose rank is already
// there starts a new launch only when at least half of the running ranks get a
// new process together with it, or the world has another size; else that rank alone
// was restarted in place.
func launches(all []*Process) []*launch {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b *Process) int {
		return cmp.Or(cmp.Compare(a.Begin(), b.Begin()), cmp.Compare(a.Rank, b.Rank))
	})
	var out []*launch
	cur := newLaunch()
	var pending []*Process
	// pending are processes that began within a spread of each other, held their ranks: they are judged
	// together, for one alone can't tell a restart of the job from that of a rank.
	held := map[uint32]bool{}
	flush := func() {
		if len(pending) == 0 {
			return
		}

		renewed, world := 0, 0
		for _, p := range pending {
			if cur.first[p.Rank] != nil {
				renewed++
			}

			world = max(world, int(p.Meta.WorldSize))
		}

		// A job of another size was started anew, however few of its ranks are back yet.
		resized := world > 0 && cur.world > 0 && world != cur.world
		if renewed > 0 && (resized || 2*renewed >= len(cur.first)) {
			out = append(out, cur)
			cur = newLaunch()
		}

		for _, p := range pending {
			p.Attempt, p.Later = len(out), cur.add(p)
		}

		pending = pending[:0]
		clear(held)
	}
	for _, p := range all {
		if n := len(pending); n > 0 && (held[p.Rank] || p.Begin()-pending[0].Begin() > LaunchSpread) {
			flush()
		}

		pending, held[p.Rank] = append(pending, p), true
	}

	flush()
	return append(out, cur)
}

func newLaunch() *launch { return &launch{first: map[uint32]*Process{}} }

// add takes a process, and reports whether its rank has one already.
func (l *launch) add(p *Process) (later bool) {
	l.world = max(l.world, int(p.Meta.WorldSize))
	if l.first[p.Rank] != nil {
		return true
	}

	l.first[p.Rank] = p
	return false
}
