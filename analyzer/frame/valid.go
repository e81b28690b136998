package frame

import "slices"

// MaxRows bounds the ranks of a job: what lies beyond is cut, never refused.
const MaxRows = 1 << 20

// Valid reports whether all lists of a layout that was read from somewhere have their
// lengths, and all indices are inside them.
func (l *Layout) Valid() bool {
	n := len(l.Ranks)
	lengths := []int{len(l.Present), len(l.Incarnation), len(l.Fresh), len(l.Node), len(l.Role), len(l.Replica)}
	if slices.ContainsFunc(lengths, func(k int) bool { return k != n }) {
		return false
	}

	in := func(v []int32, limit int) bool {
		return !slices.ContainsFunc(v, func(x int32) bool { return x < None || int(x) >= limit })
	}
	ok := l.Stages >= 0 && l.Stages <= MaxRows && in(l.Node, len(l.Nodes)) && in(l.Role, len(l.Roles)) && in(l.Replica, len(l.Replicas)) && len(l.Partial) == len(l.Replicas)
	rows := func(v []int32) bool { return in(v, n) && !slices.Contains(v, None) }
	member := func(v, of []int32, k int) bool {
		return rows(v) && !slices.ContainsFunc(v, func(r int32) bool { return of[r] != int32(k) || l.Role[r] < 0 })
	}
	for g := range l.Roles {
		ok = ok && member(l.Roles[g].Rows, l.Role, g) && l.Roles[g].Stage >= 0 && l.Roles[g].Stage < max(1, l.Stages)
	}

	for q, v := range l.Replicas {
		ok = ok && member(v, l.Replica, q)
	}

	for i := range l.Groups {
		ok = ok && rows(l.Groups[i].Rows)
	}

	for r, p := range l.Present {
		ok = ok && (!p || l.Role[r] >= 0 && l.Replica[r] >= 0 && l.Node[r] >= 0)
	}

	return ok
}
