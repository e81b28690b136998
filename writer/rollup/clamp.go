package rollup

import (
	"math"
	"time"

	"github.com/laggard-dev/laggard/schemas/marker"
	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/writer/segment"
)

// BadTime is the reason of a line whose time can't be right.
const BadTime = "bad-time"

const (
	// Around is how far from a segment's name its lines may lie: the clock may have been
	// stepped, or a copy been given the name of another day. It is wide, for a line
	// that is refused is lost to the verdict, and a strange one costs a partition.
	Around = 10 * 365 * 24 * time.Hour
	// sinceBoot ends the times that a writer takes from a clock which does not start in
	// 1970: since its host's start, or since its own.
	sinceBoot = 400 * 24 * int64(time.Hour)
	// firstName is the name from which on a segment was made by a clock that was set
	// (September 2001); a machine that begins in 1970 names its files so.
	firstName = 1_000_000_000
	// lastName keeps what is around a name within an int64 (the year 2116).
	lastName = 4_600_000_000
	// latestTime is the end of what other segments may hold (the year 2100).
	latestTime = 4_102_444_800 * int64(time.Second)
)

// timesOf returns the times that lines of one segment can have, ns since the Unix epoch. A
// segment is named for the second in which it was made, so a line that is years away from it
// is garbage: stored, it would make a partition of its own. They depend on the name alone, so
// all that read the segment agree.
func timesOf(name string) (earliest, latest int64) {
	n, ok := segment.Number(name)
	if !ok || n < firstName || n > lastName {
		return 0, latestTime
	}

	at := n * int64(time.Second)
	return at - int64(Around), at + int64(Around)
}

// timely reports whether a line of the current segment can have the time t: one within timesOf,
// or one that counts from the start of a host or process. 0 is "not known".
func (s *Stream) timely(t int64) bool {
	return t >= s.earliest && t <= s.latest || t >= 0 && t <= sinceBoot
}

const (
	farthest = 1 << 62 // ns from the Unix epoch: the year 2116
	longest  = 1 << 60 // ns
)

// clamp brings the numbers of a hostile line into range, so that sums don't overflow.
func clamp(r *record.Record) {
	r.Start = min(max(r.Start, -farthest), farthest)
	r.HostStart = min(max(r.HostStart, -farthest), farthest)
	r.Dur = min(max(r.Dur, 0), longest)
	r.HostDur = min(max(r.HostDur, 0), longest)
	r.Exposed = min(max(r.Exposed, -1), longest)
}

// number cuts the words of a record that no parser has numbered, and numbers them; a record
// whose words are cut is counted.
func (s *Stream) number(r *record.Record) record.Numbers {
	path := clip(record.MaxPath, &r.Path)
	if clip(record.MaxWord, &r.Name, &r.Op, &r.OpRaw, &r.Group, &r.Dtype) || path {
		s.counts.Clipped++
	}

	return s.words.Number(r)
}

// clip cuts words to most bytes, and reports whether any was longer.
func clip(most int, words ...*string) (cut bool) {
	for _, w := range words {
		if len(*w) > most {
			*w, cut = record.Clip(*w, most), true
		}
	}

	return cut
}

// timeOf is the time that a marker says.
func timeOf(m *marker.Marker) int64 { return int64(min(m.Timestamp, math.MaxInt64)) }

// refuse leaves a line out that can't be right: BadTime, record.Implausible.
func (s *Stream) refuse(offset int64, line []byte, kind, reason string) {
	s.counts.Lose(kind, reason, 1)
	if s.o.Refused != nil && !s.replay {
		s.o.Refused(offset, line, reason)
	}
}
