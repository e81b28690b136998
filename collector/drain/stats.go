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

	seen     bool      // a recorder was held
	unnamed  string    // job of processes that name none, "" until there was one
	passedAt time.Time // when the last pass ended
	trouble  error     // what Ready says of the folders
}

// Stats returns what was published last. Its maps are not to be changed.
func (d *Drain) Stats() Stats { return *d.public.Load() }

// drained counts a record whose range ended at a time.
func (d *Drain) drained(k record.Kind, end int64) {
	d.stats.Drained[k]++
	if d.oldest == 0 || end < d.oldest {
		d.oldest = end
	}
}

// publish shows other goroutines the statistics, with what is held now.
func (d *Drain) publish() {
	s := d.stats
	s.Dropped, s.Refused = maps.Clone(s.Dropped), maps.Clone(s.Refused)
	s.Processes = len(d.processes)
	for _, p := range d.processes {
		s.Rings += len(p.rings)
	}

	d.public.Store(&s)
}
