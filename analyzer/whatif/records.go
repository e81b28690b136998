package whatif

import (
	"sort"
	"strconv"
	"strings"

	"github.com/laggard-dev/laggard/schemas/row"
)

// FromRows makes a job of stored raw ranges (`--records all`) and the ranks'
// identities, which say the positions in the groups. Ranges outside of any step
// and of kinds that are neither communication nor forward or backward are left
// out. At most limit steps are taken, evenly spread over the job; 0 = all.
func FromRows(l Layout, ranks []row.Rank, records []row.Record, limit int) *Job {
	at := positions(ranks)
	chosen := spread(records, limit)
	type key struct {
		step int64
		rank int
	}
	ranges, length := map[key][]Range{}, map[key]int64{}
	for i := range records {
		r := &records[i]
		k := key{r.Step, int(r.Rank)}
		if !chosen[r.Step] || !Plays(r) {
			continue
		}
		if r.Kind == "Step" {
			length[k] = r.DurNs
			continue
		}
		if rg, ok := rangeOf(r, at); ok {
			ranges[k] = append(ranges[k], rg)
		}
	}
	j := NewJob(l)
	for k, rs := range ranges {
		if length[k] > 0 {
			j.Add(k.step, k.rank, length[k], rs)
		}
	}
	return j
}

// position is a rank's place in one of its groups.
type position struct {
	rank  uint32
	group string
}

func positions(ranks []row.Rank) map[position]int {
	at := map[position]int{}
	for i := range ranks {
		for _, g := range ranks[i].Groups {
			name, index, ok := splitGroup(g)
			if ok {
				at[position{ranks[i].Rank, name}] = index
			}
		}
	}
	return at
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
	case "Step", "FP", "Communication", Backward:
		return r.Step >= 0 && r.Open == 0
	}
	return false
}

func rangeOf(r *row.Record, at map[position]int) (Range, bool) {
	out := Range{Start: r.StartNs, End: r.StartNs + r.DurNs, Own: -1}
	switch r.Kind {
	case "FP":
		out.Class = Forward
		return out, true
	case Backward:
		out.Class = Backward
		return out, true
	case "Communication":
	default:
		return out, false
	}
	out.Class, out.Group = r.Op, r.Group
	me := at[position{r.Rank, r.Group}]
	switch r.Op {
	case "send":
		out.Class, out.Send, out.From, out.To = P2P, true, me, int(r.Peer)
	case "recv":
		out.Class, out.From, out.To = P2P, int(r.Peer), me
	}
	return out, r.Group != ""
}

// spread chooses at most limit of the steps that occur, evenly.
func spread(records []row.Record, limit int) map[int64]bool {
	chosen := map[int64]bool{}
	for i := range records {
		if records[i].Step >= 0 {
			chosen[records[i].Step] = true
		}
	}
	if limit <= 0 || len(chosen) <= limit {
		return chosen
	}
	numbers := make([]int64, 0, len(chosen))
	for n := range chosen {
		numbers = append(numbers, n)
	}
	sort.Slice(numbers, func(a, b int) bool { return numbers[a] < numbers[b] })
	few := map[int64]bool{}
	for i := range limit {
		few[numbers[i*len(numbers)/limit]] = true
	}
	return few
}
