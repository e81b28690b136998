package rollup

import (
	"bytes"
	"math"
	"time"

	"laggard/writer/segment"
)

// BadTime is the reason of a line whose time can't be right.
const BadTime = "bad-time"

// Bounds are the times that lines of one segment can have. A segment is named for
// the second in which it was made, so a line that is years away from it is garbage:
// stored, it would make a partition of its own.
type Bounds struct{ lo, hi int64 } // ns since the Unix epoch

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
	// latest is the end of what other segments may hold (the year 2100).
	latestTime = 4_102_444_800 * int64(time.Second)
)

// BoundsOf returns the bounds of a segment. They depend on its name alone, so all
// that read it agree.
func BoundsOf(name string) Bounds {
	n, ok := segment.Number(name)
	if !ok || n < firstName || n > lastName {
		return Bounds{0, latestTime}
	}
	at := n * int64(time.Second)
	return Bounds{at - int64(Around), at + int64(Around)}
}

// The keys of the times that partitions are made of, and TaskD's. A key can't stand
// within a string: its quotes would be escaped.
var timeKeys = [...][]byte{[]byte(`"start":`), []byte(`"Timestamp":`), []byte(`"host_start":`)}

// Sane reports whether the times in a line are within the bounds, or count from the
// start of a host or process; a line without any is sane. What is no number is the
// parser's to refuse; 0 is "not known".
func (b Bounds) Sane(line []byte) bool {
	for i, key := range timeKeys {
		at := bytes.Index(line, key)
		if at < 0 {
			continue
		}
		if t := number(line[at+len(key):]); (t < b.lo || t > b.hi) && (t < 0 || t > sinceBoot) {
			return false
		}
		if i == 1 {
			break
		}
	}
	return true
}

// number reads the whole number that b begins with; one that is too large is the
// largest.
func number(b []byte) int64 {
	negative := len(b) > 0 && b[0] == '-'
	if negative {
		b = b[1:]
	}
	n := int64(0)
	for _, c := range b {
		if c < '0' || c > '9' {
			break
		}
		if n > (math.MaxInt64-9)/10 {
			n = math.MaxInt64
			break
		}
		n = n*10 + int64(c-'0')
	}
	if negative {
		return -n
	}
	return n
}
