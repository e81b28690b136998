package detect

import (
	"github.com/laggard-dev/laggard/analyzer/detect/robust"
	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
)

// reference fills out with v relative to the peers of each role: the median of
// the others in roles of four or more, the fastest of the others in those of two
// or three, NaN without peers. The size of the role decides, not who is there in
// a step: a reference that changes its kind from step to step looks like slowness. v and out have one value a unit; NaN means not measured.
type reference struct {
	roles [][]int32
	sizes []int // of each role, recorded or not
	buf   []float32
	idx   []int32
	// Middle is the median of each role in the last call, NaN where none.
	middle []float32
}

func newReference(roles [][]int32, sizes []int) *reference {
	return &reference{roles: roles, sizes: sizes, middle: make([]float32, len(roles))}
}

func (r *reference) relative(v, out []float32) {
	for i := range out {
		out[i] = robust.NaN
	}

	for g, rows := range r.roles {
		r.buf, r.idx = r.buf[:0], r.idx[:0]
		for _, k := range rows {
			if x := v[k]; x == x {
				r.buf = append(r.buf, x)
				r.idx = append(r.idx, k)
			}
		}

		n := len(r.buf)
		switch {
		case n == 0:
			r.middle[g] = robust.NaN
		case n == 1:
			r.middle[g] = r.buf[0]
		case n == 2 && r.sizes[g] >= threshold.MedianPeers:
			r.middle[g] = (r.buf[0] + r.buf[1]) / 2 // too many are missing to compare
		case n < threshold.LargeRole:
			r.small(g, v, out)
		default:
			m := robust.Median(r.buf)
			r.middle[g] = m
			for _, k := range r.idx {
				out[k] = v[k] - m
			}
		}
	}
}

// small serves roles in which leaving one out moves the reference.
func (r *reference) small(g int, v, out []float32) {
	n := len(r.buf)
	robust.Sort(r.buf)
	r.middle[g] = (r.buf[(n-1)/2] + r.buf[n/2]) / 2
	for _, k := range r.idx {
		x := v[k]
		p := 0
		for r.buf[p] != x {
			p++
		}

		at := func(i int) float32 { // i-th of the others
			if i >= p {
				i++
			}

			return r.buf[i]
		}
		if r.sizes[g] < threshold.MedianPeers {
			out[k] = x - at(0)
			continue
		}

		m := n - 1
		out[k] = x - (at((m-1)/2)+at(m/2))/2
	}
}
