// Package residual takes out of what a rank measured all that is not its own: what its
// peers take as well, what its tokens explain, what it shares with those that work on the
// same micro-batches or the same expert, and what it waited for others inside its forward
// pass; a backward pass that holds such waits is left out whole. What is left, a logarithm,
// is tested for slowness.
//
// Invariant: only what the steps before support is removed; who is slow, or waited for
// one who is, teaches nothing. Caveat: a rank whose mates have no records keeps the noise
// of its work; how much that is, is told beside (left).
package residual

import (
	"github.com/laggard-dev/laggard/analyzer/detect/robust"
	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
	"github.com/laggard-dev/laggard/analyzer/frame"
)

// Reference compares each rank with its peers, those of its role: with the median of
// the others in roles of four or more, the fastest of the others in those of two
// or three, NaN without peers. The size of the role decides, not who is there in
// a step: a reference that changes its kind from step to step looks like slowness. NaN
// means not measured.
type Reference struct {
	roles []frame.Role
	buf   []float32
	idx   []int32
	// Middle is the median of each role in the last call of Relative, NaN where none.
	Middle []float32
}

// NewReference returns the reference of the ranks of a layout.
func NewReference(l *frame.Layout) *Reference {
	return &Reference{roles: l.Roles, Middle: make([]float32, len(l.Roles))}
}

// oneRole is the reference of n units that all do the same work.
func oneRole(n int) *Reference {
	rows := make([]int32, n)
	for i := range rows {
		rows[i] = int32(i)
	}

	return &Reference{roles: []frame.Role{{Rows: rows, Size: n}}, Middle: make([]float32, 1)}
}

// Relative fills out with how far each of v is from its reference.
func (r *Reference) Relative(v, out []float32) {
	for i := range out {
		out[i] = robust.NaN
	}

	for g := range r.roles {
		r.buf, r.idx = r.buf[:0], r.idx[:0]
		for _, k := range r.roles[g].Rows {
			if x := v[k]; x == x {
				r.buf = append(r.buf, x)
				r.idx = append(r.idx, k)
			}
		}

		n := len(r.buf)
		switch {
		case n == 0:
			r.Middle[g] = robust.NaN
		case n == 1:
			r.Middle[g] = r.buf[0]
		case n == 2 && r.roles[g].Size >= threshold.MedianPeers:
			r.Middle[g] = (r.buf[0] + r.buf[1]) / 2 // too many are missing to compare
		case n < threshold.LargeRole:
			r.small(g, v, out)
		default:
			m := robust.LowerMedian(r.buf) // half of a role on one node may be slow
			r.Middle[g] = m
			for _, k := range r.idx {
				out[k] = v[k] - m
			}
		}
	}
}

// small serves roles in which leaving one out moves the reference.
func (r *Reference) small(g int, v, out []float32) {
	n := len(r.buf)
	robust.Sort(r.buf)
	r.Middle[g] = (r.buf[(n-1)/2] + r.buf[n/2]) / 2
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
		if r.roles[g].Size < threshold.MedianPeers {
			out[k] = x - at(0)
			continue
		}

		m := n - 1
		out[k] = x - (at((m-1)/2)+at(m/2))/2
	}
}
