package source

import "slices"

// byKey puts rows in the order of their keys, one of each key. A server sends rows in that order
// from each part of a table, mostly there is one: rows that are in order already stay where they are.
func byKey[T any](rows []T, compare func(a, b *T) int) []T {
	rise := true
	places := make([]int32, len(rows)) // sorted in place of the rows, which are long
	for i := range rows {
		places[i] = int32(i)
		rise = rise && (i == 0 || compare(&rows[i-1], &rows[i]) < 0)
	}

	if rise {
		return rows
	}

	slices.SortStableFunc(places, func(a, b int32) int { return compare(&rows[a], &rows[b]) })
	places = slices.CompactFunc(places, func(a, b int32) bool { return compare(&rows[a], &rows[b]) == 0 })
	sorted := make([]T, len(places))
	for i, k := range places {
		sorted[i] = rows[k]
	}

	return sorted
}
