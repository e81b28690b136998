package source

import (
	"cmp"

	"github.com/laggard-dev/laggard/schemas/row"
)

// byKey puts rows in the order of their keys, one of each key. A server sends rows in that order
// from each part of a table: they are a few stretches that rise, mostly one, and these are merged.
// Rows that are in order already stay where they are.
func byKey[T any](rows []T, compare func(a, b *T) int) []T {
	var ends []int // of the stretches
	for i := 1; i < len(rows); i++ {
		if compare(&rows[i-1], &rows[i]) >= 0 {
			ends = append(ends, i)
		}
	}

	if len(ends) == 0 {
		return rows
	}

	places, spare := make([]int32, len(rows)), make([]int32, len(rows))
	for i := range places {
		places[i] = int32(i)
	}

	for ends = append(ends, len(rows)); len(ends) > 1; {
		from, merged := 0, ends[:0]
		for k := 0; k < len(ends); k += 2 {
			middle, end := ends[k], ends[min(k+1, len(ends)-1)]
			mergeRuns(spare[from:end], places[from:middle], places[middle:end], rows, compare)
			from, merged = end, append(merged, end)
		}

		places, spare, ends = spare, places, merged
	}

	sorted := make([]T, 0, len(rows))
	for i, k := range places {
		if i == 0 || compare(&rows[places[i-1]], &rows[k]) != 0 {
			sorted = append(sorted, rows[k])
		}
	}

	return sorted
}

// mergeRuns fills into with the places of two stretches that rise; of one key those of a go first.
func mergeRuns[T any](into, a, b []int32, rows []T, compare func(a, b *T) int) {
	for i := range into {
		if len(b) == 0 || len(a) > 0 && compare(&rows[a[0]], &rows[b[0]]) <= 0 {
			into[i], a = a[0], a[1:]
		} else {
			into[i], b = b[0], b[1:]
		}
	}
}

// compareSteps compares by the key of the table of steps.
func compareSteps(a, b *row.Step) int {
	return cmp.Or(cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.Incarnation, b.Incarnation), cmp.Compare(a.Step, b.Step), cmp.Compare(a.Repeat, b.Repeat))
}

// compareCommunications compares by the key of the table of communications.
func compareCommunications(a, b *row.Communication) int {
	return cmp.Or(cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.Incarnation, b.Incarnation), cmp.Compare(a.StepFrom, b.StepFrom), cmp.Compare(a.Repeat, b.Repeat),
		cmp.Compare(a.Group, b.Group), cmp.Compare(a.Op, b.Op))
}
