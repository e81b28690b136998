package level

import (
	"fmt"

	"github.com/laggard-dev/laggard/analyzer/detect/state"
)

// State is what a later step asks of earlier ones.
func (v *Job) State() state.Fields {
	f := state.Fields{"spread_n": &v.SpreadN, "bulk": &v.Bulk, "labels": state.Grows(&v.labels), "first": &v.first}
	for k := range 2 {
		f[fmt.Sprint("sum_", k)], f[fmt.Sprint("usual_", k)], f[fmt.Sprint("sum_n_", k)] = &v.Sum[k], &v.Usual[k], &v.sumN[k]
		f[fmt.Sprint("now_", k)], f[fmt.Sprint("before_", k)] = &v.Now[k], &v.before[k]
	}

	for k := range kinds {
		f[fmt.Sprint("blocks_", k)], f[fmt.Sprint("pending_", k)] = state.Grows(&v.blocks[k]), state.Grows(&v.pending[k])
	}

	return f
}

// State is what a later step asks of earlier ones.
func (s *Loading) State() state.Fields {
	return state.Fields{"n": &s.n, "slow": &s.Slow, "cost": &s.Cost, "top": &s.Top, "total": &s.total}
}
