package segment

import "math"

// positions holds the next sequence number of each ring. Rings are numbered from 1
// by thread, so most numbers are small: those need no map on the way of a record.
type positions struct {
	small [64]uint64 // by ring; 0 = none seen
	large map[uint32]uint64
}

// set notes that the record seq of a ring was taken. Ring 0 is no ring.
func (p *positions) set(ring uint32, seq uint64) {
	if ring == 0 || seq == math.MaxUint64 {
		return
	}

	if ring < uint32(len(p.small)) {
		p.small[ring] = max(p.small[ring], seq+1)
		return
	}

	if p.large == nil {
		p.large = make(map[uint32]uint64)
	}

	p.large[ring] = max(p.large[ring], seq+1)
}

func (p *positions) copy(q *positions) {
	p.small = q.small
	for ring, next := range q.large {
		if p.large == nil {
			p.large = make(map[uint32]uint64, len(q.large))
		}

		p.large[ring] = next
	}
}

func (p *positions) all() map[uint32]uint64 {
	m := make(map[uint32]uint64, len(p.large)+8)
	for ring, next := range p.small {
		if next > 0 {
			m[uint32(ring)] = next
		}
	}

	for ring, next := range p.large {
		m[ring] = next
	}

	return m
}
