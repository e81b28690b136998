package sequential

import (
	"math"
	"slices"

	"github.com/laggard-dev/laggard/analyzer/detect/robust"
	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
)

// slowSteps counts the single slow steps of each unit, by size: an intermittent fault
// is never slow for long, but slow far more often than its peers. What it has seen is
// forgotten over spikeMemory steps.
type slowSteps struct {
	Looked   []float32            // steps looked at
	Slow     []float32            // of them slow
	Episodes []float32            // times that slow steps began
	Sum      []float32            // of the residuals of slow steps
	Size     [slowSizes][]float32 // slow steps by size, at most spikeLength an episode
	Run      []uint8              // slow steps of the episode that lasts
	Pause    []uint8              // steps since the last of them
	Longest  []float32            // and at most
	First    []int64              // label of the first
	Last     []int64              // and of the last slow step
}

func newSlowSteps(n int) *slowSteps {
	f32 := func() []float32 { return make([]float32, n) }
	s := &slowSteps{Looked: f32(), Slow: f32(), Episodes: f32(), Sum: f32(), Run: make([]uint8, n), Pause: make([]uint8, n), Longest: f32(), First: make([]int64, n), Last: make([]int64, n)}
	for b := range s.Size {
		s.Size[b] = f32()
	}

	return s
}

// lists are those that forget.
func (s *slowSteps) lists() [][]float32 {
	return append([][]float32{s.Looked, s.Slow, s.Episodes, s.Sum, s.Longest}, s.Size[:]...)
}

// forget makes unit r new.
func (s *slowSteps) forget(r int) {
	for _, v := range s.lists() {
		v[r] = 0
	}

	s.Run[r], s.Pause[r] = 0, 0
}

// fade forgets what evaluateEvery steps make.
func (s *slowSteps) fade() {
	keep := float32(math.Pow(1-1.0/spikeMemory, threshold.EvaluateEvery))
	for _, list := range s.lists() {
		for r := range list {
			list[r] *= keep
		}
	}
}

// add counts one step of unit r: its residual x, slow or not.
func (s *slowSteps) add(r int, x float32, slow bool, label int64) {
	s.Looked[r]++
	if !slow {
		if s.Pause[r]++; s.Pause[r] >= spikePause {
			s.Run[r], s.Pause[r] = 0, 0
		}

		return
	}

	s.Pause[r] = 0
	s.Slow[r]++
	s.Sum[r] += x
	if s.Run[r] == 0 {
		s.Episodes[r]++
		if s.Episodes[r] < 1.5 {
			s.First[r] = label
		}
	}

	if s.Run[r] < math.MaxUint8 {
		s.Run[r]++
	}

	s.Longest[r] = max(s.Longest[r], float32(s.Run[r]))
	if s.Run[r] <= spikeLength {
		b := 0
		for b+1 < slowSizes && x >= sizeFrom[b+1] {
			b++
		}

		s.Size[b][r]++
	}

	s.Last[r] = label
}

// spike counts a step of unit r that nobody convicted: x is its residual, d how far that
// is above its past. A slow step stands out of the last ones as well: who is above a past
// that it has not learned from is not slow again and again. Where others explain a slow step it is
// none of its own. A unit of which nothing can be told in ordinary steps either (mates that it may wait
// for are not recorded) is not looked at, so that it is nobody's healthy peer.
func (t *Test) spike(r int, x, d float32, label int64, leads []bool) {
	high := x > SpikeEffect
	if leads != nil && !leads[r] && !high {
		return
	}

	slow := t.warm[r] == 0 && d > SpikeEffect && (leads == nil || leads[r] && high)
	if slow { // most steps are not
		least := max(SpikeEffect, spikeSigmas*t.usualNoise(r))
		slow = d > least && x-robust.Median(t.Values(r, threshold.Window)) > least
	}

	t.slowly.add(r, d, slow, label)
}

// Intermittent reports whether unit r has far more slow steps than its peers: more than
// chance makes of their rates, size by size, and it loses clearly more by them than nearly all on other
// nodes, for pauses are not spread evenly over ranks.
func (t *Test) Intermittent(r int) bool {
	s := t.slowly
	n := float64(s.Looked[r])
	if n < 2*threshold.Window || s.Episodes[r] < spikeEpisodes || float64(s.Slow[r]) < spikeRate*n || t.phase[r] == degraded && t.lasts(r) {
		return false
	}

	peers := t.elsewhere(r)
	if t.slowEvidence(r, peers) < math.Log(float64(t.Together)*n/spikeOdds) {
		return false
	}

	t.buf = t.buf[:0]
	for _, p := range peers {
		t.buf = append(t.buf, s.Sum[p]/s.Looked[p])
	}

	return len(t.buf) == 0 || float64(s.Sum[r]) >= spikeHigh*n*float64(robust.Kth(t.buf, len(t.buf)*9/10))
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
		if p == r || t.slowly.Looked[p] < threshold.Window {
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
		if t.slowly.Slow[p] < spikeRate*t.slowly.Looked[p] {
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
	s := t.slowly
	slices.SortFunc(peers, func(a, b int) int {
		return int(math.Copysign(1, float64(s.Slow[a]/s.Looked[a]-s.Slow[b]/s.Looked[b])))
	})
	peers = peers[:len(peers)-len(peers)/10] // another one of the kind may be among them
	var looked, slow, episodes float64
	for _, p := range peers {
		looked, slow, episodes = looked+float64(s.Looked[p]), slow+float64(s.Slow[p]), episodes+float64(s.Episodes[p])
	}

	sum, once := 0.0, 0.0
	if s.Longest[r] > spikeLength {
		once = spikeLength
	}

	for b := slowSizes - 1; b >= 0; b-- {
		seen := 0.0
		for _, p := range peers {
			seen += float64(s.Size[b][p])
		}

		left := max(0, float64(s.Size[b][r])-once)
		once -= float64(s.Size[b][r]) - left
		k, mean := left, float64(s.Looked[r])*max(leastRate[b], (seen+1)/max(1, looked))
		if k > mean {
			sum += k*math.Log(k/mean) - (k - mean)
		}
	}

	if episodes >= spikeEpisodes {
		sum /= max(1, slow/episodes)
	}

	return sum
}

// slowShare is the share of slow steps of unit r's peers.
func (t *Test) slowShare(r int) float64 {
	var slow, looked float64
	for _, p := range t.elsewhere(r) {
		slow, looked = slow+float64(t.slowly.Slow[p]), looked+float64(t.slowly.Looked[p])
	}

	return slow / max(1, looked)
}

// Spikes are a unit's single slow steps.
type Spikes struct {
	Sum         float64 // of their residuals
	Share, Mean float64 // share of its steps, and mean residual
	Peers       float64 // share of its peers' steps
	First, Last int64   // steps
}

// Spikes is the single slow steps of unit r.
func (t *Test) Spikes(r int) Spikes {
	s := t.slowly
	return Spikes{Sum: float64(s.Sum[r]), Share: float64(s.Slow[r] / s.Looked[r]), Mean: float64(s.Sum[r] / s.Slow[r]), Peers: t.slowShare(r),
		First: s.First[r], Last: s.Last[r]}
}
