package whatif

import (
	"strconv"
	"strings"

	"github.com/laggard-dev/laggard/schemas/row"
)

// Take adds a part of the stored raw ranges (`--records all`) and of the ranks'
// identities, which say the positions in the groups, in any order. Nothing of them
// is kept but what is played: ranges of the chosen steps, of the kinds that Plays
// knows.
func (j *Job) Take(ranks []row.Rank, records []row.Record) {
	for i := range ranks {
		for _, g := range ranks[i].Groups {
			if name, index, ok := splitGroup(g); ok {
				j.at[position{ranks[i].Rank, j.word(name)}] = index
			}
		}
	}
	for i := range records {
		r := &records[i]
		if !Plays(r) || j.chosen != nil && !j.chosen[r.Step] {
			continue
		}
		if r.Kind == "Step" {
			// What lies between a step's bounds and its first and last range is work too.
			j.Add(r.Step, int(r.Rank), r.DurNs, []Range{
				{Class: Launch, Start: r.StartNs, End: r.StartNs}, {Class: Launch, Start: r.StartNs + r.DurNs, End: r.StartNs + r.DurNs},
			})
			continue
		}
		if rg, ok := j.rangeOf(r); ok {
			j.Add(r.Step, int(r.Rank), 0, []Range{rg})
		}
	}
}

// word returns one copy of a word: ranges come with bytes of their own.
func (j *Job) word(s string) string {
	w, ok := j.words[s]
	if !ok {
		w = strings.Clone(s)
		j.words[w] = w
	}
	return w
}

// position is a rank's place in one of its groups.
type position struct {
	rank  uint32
	group string
}

// splitGroup takes name and index out of dim:name:index:size; the name may hold colons.
func splitGroup(g string) (name string, index int, ok bool) {
	first := strings.IndexByte(g, ':')
	size := strings.LastIndexByte(g, ':')
	if first < 0 || size <= first {
		return "", 0, false
	}
	at := strings.LastIndexByte(g[:size], ':')
	if at <= first {
		return "", 0, false
	}
	index, err := strconv.Atoi(g[at+1 : size])
	return g[first+1 : at], index, err == nil
}

// Plays reports whether a replay has use for a raw range.
func Plays(r *row.Record) bool {
	switch r.Kind {
	case "Step", "FP", "Communication", "DataLoader", Backward:
		return r.Step >= 0 && r.Open == 0
	}
	return false
}

func (j *Job) rangeOf(r *row.Record) (Range, bool) {
	out := Range{Start: r.StartNs, End: r.StartNs + r.DurNs, Own: -1}
	switch r.Kind {
	case "FP":
		out.Class = Forward
		return out, true
	case Backward:
		out.Class = Backward
		return out, true
	case "DataLoader":
		out.Class = Loading
		return out, true
	case "Communication":
	default:
		return out, false
	}
	out.Exposed = r.ExposedNs
	out.Class, out.Group = j.word(r.Op), j.word(r.Group)
	switch r.Op {
	case "send":
		out.Class, out.Send, out.To = P2P, true, int(r.Peer)
	case "recv":
		out.Class, out.From = P2P, int(r.Peer)
	}
	return out, r.Group != ""
}

// meet writes the own positions into sends and receives.
func (j *Job) meet() {
	for _, ranks := range j.steps {
		for rank, rs := range ranks {
			for i := range rs {
				if r := &rs[i]; r.Class == P2P && r.Group != "" {
					me := j.at[position{uint32(rank), r.Group}]
					if r.Send {
						r.From = me
					} else {
						r.To = me
					}
				}
			}
		}
	}
}

// Spread chooses at most limit of the steps, evenly; 0 = all.
func Spread(steps []int64, limit int) []int64 {
	if limit <= 0 || len(steps) <= limit {
		return steps
	}
	few := make([]int64, 0, limit)
	for i := range limit {
		few = append(few, steps[i*len(steps)/limit])
	}
	return few
}
