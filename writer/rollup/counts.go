package rollup

import (
	"encoding/json"
	"maps"

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
	// Lost are records that did not arrive: as loss lines say, lines that can't be right, and
	// LateRange.
	Lost map[Lost]uint64

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

	// Odd is the first line of Unknown and Garbage that Feed read: its file and offset, and how it begins.
	Odd string `json:",omitempty"`
	// Damaged are the compressed segments that Feed could not read to their end, with the
	// cause. What stands before the damage was read.
	Damaged []string
}

// Reasons for which a record, or a step, is stored otherwise than it came.
const (
	WordTooLong = "word-too-long" // Counts.Clipped
	Crowded     = "crowded"       // Counts.Crowded
	Oversized   = "oversized"     // Counts.Shortened
	NoGroups    = "no-groups"     // Counts.Ungrouped
)

// Lost says what was lost: the word of the kind, "" where that is not known, and the reason.
type Lost struct{ Kind, Reason string }

// MarshalText makes a key of a state, which is JSON: kind and reason may hold any text.
func (l Lost) MarshalText() ([]byte, error) { return json.Marshal([...]string{l.Kind, l.Reason}) }

// UnmarshalText reads the key of a state; an older one has the reason alone.
func (l *Lost) UnmarshalText(text []byte) error {
	var words [2]string
	if json.Unmarshal(text, &words) != nil {
		words[1] = string(text)
	}

	l.Kind, l.Reason = words[0], words[1]
	return nil
}

// LostFor returns how many records were lost for a reason, of whatever kind.
func (c *Counts) LostFor(reason string) (n uint64) {
	for l, lost := range c.Lost {
		if l.Reason == reason {
			n += lost
		}
	}

	return n
}

// LateRange is the reason in Counts.Lost of a TaskD range whose first line came
// after its step was closed: it is not followed. It is among Emitted, too, for that line was read.
const LateRange = "late"

// maxWords bounds the tables by word: lines are hostile input.
const maxWords = 64

// tally is the running account, but for what Stream.Counts adds to it. Its fields are
// part of Position.State.
type tally struct {
	Counts
	Known [record.KindCount]kindTally
	Other map[string]*kindTally `json:",omitempty"`
}

type kindTally struct{ Emitted, Stored, Summarised uint64 }

// kind finds the account of a kind; that of ranges without a kind is by their word. Words beyond
// maxWords are counted together, as Other.
func (t *tally) kind(k record.Kind, word string) *kindTally {
	if k != record.Other {
		return &t.Known[k]
	}

	if c := t.Other[word]; c != nil {
		return c
	}

	if t.Other == nil {
		t.Other = map[string]*kindTally{}
	}

	if len(t.Other) >= maxWords {
		word = record.Other.String()
		if c := t.Other[word]; c != nil {
			return c
		}
	}

	c := &kindTally{}
	t.Other[word] = c
	return c
}

// given returns how many records were decided.
func (t *tally) given() uint64 {
	var n uint64
	for k := range t.Known {
		n += t.Known[k].Stored + t.Known[k].Summarised
	}

	for _, k := range t.Other {
		n += k.Stored + k.Summarised
	}

	return n
}

// lose counts n records as lost. The words are of hostile origin.
func (t *tally) lose(kind, reason string, n uint64) {
	l := Lost{record.Clip(kind, record.MaxWord), record.Clip(reason, record.MaxWord)}
	if t.Lost == nil {
		t.Lost = map[Lost]uint64{}
	}

	if _, ok := t.Lost[l]; !ok && len(t.Lost) >= maxWords {
		l = Lost{Reason: record.Other.String()}
	}

	t.Lost[l] += n
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
	c.Emitted, c.Stored, c.Summarised, c.Lost = map[string]uint64{}, map[string]uint64{}, map[string]uint64{}, map[Lost]uint64{}
	maps.Copy(c.Lost, t.Lost)
	c.Clipped += s.pairer.Clipped
	c.Unmatched = s.pairer.Unmatched
	put := func(word string, k *kindTally) {
		for _, f := range [...]struct {
			m map[string]uint64
			n uint64
		}{{c.Emitted, k.Emitted}, {c.Stored, k.Stored}, {c.Summarised, k.Summarised}} {
			if f.n > 0 {
				f.m[word] = f.n
			}
		}
	}
	for k := range t.Known {
		if record.Kind(k) != record.Other {
			put(record.Kind(k).String(), &t.Known[k])
		}
	}

	for word, k := range t.Other {
		put(word, k)
	}

	for _, inc := range s.incarnations {
		c.InFlight += uint64(len(inc.pending))
	}

	for _, p := range s.pairer.Processes() {
		c.Waiting += uint64(p.Waiting())
	}

	return c
}

// Sum adds up a table of Counts.
func Sum[K comparable](m map[K]uint64) uint64 {
	var n uint64
	for _, v := range m {
		n += v
	}

	return n
}
