package residual

import "github.com/laggard-dev/laggard/analyzer/detect/state"

// State is what a later step asks of earlier ones.
func (s *Sharing) State() state.Fields {
	return state.Fields{
		"used": &s.Used, "common": &s.Common, "columns": state.Counts(&s.columns), "active": &s.active, "slopes": &s.slopes,
		"sums": &s.sums, "mean": &s.mean,
		"wmean": &s.wmean, "seen": &s.seen, "told": &s.told, "popular": &s.popular,
	}
}

// State is what a later step asks of earlier ones.
func (c *Covariate) State() state.Fields {
	return state.Fields{"sums": &c.sums, "columns": state.Counts(&c.columns)}
}

// State is what a later step asks of earlier ones.
func (in *Waits) State() state.Fields {
	return state.Fields{
		"usual_wait": &in.usual[0], "usual_time": &in.usual[1], "past_wait": &in.past[0], "past_time": &in.past[1],
		"seen": &in.seen, "step": state.Counts(&in.step),
	}
}

// State is what a later step asks of earlier ones.
func (b *Backward) State() state.Fields {
	return state.Fields{"passes": &b.passes, "columns": state.Counts(&b.columns), "waiting": &b.Waiting}
}

// State is what a later step asks of earlier ones.
func (x *Exposure) State() state.Fields {
	f := state.Fields{"calls": &x.Calls, "lacking": &x.Lacking, "window": &x.window, "window_steps": &x.steps}
	for i := range x.kinds {
		k, name := &x.kinds[i], blocking[i][0].String()
		f["columns_"+name], f["passes_"+name], f["net_"+name], f["calls_"+name], f["waits_"+name] = state.Counts(&k.Columns), &k.Passes, &k.Net, &k.Calls, &k.Waits
	}

	return f
}
