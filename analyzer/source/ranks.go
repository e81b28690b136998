package source

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/laggard-dev/laggard/schemas/clickhouse/native"
	"github.com/laggard-dev/laggard/schemas/row"
)

// newestRanks returns the rows with the highest version of each incarnation,
// ordered by rank, start and incarnation. It reuses the memory of ranks.
func newestRanks(ranks []row.Rank) []row.Rank {
	process := func(a, b row.Rank) int {
		return cmp.Or(cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.Incarnation, b.Incarnation))
	}
	slices.SortStableFunc(ranks, func(a, b row.Rank) int { return cmp.Or(process(a, b), cmp.Compare(b.Version, a.Version)) })
	ranks = slices.CompactFunc(ranks, func(a, b row.Rank) bool { return process(a, b) == 0 })
	slices.SortFunc(ranks, func(a, b row.Rank) int {
		return cmp.Or(cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.StartedNs, b.StartedNs), cmp.Compare(a.Incarnation, b.Incarnation))
	})
	return ranks
}

// members keeps one copy of each group's ranks: those of many thousand ranks name the
// same members, as many as they are.
type members map[string][]uint32

// share makes the groups of rows those that are kept.
func (m members) share(rows []row.Rank) {
	for i := range rows {
		for k, ranks := range rows[i].GroupRanks {
			rows[i].GroupRanks[k] = m.kept(ranks)
		}
	}
}

// lists are a row's lists of ranks.
func (m members) lists(c *native.Column, row int) [][]uint32 {
	from, to := c.List(row)
	lists := make([][]uint32, 0, to-from)
	var ranks []uint32
	for k := from; k < to; k++ {
		first, end := c.Of.List(int(k))
		ranks = ranks[:0]
		for _, n := range c.Of.Of.Numbers[first:end] {
			ranks = append(ranks, uint32(n))
		}

		lists = append(lists, m.kept(ranks))
	}

	return lists
}

// kept returns the one copy of a group's ranks.
func (m members) kept(ranks []uint32) []uint32 {
	key := make([]byte, 0, 4*len(ranks))
	for _, r := range ranks {
		key = binary.LittleEndian.AppendUint32(key, r)
	}

	kept, ok := m[string(key)]
	if !ok {
		kept = slices.Clone(ranks)
		m[string(key)] = kept
	}

	return kept
}
