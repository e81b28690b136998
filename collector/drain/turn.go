package drain

import (
	"maps"
	"time"

	"github.com/laggard-dev/laggard/schemas/record"
)

// turnTime is how long one process of a rank writes before the next one does.
const turnTime = time.Second

// turn says which process of a rank writes. Several may live at once: a trainer and
// its forked workers, or the one before a restart whose rings are still full. Each has
// segments of its own, and begins another one when somebody else has written since:
// in turns of a flush each, they would make as many segments.
type turn struct {
	holder *process
	since  time.Time
}

// turn reports whether the process, which has slots to copy, may write now, or leaves
// them in its rings: they wait there safely, but not when they fill up.
func (p *process) turn(now time.Time) bool {
	at := *p.note.Home
	t := p.d.turns[at]
	if t.holder == p {
		return true
	}

	if t.holder != nil && !t.holder.gone && !p.gone && !p.full && !p.d.leaving && now.Sub(t.since) < turnTime {
		return false
	}

	p.d.turns[at] = turn{p, now}
	return true
}

// leaveTurn lets the others go on without the process.
func (p *process) leaveTurn() {
	maps.DeleteFunc(p.d.turns, func(_ record.RankID, t turn) bool { return t.holder == p })
}
