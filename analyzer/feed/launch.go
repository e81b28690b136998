package feed

import (
	"cmp"
	"slices"
)

// launchSpread is how long the processes of one launch may take to appear:
// containers are pulled, hosts' clocks differ by seconds.
const launchSpread = int64(300e9)

// launches splits all processes into launches, in the order of their starts: the processes that
// began together, and those that took a rank's place later while the others went on. It tells each
// process which is its own, and returns how many there are. A process whose rank is already
// there starts a new launch only when at least half of the running ranks get a
// new process together with it, or the world has another size; else that rank alone
// was restarted in place.
func launches(all []*process) int {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b *process) int {
		return cmp.Or(cmp.Compare(a.begin(), b.begin()), cmp.Compare(a.Rank, b.Rank))
	})
	n := 0
	there, world := map[uint32]bool{}, 0 // ranks of the launch at hand, and the largest that they speak of
	var pending []*process
	// pending are processes that began within a spread of each other, held their ranks: they are judged
	// together, for one alone can't tell a restart of the job from that of a rank.
	held := map[uint32]bool{}
	flush := func() {
		renewed, size := 0, 0
		for _, p := range pending {
			if there[p.Rank] {
				renewed++
			}

			size = max(size, int(p.Meta.WorldSize))
		}

		// A job of another size was started anew, however few of its ranks are back yet.
		resized := size > 0 && world > 0 && size != world
		if renewed > 0 && (resized || 2*renewed >= len(there)) {
			n, world = n+1, 0
			clear(there)
		}

		for _, p := range pending {
			p.Attempt, p.Later = n, there[p.Rank]
			there[p.Rank] = true
		}

		world = max(world, size)
		pending = pending[:0]
		clear(held)
	}
	for _, p := range all {
		if n := len(pending); n > 0 && (held[p.Rank] || p.begin()-pending[0].begin() > launchSpread) {
			flush()
		}

		pending, held[p.Rank] = append(pending, p), true
	}

	flush()
	return n + 1
}
