package frame

import (
	"cmp"
	"slices"
)

// attempt is one launch of the job: the processes that began together, and those
// that took a rank's place later while the others went on.
type attempt struct {
	first map[int]*incarnation   // rank slot → the process it began with
	later map[int][]*incarnation // rank slot → processes that replaced it, by start
	world int
}

func (a *attempt) all(slot int) []*incarnation {
	var out []*incarnation
	if f := a.first[slot]; f != nil {
		out = append(out, f)
	}
	return append(out, a.later[slot]...)
}

// launchSpread is how long the processes of one launch may take to appear:
// containers are pulled, hosts' clocks differ by seconds.
const launchSpread = int64(300e9)

// attempts splits all incarnations into launches. A process whose rank is already
// there starts a new attempt only when at least half of the running ranks get a
// new process together with it, or the world has another size; else that rank alone was restarted in place.
func (b *Builder) attempts() []*attempt {
	var incs []*incarnation
	for _, r := range b.ranks {
		incs = append(incs, r.incs...)
	}
	start := make(map[*incarnation]int64, len(incs))
	for _, i := range incs {
		start[i] = i.begin()
	}
	slices.SortStableFunc(incs, func(a, c *incarnation) int {
		if d := cmp.Compare(start[a], start[c]); d != 0 {
			return d
		}
		return cmp.Compare(a.rank, c.rank)
	})
	var out []*attempt
	cur := newAttempt()
	var pending []*incarnation
	held := map[int]bool{}
	flush := func() {
		if len(pending) == 0 {
			return
		}
		renewed, world := 0, 0
		for _, i := range pending {
			if cur.first[i.slot] != nil {
				renewed++
			}
			world = max(world, int(i.meta.WorldSize))
		}
		resized := world > 0 && cur.world > 0 && world != cur.world
		if renewed > 0 && (resized || 2*renewed >= len(cur.first)) {
			out = append(out, cur)
			cur = newAttempt()
		}
		for _, i := range pending {
			cur.add(i)
		}
		pending, held = pending[:0], map[int]bool{}
	}
	for _, i := range incs {
		if n := len(pending); n > 0 && (held[i.slot] || start[i]-start[pending[0]] > launchSpread) {
			flush()
		}
		pending, held[i.slot] = append(pending, i), true
	}
	flush()
	return append(out, cur)
}

func newAttempt() *attempt {
	return &attempt{first: map[int]*incarnation{}, later: map[int][]*incarnation{}}
}

func (a *attempt) add(i *incarnation) {
	a.world = max(a.world, int(i.meta.WorldSize))
	if a.first[i.slot] == nil {
		a.first[i.slot] = i
		return
	}
	a.later[i.slot] = append(a.later[i.slot], i)
}
