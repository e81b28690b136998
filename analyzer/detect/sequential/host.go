package sequential

import "github.com/laggard-dev/laggard/analyzer/detect/robust"

// Hosts of two models differ by some percent for good. Then units lie so far apart that one which is slow for another reason
// hardly stands out, but the units of one host are of one model: a unit is compared with those as well. Not of what holds waits
// that no range records: there the units of a host are not alike.

// hostUnits of a host, itself included, are enough to compare a unit with the others.
const hostUnits = 4

// findHosts lists the units of each unit's node.
func (t *Test) findHosts() {
	on := map[int32][]int32{}
	for r, n := range t.Node {
		if n >= 0 && t.role[r] >= 0 {
			on[n] = append(on[n], int32(r))
		}
	}

	t.host = make([][]int32, t.n)
	for r, n := range t.Node {
		if units := on[n]; !t.Habits && n >= 0 && len(units) >= hostUnits {
			t.host[r] = units
		}
	}
}

// beside is the middle of the last windows of the other units of unit r's host, NaN where too few are known.
func (t *Test) beside(r int) float32 {
	t.buf2 = t.buf2[:0]
	for _, p := range t.host[r] {
		if x := t.mid[p]; int(p) != r && x == x {
			t.buf2 = append(t.buf2, x)
		}
	}

	if len(t.buf2) < hostUnits-1 {
		return robust.NaN
	}

	return robust.Median(t.buf2)
}
