package rollup

import (
	"math"
	"slices"
	"sort"
)

// maxRuns bounds the passes of steps: 24 KiB of a state. A rollback makes two runs more, so these are
// 500 rollbacks of one process.
const maxRuns = 1024

// passes counts how often each number came by. Numbers mostly grow by one, and
// after a rollback they come again, so runs of equal count are few. Beyond a bound
// the lowest two become one: a number in the gap between them then counts as seen.
type passes struct {
	Runs []run `json:"runs,omitempty"`
}

// run is the numbers From to To, inclusive, each seen Count times.
type run struct {
	From, To int64
	Count    uint16
}

// at returns the index of the first run that ends at or after n. Runs are sorted and apart.
func (p *passes) at(n int64) int {
	if last := len(p.Runs) - 1; last < 0 || p.Runs[last].To < n { // numbers mostly grow
		return last + 1
	}

	return sort.Search(len(p.Runs), func(i int) bool { return p.Runs[i].To >= n })
}

// count returns how often n came by.
func (p *passes) count(n int64) uint16 {
	if i := p.at(n); i < len(p.Runs) && p.Runs[i].From <= n {
		return p.Runs[i].Count
	}

	return 0
}

// add counts n once more, in at most so many runs, and returns how often it had come by before.
func (p *passes) add(n int64, most int) uint16 {
	i := p.at(n)
	if i > 0 && i == len(p.Runs) && p.Runs[i-1].To+1 == n && p.Runs[i-1].Count == 1 { // as join would
		p.Runs[i-1].To = n
		return 0
	}

	if i == len(p.Runs) || p.Runs[i].From > n {
		p.Runs = slices.Insert(p.Runs, i, run{n, n, 1})
		p.join(i, most)
		return 0
	}

	r := p.Runs[i]
	if r.Count == math.MaxUint16 {
		return r.Count
	}

	parts := make([]run, 0, 3)
	if r.From < n {
		parts = append(parts, run{r.From, n - 1, r.Count})
	}

	mid := i + len(parts)
	parts = append(parts, run{n, n, r.Count + 1})
	if n < r.To {
		parts = append(parts, run{n + 1, r.To, r.Count})
	}

	p.Runs = slices.Replace(p.Runs, i, i+1, parts...)
	p.join(mid, most)
	return r.Count
}

// join merges run i with its neighbours where they continue each other, and the lowest two where there
// are more than most.
func (p *passes) join(i, most int) {
	if i+1 < len(p.Runs) && p.Runs[i].To+1 == p.Runs[i+1].From && p.Runs[i].Count == p.Runs[i+1].Count {
		p.Runs[i].To = p.Runs[i+1].To
		p.Runs = slices.Delete(p.Runs, i+1, i+2)
	}

	if i > 0 && p.Runs[i-1].To+1 == p.Runs[i].From && p.Runs[i-1].Count == p.Runs[i].Count {
		p.Runs[i-1].To = p.Runs[i].To
		p.Runs = slices.Delete(p.Runs, i, i+1)
	}

	if len(p.Runs) > most {
		p.Runs[1].From = p.Runs[0].From
		p.Runs[1].Count = max(p.Runs[0].Count, p.Runs[1].Count)
		p.Runs = slices.Delete(p.Runs, 0, 1)
	}
}
