package replay

// sets are disjoint sets of rows.
type sets struct{ parent []int32 }

func newSets(n int) *sets {
	s := &sets{make([]int32, n)}
	for i := range s.parent {
		s.parent[i] = int32(i)
	}

	return s
}

func (s *sets) find(r int32) int32 {
	for s.parent[r] != r {
		s.parent[r] = s.parent[s.parent[r]]
		r = s.parent[r]
	}

	return r
}

func (s *sets) join(rows []int32) {
	for _, r := range rows[min(1, len(rows)):] {
		a, b := s.find(rows[0]), s.find(r)
		s.parent[max(a, b)] = min(a, b)
	}
}
