package rollup

import (
	"maps"
	"slices"

	"github.com/laggard-dev/laggard/schemas/record"
)

// Counts is the account of a stream since its first line, restarts included.
//
// For each kind: Emitted = Stored + Summarised + InFlight + lost as LateRange.
type Counts struct {
	Lines, Bytes uint64
	// Emitted are records that were read, by kind word; Stored of these became rows
	// of the table records, Summarised did not (Options.Records): they are in steps
	// and communications.
	Emitted, Stored, Summarised map[string]uint64
	// InFlight are records whose step is open; Waiting are TaskD ranges that lack a
	// line (not emitted yet).
	InFlight, Waiting uint64
	// Lost are records that did not arrive, summed by kind and reason: as loss lines say, lines that
	// can't be right, and LateRange.
	Lost []record.Loss

	Late    uint64 // records that came after their step was closed (stored all the same)
	Crowded uint64 // records that did not wait for their step's end: too many did, or of too long words (stored all the same)
	// Clipped are records of which a word was longer than record.MaxWord, or a path than
	// MaxPath, and was cut, and calls whose group and op were too many to be told apart.
	Clipped   uint64
	Shortened uint64 // groups of identity lines that were kept without their members: see maxMembers
	Ungrouped uint64 // steps of TaskD's lines whose communicators nothing had named yet: their Communication is in no dimension
	Unmatched uint64 // TaskD lines that found no partner
	Duplicate uint64 // lines with a ring and sequence number that was read before
	Unknown   uint64 // lines of no known type
	Garbage   uint64 // lines that are no JSON, or not of FORMAT.md's types
	Torn      uint64 // lines cut in the middle
	TornBytes uint64 // after the last '\n'

	// Damaged are the compressed segments that Feed could not read to their end, with the
	// cause. What stands before the damage was read.
	Damaged []string
	// Odd is the first line that was Unknown or Garbage to Feed: file:offset, and how it begins.
	Odd string `json:",omitempty"`
}

// Reasons for which a record, or a step, is stored otherwise than it came.
const (
	WordTooLong = "word-too-long" // Counts.Clipped
	Crowded     = "crowded"       // Counts.Crowded
	Oversized   = "oversized"     // Counts.Shortened
	NoGroups    = "no-groups"     // Counts.Ungrouped
)

// LostFor returns how many records were lost for a reason, "" for any, of whatever kind.
func (c *Counts) LostFor(reason string) (n uint64) {
	for i := range c.Lost {
		if reason == "" || c.Lost[i].Reason == reason {
			n += c.Lost[i].Count
		}
	}

	return n
}

// LostAs returns how many records of a kind were lost for a reason.
func (c *Counts) LostAs(kind, reason string) uint64 {
	for i := range c.Lost {
		if l := &c.Lost[i]; l.Kind == kind && l.Reason == reason {
			return l.Count
		}
	}

	return 0
}

// Lose counts n records of a kind as lost. The words are of hostile origin: those beyond maxWords are
// counted together.
func (c *Counts) Lose(kind, reason string, n uint64) {
	kind, reason = record.Clip(kind, record.MaxWord), record.Clip(reason, record.MaxWord)
	at := func() int {
		return slices.IndexFunc(c.Lost, func(l record.Loss) bool { return l.Kind == kind && l.Reason == reason })
	}
	i := at()
	if i < 0 && len(c.Lost) >= maxWords {
		kind, reason = "", record.Other.String()
		i = at()
	}

	if i < 0 {
		i = len(c.Lost)
		c.Lost = append(c.Lost, record.Loss{Kind: kind, Reason: reason})
	}

	c.Lost[i].Count += n
}

// LateRange is the reason in Counts.Lost of a TaskD range whose first line came
// after its step was closed: it is not followed. It is among Emitted, too, for that line was read.
const LateRange = "late"

// maxWords bounds the tables by word: lines are hostile input.
const maxWords = 64

// What becomes of a record, as a tally counts it.
const (
	emitted = iota
	stored
	summarised
	fates
)

// tally is the running account, but for what Stream.Counts adds to it: that by kind is in Known, and
// by word in Other for kinds that are not known. Its fields are part of Position.State.
type tally struct {
	Counts
	Known [fates][record.KindCount]uint64
	Other [fates]map[string]uint64
}

// count counts a record of a kind; word is its own where the kind is not known. Words beyond
// maxWords are counted together, as Other.
func (t *tally) count(fate int, k record.Kind, word string) {
	if k != record.Other {
		t.Known[fate][k]++
		return
	}

	if _, known := t.Other[emitted][word]; !known && len(t.Other[emitted]) >= maxWords {
		word = record.Other.String() // whatever is decided was emitted before
	}

	if t.Other[fate] == nil {
		t.Other[fate] = map[string]uint64{}
	}

	t.Other[fate][word]++
}

// given returns how many records were decided.
func (t *tally) given() uint64 {
	n := total(t.Other[stored]) + total(t.Other[summarised])
	for k := range record.KindCount {
		n += t.Known[stored][k] + t.Known[summarised][k]
	}

	return n
}

// Altered returns how many records, groups and steps were stored otherwise than they
// came, by the reasons above.
func (s *Stream) Altered() map[string]uint64 {
	t := &s.account
	return map[string]uint64{WordTooLong: t.Clipped + s.pairer.Clipped, Crowded: t.Crowded, Oversized: t.Shortened, NoGroups: t.Ungrouped}
}

// Counts returns the account so far.
func (s *Stream) Counts() Counts {
	t := &s.account
	c := t.Counts
	c.Lost = slices.Clone(t.Lost)
	c.Clipped += s.pairer.Clipped
	c.Unmatched = s.pairer.Unmatched
	for fate, words := range [fates]*map[string]uint64{&c.Emitted, &c.Stored, &c.Summarised} {
		*words = map[string]uint64{}
		maps.Copy(*words, t.Other[fate])
		for k, n := range t.Known[fate] {
			if n > 0 {
				(*words)[record.Kind(k).String()] += n // a kind that is not known may go by the same word
			}
		}
	}

	for _, inc := range s.incarnations {
		c.InFlight += uint64(len(inc.pending))
	}

	for _, p := range s.pairer.Processes() {
		c.Waiting += uint64(p.Waiting())
	}

	return c
}

// total adds up a table of Counts.
func total(m map[string]uint64) uint64 {
	var n uint64
	for _, v := range m {
		n += v
	}

	return n
}
