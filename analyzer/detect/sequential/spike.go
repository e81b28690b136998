package sequential

import (
	"math"
	"slices"

	"github.com/laggard-dev/laggard/analyzer/detect/robust"
	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
)

// Spikes counts the single slow steps of a unit, by size: an intermittent fault
// is never slow for long, but slow far more often than its peers. What it has seen is
// forgotten over spikeMemory steps.
type Spikes struct {
	Looked   float32            // steps looked at
	Slow     float32            // of them slow
	Episodes float32            // times that slow steps began
	Sum      float32            // of the residuals of slow steps
	Unled    float32            // of the residuals of steps in which it is slow and nobody can be told to be slow himself
	Size     [slowSizes]float32 // slow steps by size, at most spikeLength an episode
	Run      uint8              // slow steps of the episode that lasts
	Pause    uint8              // steps since the last of them, up to spikePause
	Age      uint8              // steps since there were so many
	Longest  float32            // and at most
	First    int64              // label of the first
	Last     int64              // and of the last slow step
}

// Share is the share of the unit's steps that are slow.
func (s *Spikes) Share() float64 { return float64(s.Slow / s.Looked) }

// Mean is the mean residual of its slow steps.
func (s *Spikes) Mean() float64 { return float64(s.Sum / s.Slow) }

// fade leaves that share of what was seen.
func (s *Spikes) fade(keep float32) {
	s.Looked *= keep
	s.Slow *= keep
	s.Episodes *= keep
	s.Sum *= keep
	s.Unled *= keep
	s.Longest *= keep
	for b := range s.Size {
		s.Size[b] *= keep
	}
}

// add counts one step: its residual x, whether it is slow by itself or ordinary. Of what is neither, as all that is
// slow for long, nothing begins or ends.
func (s *Spikes) add(x float32, slow, ordinary bool, label int64) {
	s.Looked++
	s.Age = min(s.Age+1, transientSteps)
	if !slow && !ordinary {
		return
	}

	if !slow {
		s.Pause++
		if s.Age == transientSteps {
			s.Run = 0
		}

		if s.Pause >= spikePause {
			s.Run, s.Pause, s.Age = 0, 0, 0
		}

		return
	}

	s.Pause = 0
	s.Slow++
	s.Sum += x
	if s.Run == 0 {
		s.Episodes++
		if s.Episodes < 1.5 {
			s.First = label
		}
	}

	if s.Run < math.MaxUint8 {
		s.Run++
	}

	s.Longest = max(s.Longest, float32(s.Run))
	if s.Run <= spikeLength {
		b := 0
		for b+1 < slowSizes && x >= sizeFrom[b+1] {
			b++
		}

		s.Size[b]++
	}

	s.Last = label
}

// Spikes is the single slow steps of unit r; read only.
func (t *Test) Spikes(r int) *Spikes { return &t.spikes[r] }

// spike counts a step of unit r that nobody convicted: x is its residual, d how far that
// is above its past. A slow step stands out of the last ones as well: who is above a past
// that it has not learned from is not slow again and again. Where others explain a slow step it is
// none of its own; led is whether any unit can be told to be slow itself. A unit of which nothing can be told
// in ordinary steps either (mates that it may wait for are not recorded) is not looked at, so that it is
// nobody's healthy peer.
func (t *Test) spike(r int, x, d float32, label int64, leads []bool, led bool) {
	high := x > SpikeEffect
	if leads != nil && !leads[r] && !high {
		return
	}

	slow, ordinary := false, d <= SpikeEffect/2
	if !ordinary { // most steps are
		least := max(SpikeEffect, spikeSigmas*t.usualNoise(r))
		ordinary = d <= least/2
		slow = d > least && x-t.between(r, x-d+least) > least && t.warm[r] == 0 && (leads == nil || high)
	}

	if slow && leads != nil && !leads[r] {
		if slow = false; !led {
			t.spikes[r].Unled += d
		}
	}

	t.spikes[r].add(d, slow, ordinary, label)
}

// between is what unit r takes between slow steps, those above that level: the middle of its last ones. Where that is slow
// itself, as of every second step, it is what the best three of ten take, or the unit is slow for good. NaN before any.
func (t *Test) between(r int, slow float32) float32 {
	v := t.Values(r, threshold.Window)
	if len(v) > 0 && robust.Kth(v, len(v)/2) > slow {
		return robust.Kth(v, int((1-threshold.SlowShare)*float64(len(v))))
	}

	return robust.Median(v)
}

