package whatif

// phase is where in its step a rank computes: between which two of its meetings.
type phase struct {
	rank, at int32
}

// delayed reports whether an operation is what a slow host delays.
func delayed(o *op) bool { return o.verb == computes && o.class != forward && o.class != loading }

// delays returns how many times as long as its peers' the compute of a rank on a slow host
// takes in each phase, beside forward passes and loading: medians over the steps. nil is
// none.
func (r *replay) delays(repairs []Repair) map[phase]float64 {
	slow := map[int]bool{}
	for _, p := range repairs {
		for _, rank := range p.Ranks {
			if p.Host {
				slow[rank] = true
			}
		}
	}

	if len(slow) == 0 {
		return nil
	}

	times := map[phase][]float64{}
	for _, s := range r.steps {
		sums := map[phase]int64{}
		for i := range s.ops {
			if o := &s.ops[i]; delayed(o) {
				sums[phase{o.rank, o.phase}] += o.own
			}
		}

		for at, x := range sums {
			times[at] = append(times[at], float64(x))
		}
	}

	peers := map[phase][]float64{} // by stage instead of rank
	stage := func(p phase) phase { return phase{int32(r.stage[p.rank]), p.at} }
	for p, x := range times {
		if !slow[r.ranks[p.rank]] {
			peers[stage(p)] = append(peers[stage(p)], median(x))
		}
	}

	out := map[phase]float64{}
	for p, x := range times {
		if usual := median(peers[stage(p)]); slow[r.ranks[p.rank]] && usual > 0 {
			out[p] = max(1, median(x)/usual)
		}
	}

	return out
}
