package drain

import (
	"maps"
	"time"

	"github.com/laggard-dev/laggard/schemas/record"
)

// turnTime is how long one process of a rank writes before the next one does.
const turnTime = time.Second

// turn reports whether the process, which has slots to copy, may write now, or leaves
// them in its rings: they wait there safely, but not when they fill up.
//
// Several processes of a rank may live at once: a trainer and its forked workers, or the
// one before a restart whose rings are still full. Each has segments of its own, and
// begins another one when somebody else has written since: in turns of a flush each,
// they would make as many segments.
func (p *process) turn(now time.Time) bool {
	at := *p.note.Home
	holder := p.d.turns[at]
	if holder == p {
		return true
	}

	if holder != nil && !holder.gone && !p.gone && !p.full && !p.d.leaving && now.Sub(holder.turnAt) < turnTime {
		return false
	}

	p.d.turns[at], p.turnAt = p, now
	return true
}

// leaveTurn lets the others go on without the process.
func (p *process) leaveTurn() {
	maps.DeleteFunc(p.d.turns, func(_ record.RankID, holder *process) bool { return holder == p })
}

// claimed says of ranks that two living processes claim. Each has segments and an
// incarnation of its own, so their records are never mixed.
func (d *Drain) claimed(now time.Time) {
	first, twice := make(map[record.RankID]*process), make(map[record.RankID]bool)
	for _, p := range d.processes {
		if p.note.Home == nil || p.gone {
			continue
		}

		at := *p.note.Home
		q := first[at]
		if q == nil {
			first[at] = p
			continue
		}

		twice[at] = true
		if now.Sub(d.claims[at]) < quiet {
			continue
		}

		if len(d.claims) >= mostSaid {
			clear(d.claims)
		}

		d.claims[at] = now
		d.o.Logger.Warn("drain: two living processes claim one rank; each is kept apart as an incarnation of its own", "job", at.Job, "rank", at.Rank,
			"pids", []int{q.meta.PID, p.meta.PID}, "uids", []uint32{q.folder.Owner, p.folder.Owner})
	}

	d.stats.Claimed = len(twice)
}
