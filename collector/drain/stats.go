package drain

import (
	"maps"
	"time"

	"github.com/laggard-dev/laggard/schemas/record"
)

// Stats is what a Drain has done since New. Counters never shrink.
type Stats struct {
	Passes    uint64
	Processes int // folders held now
	Rings     int // ring files in them
	Ignored   int // folders left alone now: of another version, damaged, not trusted
	Waiting   int // folders of trusted users that there is no room for now
	Claimed   int // ranks that two living processes claim now

	Refused map[string]uint64 // folders left alone so far, by reason

	Drained [record.KindCount]uint64 // records given to segments
	Open    [record.KindCount]uint64 // ranges that never ended
	Dropped map[string]uint64        // by reason, see package record

	Lag time.Duration // from the end of the oldest range of the last pass to its draining

	WriteErrors uint64 // of Writers
	Damaged     uint64 // rings and process files that became too short to read
}

// Stats returns a copy.
func (d *Drain) Stats() Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.stats
	s.Dropped, s.Refused = maps.Clone(s.Dropped), maps.Clone(s.Refused)
	return s
}

// count changes the statistics.
func (d *Drain) count(f func(*Stats)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f(&d.stats)
}

// drained counts a record whose range ended at a time. It is for the goroutine
// of Pass, which publishes the sums.
func (d *Drain) drained(k record.Kind, end int64) {
	d.tally[k]++
	if d.oldest == 0 || end < d.oldest {
		d.oldest = end
	}
}

// publish makes what the pass did, and what is held after it, the statistics.
func (d *Drain) publish(now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stats.Passes++
	for k, n := range d.tally {
		d.stats.Drained[k] += n
	}

	d.stats.Lag = 0
	if d.oldest != 0 {
		d.stats.Lag = max(now.Sub(time.Unix(0, d.oldest)), 0)
	}

	d.tally, d.oldest = [record.KindCount]uint64{}, 0
	d.stats.Processes = len(d.processes)
	d.stats.Rings = 0
	for _, p := range d.processes {
		d.stats.Rings += len(p.rings)
	}
}

// lose counts records that will not arrive, once their loss line is written.
func (d *Drain) lose(reason string, n uint64) {
	d.count(func(s *Stats) { s.Dropped[reason] += n })
}
