package detect

// spike counts the slow steps of a healthy unit: an intermittent fault is never
// slow for long, but slow far more often than its peers.
func (t *track) spike(r int, d, sig float32, label int64) {
	const keep = 1 - 1.0/spikeMemory
	t.spikes[r] *= keep
	t.spikeSum[r] *= keep
	t.spikeN[r] = t.spikeN[r]*keep + 1
	if t.warm[r] > 0 || d <= max(spikeEffect, spikeSigmas*sig) || t.leads != nil && !t.leads[r] {
		t.inSpike[r] = 0
		return
	}
	t.spikeSum[r] += d
	if t.inSpike[r] == 0 {
		t.spikes[r]++
		if t.spikes[r] < 1.5 {
			t.spikeFirst[r] = label
		}
	}
	t.inSpike[r] = 1
	t.spikeLast[r] = label
}

// intermittent reports whether unit r has far more slow steps than its peers: than
// the middle one by chance never, clearly more than nearly all on other nodes, for
// pauses are not spread evenly over ranks, and more than its share of those of its
// stage, whose pauses show as its own do.
func (t *track) intermittent(r int) bool {
	k, n := float64(t.spikes[r]), float64(t.spikeN[r])
	if t.phase[r] != ok || n < 2*window || k < spikeEpisodes || k < spikeRate*n || k < spikeRatio*t.spikeAll*n {
		return false
	}
	if atLeast(k, n, t.spikeAll) > spikeOdds || !t.aboveStage(r) {
		return false
	}
	t.buf = t.buf[:0]
	for i := range t.n {
		if t.spikeN[i] >= window && (t.node == nil || t.node[i] != t.node[r]) {
			t.buf = append(t.buf, t.spikes[i]/t.spikeN[i])
		}
	}
	if len(t.buf) == 0 {
		return true
	}
	high := max(spikeBase, float64(kth(t.buf, len(t.buf)*9/10)))
	return k >= spikeHigh*high*n && atLeast(k, n, high) <= spikeHighOdds
}

// aboveStage reports whether unit r has more than its share of the slow steps that
// the units of its stage on other nodes and it have together. The whole job's rate
// says little where one stage is the only one that others wait for. A stage on one
// node has but the units there that are well.
func (t *track) aboveStage(r int) bool {
	if t.stage == nil || t.role[r] < 0 {
		return true
	}
	var sum, seen, near, nearSeen float64
	for i, g := range t.role {
		if g < 0 || i == r || t.stage[g] != t.stage[t.role[r]] {
			continue
		}
		x, n := float64(t.spikes[i]), float64(t.spikeN[i])
		switch {
		case t.node[i] != t.node[r]:
			sum, seen = sum+x, seen+n
		case x < spikeRate*n:
			near, nearSeen = near+x, nearSeen+n
		}
	}
	if seen == 0 {
		sum, seen = near, nearSeen
	}
	k, n := float64(t.spikes[r]), float64(t.spikeN[r])
	return seen == 0 || atLeast(k, k+sum, n/(n+seen)) <= spikeStageOdds
}
