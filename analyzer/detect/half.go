package detect

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/laggard-dev/laggard/analyzer/detect/robust"
	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// addHalves counts nodes as too many to be bad by themselves that no test of one rank sees: where half of the ranks
// that do some work are slow, their middle is as far from the others as from them. A large job may have two models of
// hardware; a small one where somebody is blamed has its culprit.
func (e *Engine) addHalves(v *verdict.Verdict, common *common) {
	if common.nodes >= smallJob || slices.ContainsFunc(v.Nodes, func(n verdict.Node) bool { return verdict.Blamed(n.State) }) {
		return
	}

	for s, m := range [...]frame.Metric{compute: frame.FP, own: frame.Self} {
		for g := range e.layout.Roles {
			if e.live(m) {
				e.slowHalf(e.hosts(e.layout.Roles[g].Rows, signal(s), m), common.standing)
			}
		}
	}
}

// host is what the quickest rank of a role on one node takes in a signal: what slows a node slows all of it, and by how much noise may change that, in seconds.
type host struct {
	name        string
	time, doubt float64
}

// slowHalf enters those of half of the hosts and more that take longer than the others: by more than hosts of one
// model differ, than noise makes of it, and than costs too little.
func (e *Engine) slowHalf(hosts []host, slow map[string]float64) {
	at, apart := 0, modelSpread
	for i := 1; 2*i <= len(hosts); i++ {
		if x := math.Log(hosts[i].time / hosts[i-1].time); x > apart {
			at, apart = i, x
		}
	}

	if at == 0 || hosts[at].time-hosts[at-1].time < max(e.cfg.MinImpact*e.stepMedian, e.cfg.Alarm*max(hosts[at].doubt, hosts[at-1].doubt)) {
		return
	}

	for _, h := range hosts[at:] {
		slow[h.name] = max(slow[h.name], math.Log(h.time/hosts[at/2].time))
	}
}

// hosts lists the nodes of the rows, the quickest first. What a replica shares counts where it is on one node: of
// several it is work.
func (e *Engine) hosts(rows []int32, s signal, m frame.Metric) []host {
	times, doubts := map[string][]float64{}, map[string]float64{}
	for _, r := range rows {
		x := e.value(int(r), s, threshold.Window)
		if q := e.layout.Replica[r]; q >= 0 && e.singleNode(e.layout.Replicas[q]) >= 0 {
			x = e.recent.Median(m, int(r), threshold.Window)
		}

		if x > 0 {
			n := e.nodeOf(int(r))
			times[n], doubts[n] = append(times[n], x), max(doubts[n], e.doubt(int(r), m))
		}
	}

	var all []host
	for n, x := range times {
		all = append(all, host{n, slices.Min(x), doubts[n]})
	}

	slices.SortFunc(all, func(a, b host) int { return cmp.Or(cmp.Compare(a.time, b.time), cmp.Compare(a.name, b.name)) })
	return all
}

// doubt is how far the middle of a row's last steps may be from what it usually takes, by what they differ: where half of
// the ranks are slow, how ranks differ tells no noise.
func (e *Engine) doubt(r int, m frame.Metric) float64 {
	var v []float32
	for _, cells := range e.recent.Latest(m, threshold.Window) {
		if x := cells[r]; x == x {
			v = append(v, x)
		}
	}

	return robust.Finite(robust.MedianLoss*float64(robust.MAD(v))*math.Sqrt(2/float64(len(v))), 0)
}

// standingWords lists the nodes that are slower than others, too many to be bad by themselves, and by how much at most.
func standingWords(slow map[string]float64) string {
	return fmt.Sprintf("%s: up to %.2f times as long", strings.Join(slices.Sorted(maps.Keys(slow)), ", "), math.Exp(slices.Max(slices.Collect(maps.Values(slow)))))
}
