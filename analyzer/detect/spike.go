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
// the middle one by chance never, and clearly more than nearly all on other nodes,
// for pauses are not spread evenly over ranks.
func (t *track) intermittent(r int) bool {
	k, n := float64(t.spikes[r]), float64(t.spikeN[r])
	if t.phase[r] != ok || n < 2*window || k < spikeEpisodes || k < spikeRate*n || k < spikeRatio*t.spikeAll*n {
		return false
	}
	if atLeast(k, n, t.spikeAll) > spikeOdds {
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
