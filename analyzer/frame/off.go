package frame

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/laggard-dev/laggard/schemas/row"
)

// Off is a stretch of time in which the switch had recording off.
type Off struct {
	FromNs, ToNs int64 // ToNs 0: nothing of these ranks was recorded after it
	Ranks        []int // ascending
	All          bool  // every rank that is known
}

// OffTimes returns when recording was off, of all processes of a job: what overlaps is
// one. Stretches that ended come first, each kind in order of its start.
func OffTimes(ranks []*row.Rank) []Off {
	ranks = slices.Clone(ranks)
	slices.SortStableFunc(ranks, func(a, b *row.Rank) int {
		return cmp.Or(cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.StartedNs, b.StartedNs))
	})
	var over, open []Off
	known := 0
	for i, r := range ranks {
		next := int64(0) // start of the process that took its place
		if i+1 < len(ranks) && ranks[i+1].Rank == r.Rank {
			next = ranks[i+1].StartedNs
		} else {
			known++
		}

		for _, text := range r.Off {
			o, ok := parseOff(text)
			if !ok {
				continue
			}

			o.Ranks = []int{int(r.Rank)}
			if o.ToNs == 0 {
				o.ToNs = next
			}

			if o.ToNs == 0 {
				open = append(open, o)
			} else {
				over = append(over, o)
			}
		}
	}

	out := append(mergeOff(over), mergeOff(open)...)
	for i := range out {
		slices.Sort(out[i].Ranks)
		out[i].Ranks = slices.Compact(out[i].Ranks)
		out[i].All = len(out[i].Ranks) == known
	}

	return out
}

// parseOff reads an element of row.Rank.Off.
func parseOff(text string) (o Off, ok bool) {
	from, to, ok := strings.Cut(text, ":")
	var err error
	if o.FromNs, err = strconv.ParseInt(from, 10, 64); err != nil || !ok {
		return o, false
	}

	if to != "" {
		o.ToNs, err = strconv.ParseInt(to, 10, 64)
	}

	return o, err == nil
}

// mergeOff makes one of stretches that overlap; of those that have no end too.
func mergeOff(all []Off) []Off {
	slices.SortStableFunc(all, func(a, b Off) int { return cmp.Compare(a.FromNs, b.FromNs) })
	var out []Off
	for _, o := range all {
		if n := len(out); n > 0 && (out[n-1].ToNs == 0 || o.FromNs <= out[n-1].ToNs) {
			last := &out[n-1]
			last.Ranks = append(last.Ranks, o.Ranks...)
			if last.ToNs != 0 {
				last.ToNs = max(last.ToNs, o.ToNs)
			}

			continue
		}

		out = append(out, o)
	}

	return out
}

// Unrecorded returns how many steps of a job nobody recorded between two columns that
// follow each other, because recording was off.
func Unrecorded(off []Off, before, after *Column) int {
	// Steps are told by their numbers, so both must be of one attempt, and their starts known.
	missing := after.Step - before.Step - 1
	if before.Attempt != after.Attempt || missing <= 0 || before.StartNs == 0 || after.StartNs == 0 {
		return 0
	}

	between := func(o Off) bool { return o.FromNs <= after.StartNs && (o.ToNs == 0 || o.ToNs >= before.StartNs) }
	if !slices.ContainsFunc(off, between) {
		return 0
	}

	return int(min(missing, MaxRows))
}
