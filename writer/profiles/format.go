package profiles

import (
	"context"
	"fmt"
	"slices"
	"unique"

	"github.com/laggard-dev/laggard/schemas/record"
)

// format is one kind of profile.
type format struct {
	Name string // the word of --from
	What string // what it is called where it is made, for help and errors
	// Endings are those of a profile's file; none where a profile is several files, of which one leads.
	Endings []string
	// Leads reports whether f leads a profile of this format.
	Leads func(f *profileFile) bool
	// Read reads the profile that f leads.
	Read func(ctx context.Context, f *profileFile, out *output) error
}

// formats are all that are known. Of two that claim a file the first counts.
func formats() []format {
	return []format{kineto, ascend, mindstudio, nsight, flight, inspector}
}

// Words lists the formats' names, for --from.
func Words() []string {
	var words []string
	for _, f := range formats() {
		words = append(words, f.Name)
	}

	return words
}

// unknownRank is the rank of a profile that does not tell it: the file's name decides, or the
// order of names.
const unknownRank = -1

// mostRanks bounds the numbers of ranks, and how many there are. The largest jobs have 100,000; what a
// hostile file says beyond that is no rank.
const mostRanks = 1 << 24

// rankIn reads the number of a rank; what is none is unknownRank.
func rankIn(v []byte) int {
	if n := number(v, unknownRank); n >= 0 && n < mostRanks {
		return int(n)
	}

	return unknownRank
}

// mostRanges bounds the ranges of one profile: some 200 MB.
const mostRanges = 1 << 20

// output is one profile, and takes what a format reads of it. It is not safe for concurrent use.
type output struct {
	file   *profileFile // that leads it
	worker int          // its place among the workers' names
	hash   record.ID
	ranks  []*rankOutput
	unread []Problem
	notes  []Problem
	ranges int
	beyond int // ranges that found no room
}

// Problem is something to tell of a file.
type Problem struct{ Path, Cause string }

// String names the file and the cause.
func (p Problem) String() string { return p.Path + ": " + p.Cause }

// Rank returns the rank of the identity, a new one where it is not known yet. Of id Rank, WorldSize,
// LocalRank, Node, PID and Groups count; what is not known is zero, but of Rank unknownRank.
func (o *output) Rank(id record.Meta) *rankOutput {
	for _, r := range o.ranks {
		if r.Rank == id.Rank && r.PID == id.PID {
			return r
		}
	}

	r := &rankOutput{Meta: id, out: o}
	o.ranks = append(o.ranks, r)
	return r
}

// Unread notes what could not be read of a file, and why.
func (o *output) Unread(path, format string, args ...any) {
	o.unread = told(o.unread, path, format, args)
}

// Note notes what was made of a file that does not say all.
func (o *output) Note(path, format string, args ...any) { o.notes = told(o.notes, path, format, args) }

// told adds a problem, once, as long as there are few.
func told(list []Problem, path, format string, args []any) []Problem {
	const most = 64 // of one profile
	p := Problem{path, fmt.Sprintf(format, args...)}
	if len(list) < most && !slices.Contains(list, p) {
		list = append(list, p)
	}

	return list
}

// rankOutput is one rank's part of a profile.
type rankOutput struct {
	// Meta is whose ranges they are, as far as the profile says it. Groups may be set until Read returns.
	record.Meta
	named  bool // Rank is that of the file's name
	out    *output
	ranges []record.Record
	// Partly says that steps are marked of which the profile holds only a part, so they are left out.
	Partly bool
	// computed is from the first to the last that the rank computed: a profile that marks no step, and has
	// no range, may have that.
	computed interval
	// What was written: from the first to the last of the ranges, in files in order, under names that
	// are no segments' yet.
	written interval
	paths   []string
}

// Add takes a range. It keeps nothing of rec but its words, each once: a trace has many ranges and few
// words.
func (r *rankOutput) Add(rec *record.Record) {
	if r.out.ranges >= mostRanges {
		r.out.beyond++
		return
	}

	r.out.ranges++
	one := *rec
	one.Dur = max(rec.Dur, 0)
	for _, w := range []*string{&one.Name, &one.Op, &one.OpRaw, &one.Group, &one.Dtype, &one.Path} {
		*w = unique.Make(record.Clip(*w, record.MaxWord)).Value() // one copy of each
	}

	r.ranges = append(r.ranges, one)
}

// hostEnd is the host's end of a range where it is known, else its own.
func hostEnd(r *record.Record) int64 {
	if r.Side == record.Device && r.HostStart != 0 {
		return r.HostStart + r.HostDur
	}

	return r.End()
}