// anyLeads reports whether any unit can be told to be slow itself in a step of these residuals.
func anyLeads(e []float32, leads []bool) bool {
	for r, x := range e {
		if x > SpikeEffect && (leads == nil || leads[r]) {
			return true
		}
	}

	return false
}

// Intermittent reports whether unit r has far more slow steps than its peers: more than
// chance makes of their rates, size by size, and it loses clearly more than nearly all on other
// nodes, for pauses are not spread evenly over ranks. That includes what each loses in steps in which nobody
// can be told to be slow himself: a pause on newer hardware hides behind what older hardware takes in any step.
func (t *Test) Intermittent(r int) bool {
	s := &t.spikes[r]
	n := float64(s.Looked)
	if n < 2*threshold.Window || s.Episodes < spikeEpisodes || float64(s.Slow) < spikeRate*n || t.phase[r] == degraded && t.lasts(r) {
		return false
	}

	peers := t.elsewhere(r)
	if t.slowEvidence(r, peers) < math.Log(float64(t.Together)*n/spikeOdds) {
		return false
	}

	t.buf = t.buf[:0]
	for _, p := range peers {
		t.buf = append(t.buf, (t.spikes[p].Sum+t.spikes[p].Unled)/t.spikes[p].Looked)
	}

	return len(t.buf) == 0 || float64(s.Sum+s.Unled) >= spikeHigh*n*float64(robust.Kth(t.buf, len(t.buf)*9/10))
}

// lasts reports whether the steps between bursts of unit r are slow as well.
func (t *Test) lasts(r int) bool {
	return robust.Median(t.Values(r, threshold.Window)) >= t.effect[r]/2
}

// elsewhere is the units that unit r is compared with: those of its stage on other
// nodes, for the whole job's rate says little where one stage is the only one that
// others wait for; of a stage on one node those there, the well ones where half are; else
// everybody.
func (t *Test) elsewhere(r int) []int {
	var away, here, well, all []int
	for p := range t.n {
		if p == r || t.spikes[p].Looked < threshold.Window {
			continue
		}

		all = append(all, p)
		if t.Stage == nil || t.role[r] < 0 || t.role[p] < 0 || t.Stage[t.role[p]] != t.Stage[t.role[r]] {
			continue
		}

		if len(t.Node) != t.n || t.Node[p] != t.Node[r] {
			away = append(away, p)
			continue
		}

		here = append(here, p)
		if t.spikes[p].Slow < spikeRate*t.spikes[p].Looked {
			well = append(well, p)
		}
	}

	switch {
	case len(away) > 0:
		return away
	case len(here) > 0 && 2*len(well) >= len(here):
		return well
	case len(here) > 0:
		return here
	}

	return all
}

// slowEvidence is the logarithm of the likelihood ratio of unit r's slow steps: a Poisson
// rate of its own for each size against the rate of its peers. Bursts as long as the
// peers' are one piece of evidence. What is longer than spikeLength may have come once:
// the longest one, taken to be of the largest steps, is left out.
func (t *Test) slowEvidence(r int, peers []int) float64 {
	s := &t.spikes[r]
	slices.SortFunc(peers, func(a, b int) int {
		return int(math.Copysign(1, float64(t.spikes[a].Slow/t.spikes[a].Looked-t.spikes[b].Slow/t.spikes[b].Looked)))
	})
	peers = peers[:len(peers)-len(peers)/10] // another one of the kind may be among them
	var looked, slow, episodes float64
	for _, p := range peers {
		o := &t.spikes[p]
		looked, slow, episodes = looked+float64(o.Looked), slow+float64(o.Slow), episodes+float64(o.Episodes)
	}

	sum, once := 0.0, 0.0
	if s.Longest > spikeLength {
		once = spikeLength
	}

	for b := slowSizes - 1; b >= 0; b-- {
		seen := 0.0
		for _, p := range peers {
			seen += float64(t.spikes[p].Size[b])
		}

		left := max(0, float64(s.Size[b])-once)
		once -= float64(s.Size[b]) - left
		k, mean := left, float64(s.Looked)*max(leastRate[b], (seen+1)/max(1, looked))
		if k > mean {
			sum += k*math.Log(k/mean) - (k - mean)
		}
	}

	if episodes >= spikeEpisodes {
		sum /= max(1, slow/episodes)
	}

	return sum
}

// PeersSpike is the share of slow steps of unit r's peers.
func (t *Test) PeersSpike(r int) float64 {
	var slow, looked float64
	for _, p := range t.elsewhere(r) {
		slow, looked = slow+float64(t.spikes[p].Slow), looked+float64(t.spikes[p].Looked)
	}

	return slow / max(1, looked)
}
