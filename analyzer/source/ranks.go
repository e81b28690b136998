package source

import (
	"cmp"
	"slices"

	"github.com/laggard-dev/laggard/schemas/row"
)

// newestRanks returns the rows with the highest version of each incarnation,
// ordered by rank, start and incarnation.
func newestRanks(ranks []row.Rank) []row.Rank {
	type key struct {
		rank        uint32
		incarnation uint64
	}
	newest := map[key]row.Rank{}
	for _, r := range ranks {
		k := key{r.Rank, r.Incarnation}
		if old, ok := newest[k]; !ok || r.Version > old.Version {
			newest[k] = r
		}
	}
	kept := make([]row.Rank, 0, len(newest))
	for _, r := range newest {
		kept = append(kept, r)
	}
	slices.SortFunc(kept, func(a, b row.Rank) int {
		return cmp.Or(cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.StartedNs, b.StartedNs), cmp.Compare(a.Incarnation, b.Incarnation))
	})
	return kept
}

func addRanks(b Builder, ranks []row.Rank, info *Info) {
	for i := range ranks {
		b.AddRank(&ranks[i])
	}
	info.Ranks += len(ranks)
}
