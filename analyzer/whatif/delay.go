package whatif

// interval is the time of a rank between two collectives, counted from the step's start.
type interval struct {
	rank int
	at   int16
}

// delays says how many times as long as its peers' the intervals of a rank on a slow
// host are, beside forward passes and loading: medians over the steps.
func (r *replay) delays(repairs []Repair) map[interval]float64 {
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
	times := map[interval][]float64{}
	for _, s := range r.steps {
		for i, rank := range s.ranks {
			sum := map[int16]float64{}
			for _, x := range s.slots[i] {
				if o := &x.ops[0]; o.compute() && o.class != forward && o.class != loading {
					sum[o.interval] += float64(o.own)
				}
			}
			for at, x := range sum {
				times[interval{rank, at}] = append(times[interval{rank, at}], x)
			}
		}
	}
	type place struct {
		stage int
		at    int16
	}
	peers := map[place][]float64{}
	for k, v := range times {
		if !slow[k.rank] {
			p := place{r.layout.Stage[k.rank], k.at}
			peers[p] = append(peers[p], median(v))
		}
	}
	out := map[interval]float64{}
	for k, v := range times {
		if usual := peers[place{r.layout.Stage[k.rank], k.at}]; slow[k.rank] && len(usual) > 0 && median(usual) > 0 {
			out[k] = max(1, median(v)/median(usual))
		}
	}
	return out
}
