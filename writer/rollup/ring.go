package rollup

import "slices"

// maxRings bounds the rings of one incarnation that are followed: a ring is a writing
// thread, and a trainer has a few. maxHoles bounds the gaps of one ring. Lines are hostile
// input, and together the two hold 384 KiB at most.
const (
	maxRings = 256
	maxHoles = 64
)

// ring is what was read of one ring of an incarnation.
type ring struct {
	Mark int64  `json:"mark"` // latest host end of its records
	Next uint64 `json:"next"` // one more than the highest sequence number
	// Holes are the numbers below Next that did not come (yet), oldest first. Below
	// Low nothing is known any more.
	Holes []hole `json:"holes,omitempty"`
	Low   uint64 `json:"low,omitempty"`
}

// hole is the numbers From to To, inclusive. Of a head nothing says that it was
// ever meant to be here: its segments may have been aged away.
type hole struct {
	From, To uint64
	Head     bool `json:",omitempty"`
}

// newRing returns a ring whose first record has number seq.
func newRing(seq uint64) *ring {
	r := &ring{Next: seq}
	if seq > 0 {
		r.Holes = []hole{{From: 0, To: seq - 1, Head: true}}
	}

	return r
}

// take counts one number. dup says that it came before; gaps is by how much the
// count of skipped numbers changes.
func (r *ring) take(seq uint64) (dup bool, gaps int64) {
	if seq >= r.Next {
		if seq > r.Next {
			r.Holes = append(r.Holes, hole{From: r.Next, To: seq - 1})
			gaps = int64(min(seq-r.Next, 1<<62))
			if len(r.Holes) > maxHoles {
				r.Low = r.Holes[0].To + 1
				r.Holes = slices.Delete(r.Holes, 0, 1)
			}
		}

		r.Next = seq + 1
		return false, gaps
	}

	if seq < r.Low {
		return false, 0
	}

	for i, h := range r.Holes {
		if seq < h.From || seq > h.To {
			continue
		}

		parts := make([]hole, 0, 2)
		if h.From < seq {
			parts = append(parts, hole{h.From, seq - 1, h.Head})
		}

		if seq < h.To {
			parts = append(parts, hole{seq + 1, h.To, h.Head})
		}

		r.Holes = slices.Replace(r.Holes, i, i+1, parts...)
		if h.Head {
			return false, 0
		}

		return false, -1
	}

	return true, 0
}
