package frame

// Sets are disjoint sets of rows.
type Sets struct{ parent []int32 }

// NewSets returns n rows, each a set of its own.
func NewSets(n int) *Sets {
	s := &Sets{make([]int32, n)}
	for i := range s.parent {
		s.parent[i] = int32(i)
	}

	return s
}

// Find returns the lowest row of the set that a row is in.
func (s *Sets) Find(row int32) int32 {
	for s.parent[row] != row {
		s.parent[row] = s.parent[s.parent[row]]
		row = s.parent[row]
	}

	return row
}

// Join makes one set of those that the rows are in.
func (s *Sets) Join(rows ...int32) {
	for _, row := range rows {
		a, b := s.Find(rows[0]), s.Find(row)
		s.parent[max(a, b)] = min(a, b)
	}
}
