package feed

import (
	"cmp"
	"slices"
	"time"

	"github.com/laggard-dev/laggard/analyzer/frame"
)

// DefaultLag is how long a step waits for ranks whose row is missing, by what was recorded
// and never by a timer: until a later step ended so much later. It covers agents that ship
// once a minute.
const DefaultLag = 2 * time.Minute

// Stage says what may still come, and so how patient a release is.
type Stage uint8

const (
	More    Stage = iota // the source has more at once: only completeness counts
	Current              // everything there is was read: the lag counts
	Over                 // nothing will come any more: everything goes
)

// Release hands the columns that are due to observe, in order; lag 0 means DefaultLag. The
// column is observe's: nothing uses it again.
func (f *Feed) Release(at Stage, lag time.Duration, observe func(*frame.Column)) {
	lag = cmp.Or(max(0, lag), DefaultLag)
	for len(f.Pending) > 0 {
		c := f.Pending[0]
		if w := f.world; w == nil || c.Place.Attempt >= w.attempts {
			return // what began it turned out to be of another launch
		}

		if f.layout == nil || f.layout.Attempt != c.Place.Attempt {
			f.arrange(c.Place.Attempt)
		}

		if f.last() == nil && f.layout.From == "inferred" && f.passed == nil {
			if at != Over && len(f.Pending) < sampleSteps {
				return // roles come from times: see some first
			}

			f.arrange(c.Place.Attempt)
		}

		if !f.due(c, at, lag) {
			return
		}

		f.Pending = slices.Delete(f.Pending, 0, 1)
		f.send(c, observe)
	}
}

// due reports whether a column needn't wait any longer.
func (f *Feed) due(c *column, at Stage, lag time.Duration) bool {
	if at == Over {
		return true
	}

	if f.passed != nil {
		return f.passed(c)
	}

	if len(f.Pending) > maxPending || f.complete(c, f.layout) {
		return true
	}

	if at == More {
		return false
	}

	last := f.Pending[len(f.Pending)-1]
	if last == c {
		return false
	}

	// Of all that wait: the last may have few ranks in it yet, and none that has ended late.
	newest := int64(0)
	for _, x := range f.Pending[1:] {
		newest = max(newest, x.Newest)
	}

	return newest-c.Newest > int64(lag)
}

// complete reports whether every rank that is waited for has its row in c.
func (f *Feed) complete(c *column, l *frame.Layout) bool {
	there := 0
	for k, present := range l.Present {
		if !present {
			continue
		}

		there++
		if c.Owner[k] == 0 && (f.Missed[k] < silentAfter || c.Newest-f.Newest[k] < silentFor) {
			return false
		}
	}

	// With ranks still to appear, the attempt's first step waits.
	last := f.last()
	return there >= l.World || last != nil && last.Place.Attempt == c.Place.Attempt
}

// relieve notes who took a rank's place in the column: the layout is another one from
// here on.
func (f *Feed) relieve(c *column) {
	changed := false
	for k, owner := range c.Owner {
		// Owners are numbered by their starts, so a higher one came later.
		if owner <= f.owners[k] {
			continue
		}

		if at, known := f.at(uint32(f.Rows[k])); known {
			for _, p := range f.Ranks[at] {
				is := p.Attempt == c.Place.Attempt && p.turn == owner
				changed = changed || is
				p.Running = is
			}
		}
	}

	if changed {
		f.arrange(c.Place.Attempt)
	}
}

// send accounts for a column and gives it away.
func (f *Feed) send(c *column, observe func(*frame.Column)) {
	f.relieve(c)
	l := f.layout
	before := 0
	for k, p := range l.Present {
		if !p {
			continue
		}

		if c.Owner[k] != 0 {
			f.Missed[k] = 0
			continue
		}

		// It counts no further than anybody asks, so it can't wrap around.
		f.Missed[k] = min(f.Missed[k]+1, silentAfter)
		if k < c.StartRow {
			before++
		}
	}

	f.Columns++
	out := c.shown()
	out.Layout = l
	if last := f.last(); last != nil {
		previous := last.shown()
		out.Off = frame.Unrecorded(f.Off(), &previous, &out)
	}

	if before >= 8 {
		out.StartNs = 0 // the frame looks no further either
	}

	// A metric that nobody recorded in this step is nil for the engine, even if a row had it whose place
	// another one took.
	for m, v := range c.V {
		if slices.ContainsFunc(v, func(x float32) bool { return x == x }) {
			out.V[m] = v
		}
	}

	observe(&out)
	// Who was in it is kept: a row that comes for it later is late, or came twice.
	c.V = [frame.MetricCount][]float32{}
	f.Recent = append(f.Recent, c)
	if len(f.Recent) > recentColumns {
		f.Recent = slices.Delete(f.Recent, 0, 1)
	}
}
