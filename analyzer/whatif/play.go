package whatif

// duration gives the own time of an operation of the rank with index i.
type duration func(i int, o *op) int64

func recordedOwn(_ int, o *op) int64 { return o.own }

// player plays a step's graph. It is reused for many plays of one step.
type player struct {
	s       *step
	at      []int     // next slot, per rank index
	now     []int64   // ns since the step's start, per rank index
	arrived []int     // members that came, per meeting
	latest  []int64   // last arrival, per meeting
	waiting [][]int32 // rank indexes that wait for a meeting
	entered []bool    // the rank has arrived at all meetings of its slot
	ready   []int32
}

func newPlayer(s *step) *player {
	n, m := len(s.ranks), len(s.meetings)
	return &player{
		s: s, at: make([]int, n), now: make([]int64, n), entered: make([]bool, n),
		arrived: make([]int, m), latest: make([]int64, m), waiting: make([][]int32, m),
	}
}

// play returns the time until the last rank is done, ns, and whether every rank
// could finish.
func (p *player) play(d duration) (int64, bool) {
	clear(p.at)
	clear(p.now)
	clear(p.entered)
	clear(p.arrived)
	clear(p.latest)
	for i := range p.waiting {
		p.waiting[i] = p.waiting[i][:0]
	}
	p.ready = p.ready[:0]
	for i := range p.s.ranks {
		p.ready = append(p.ready, int32(i))
	}
	for len(p.ready) > 0 {
		i := int(p.ready[len(p.ready)-1])
		p.ready = p.ready[:len(p.ready)-1]
		p.advance(i, d)
	}
	var end int64
	for i, t := range p.now {
		if p.at[i] < len(p.s.slots[i]) {
			return 0, false
		}
		end = max(end, t)
	}
	return end, true
}

// advance plays the slots of rank index i until it has to wait or is done.
func (p *player) advance(i int, d duration) {
	slots := p.s.slots[i]
	for p.at[i] < len(slots) {
		ops := slots[p.at[i]].ops
		if ops[0].compute() {
			p.now[i] += d(i, &ops[0])
			p.at[i]++
			continue
		}
		if !p.entered[i] {
			p.enter(i, ops)
		}
		end := p.now[i]
		for k := range ops {
			o := &ops[k]
			if o.part == begins {
				continue
			}
			if p.arrived[o.meet] < p.s.meetings[o.meet].members {
				p.waiting[o.meet] = append(p.waiting[o.meet], int32(i))
				return
			}
			end = max(end, p.latest[o.meet]+d(i, o))
		}
		p.now[i] = end
		p.entered[i] = false
		p.at[i]++
	}
}

// enter lets rank index i arrive at the meetings of its slot and wakes who waited
// for it.
func (p *player) enter(i int, ops []op) {
	p.entered[i] = true
	for k := range ops {
		if ops[k].part == awaits {
			continue
		}
		m := ops[k].meet
		p.arrived[m]++
		p.latest[m] = max(p.latest[m], p.now[i])
		if p.arrived[m] == p.s.meetings[m].members {
			p.ready = append(p.ready, p.waiting[m]...)
			p.waiting[m] = p.waiting[m][:0]
		}
	}
}
