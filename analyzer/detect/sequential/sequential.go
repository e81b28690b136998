// Package sequential tests units (ranks, or replicas, or roles) step after step for a
// slowness that lasts.
//
// A Test sees one residual a unit and step: the logarithm of how much longer it took than
// its peers. A winsorised CUSUM raises a suspicion within some steps; a window of 32, tested
// against peers, the others of its host and the unit's own past, confirms it; lanes of 64 to 256 steps find
// what noise hides in a window. Noise, correlation, where the middle of healthy units lies and
// how far apart they are are measured meanwhile. Single slow steps are counted beside it, for
// faults that come and go.
//
// Invariant: what it keeps is bounded per unit, and everything it knows is in its fields,
// so a saved Test goes on as if it had never stopped. Caveat: it knows no causes. Whether
// a slow unit waits for another, or many are slow for one reason, is for who asks it.
package sequential

import (
	"math"

	"github.com/laggard-dev/laggard/analyzer/detect/robust"
	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
)

// Phases of a unit.
const (
	ok uint8 = iota
	suspect
	degraded
)

// Test follows one signal of n units: noise, own baseline, suspicion, windows and states.
type Test struct {
	Units
	n    int
	role []int32   // unit → role, -1 none
	few  []bool    // unit has one or two peers
	host [][]int32 // unit → those of its node, nil where they are few

	count  int       // analysed steps
	labels []int64   // step numbers of the last analysed steps, by count % len
	ring   []float32 // units × window, see window
	blocks []float32 // units × maxBlocks, see kept
	block  []int32   // blocks finished by each unit

	mu, dev, prev   []float32 // robust centre and spread of each unit, last deviation
	base            []float32
	baseN           []uint16
	creep           []float32 // CUSUM of blocks above the own baseline
	climb, fall     []float32 // CUSUMs up (suspicion) and down (recovery)
	phase, passes   []uint8
	lanePasses      []uint8
	slow            []bool  // only a slow lane saw it: single steps can't end it
	accused         []int32 // when it was, in this episode; 0 = not
	warm            []uint8 // warm-up steps still to come
	warmed          []uint8 // warm-up steps that are in the record
	moved           []bool  // the past is that of another place
	first           []int32 // count at the unit's first value, -1 none
	firstLabel      []int64
	since, detected []int64
	sinceAt, fallAt []int32
	until           []int64
	sum             []float32 // of residuals over the slow steps of the episode
	sumN            []uint16
	z, effect       []float32             // of the last test
	mid             []float32             // median of the last window
	laneMean        [][len(lanes)]float32 // of blocks, NaN where too few are there
	spikes          []Spikes

	sigma    []float64 // noise of a step, per role and for all (last): median of sigmas
	sigmas   []float32 // (roles+1) × window: the noise of each of the last steps
	sigmaN   []int32   // steps that each role has in sigmas
	midNoise []float32 // per role: middle of the noise of its units, their own where that is larger
	rhoUp    float64   // lag-1 correlation, numerator and denominator
	rhoDown  float64
	tau      float64            // harmless spread of window medians
	tauHost  float64            // the same within a host
	tauOwn   [len(gaps)]float64 // how far units go from their own past
	tauLane  [len(lanes)]float64
	blockSD  float64                 // noise of a block
	skew     [1 + len(lanes)]float64 // where the middle of ordinary units lies in a window, and in each lane
	looks    []float32               // the last looks at tau, each of tauOwn and tauLane, and tauHost
	lookN    [hostLook + 1]int32

	cfg           *threshold.Config
	least         float32   // MinEffect as a logarithm
	unsure        float64   // how much farther apart healthy units may be than those at hand
	warming       bool      // most units are in their first steps
	Left          []float32 // noise that is left in each unit for want of mates, set before a step
	confirmed     []int32   // units that were confirmed in this step, till somebody asks
	Load          float64   // how much the load of units changes for long, and can't be told; set before a step
	buf, buf2, hl []float32
}

// Units says who is tested: ranks, or replicas, or roles.
type Units struct {
	Roles    [][]int32 // units that do the same work, and are each other's peers
	Sizes    []int     // of each role, recorded or not
	Together int       // units × signals that are tested together; 0 = the units
	Node     []int32   // of each unit, where units are ranks
	Stage    []int32   // of each role, where units are ranks; nil = unknown
	Pure     bool      // every unit is a replica of its own
	Habits   bool      // units may differ for good by any amount
	SelfOnly bool      // units differ for good: each is compared with its own past
}

// hostLook is the place of tauHost among the looks.
const hostLook = 1 + len(gaps) + len(lanes)

// labelMemory is the number of step labels kept: the longest lane.
const labelMemory = threshold.BlockSteps * maxBlocks

// Alike are n units that all do the same work.
func Alike(n int) Units {
	rows := make([]int32, n)
	for i := range rows {
		rows[i] = int32(i)
	}

	return Units{Roles: [][]int32{rows}, Sizes: []int{n}}
}

// New returns a test of n units.
func New(cfg *threshold.Config, n int, u Units) *Test {
	t := &Test{cfg: cfg, n: n, labels: make([]int64, labelMemory)}
	f32 := func() []float32 { return make([]float32, n) }
	places := threshold.BlockSteps * perTurn(n)
	t.ring, t.blocks = make([]float32, places*threshold.Window), make([]float32, places*maxBlocks)
	t.block, t.Left = make([]int32, n), f32()
	t.mu, t.dev, t.prev, t.base, t.creep = f32(), f32(), f32(), f32(), f32()
	t.baseN = make([]uint16, n)
	t.climb, t.fall = f32(), f32()
	t.phase, t.passes, t.lanePasses = make([]uint8, n), make([]uint8, n), make([]uint8, n)
	t.warm, t.warmed, t.slow, t.accused = make([]uint8, n), make([]uint8, n), make([]bool, n), make([]int32, n)
	t.moved = make([]bool, n)
	t.first, t.firstLabel = make([]int32, n), make([]int64, n)
	t.since, t.detected, t.until = make([]int64, n), make([]int64, n), make([]int64, n)
	t.sinceAt, t.fallAt = make([]int32, n), make([]int32, n)
	t.sum, t.sumN = f32(), make([]uint16, n)
	t.z, t.effect, t.mid = f32(), f32(), f32()
	t.laneMean = make([][len(lanes)]float32, n)
	t.spikes = make([]Spikes, n)
	t.looks = make([]float32, len(t.lookN)*usualLooks)
	t.sizeNoise(len(u.Roles)+1, 0)
	for r := range n {
		t.Forget(r)
	}

	t.Assign(u)
	t.tau, t.tauHost = fewTauFloor, fewTauFloor
	for k := range t.tauOwn {
		t.tauOwn[k] = fewOwnFloor
	}

	return t
}

// Assign tells the test who is compared with whom.
func (t *Test) Assign(u Units) {
	t.Units = u
	if u.Together == 0 {
		t.Together = t.n
	}

	t.unsure = unsure(u.Node)
	t.role, t.few = make([]int32, t.n), make([]bool, t.n)
	for r := range t.role {
		t.role[r] = -1
	}

	for g, rows := range u.Roles {
		for _, r := range rows {
			t.role[r] = int32(g)
			t.few[r] = u.Sizes[g] < threshold.MedianPeers
		}
	}

	t.findHosts()

	if len(t.sigma) != len(u.Roles)+1 {
		pooled := 0.0
		if len(t.sigma) > 0 {
			pooled = t.sigma[len(t.sigma)-1]
		}

		t.sizeNoise(len(u.Roles)+1, pooled)
	}
}

// sizeNoise makes room for the noise of n roles, each at s to begin with.
func (t *Test) sizeNoise(n int, s float64) {
	t.sigma, t.sigmaN, t.sigmas = make([]float64, n), make([]int32, n), make([]float32, n*threshold.Window)
	t.midNoise = make([]float32, n)
	for g := range t.sigma {
		if t.sigma[g] = s; s > 0 {
			t.sigmas[g*threshold.Window], t.sigmaN[g] = float32(s), 1
		}
	}
}

// label returns the step number of the analysed step with that count.
func (t *Test) label(at int) int64 {
	at = max(at, t.count-labelMemory, 0)
	return t.labels[at%labelMemory]
}

// Lately is the median residual of unit r's last few steps: it follows a fault that
// ends.
func (t *Test) Lately(r int) float32 {
	if x := robust.Median(t.Values(r, latelySteps)); x == x {
		return x
	}

	return 0
}

// Observe takes the residuals of one step, NaN where a unit has none, tests the units
// whose turn it is, and tells end each episode that ended with it. leads are the units
// of which it can be told whether they are slow in this step; nil = all. One that is not among them
// in a step in which it is not slow tells nothing at all. e is not kept.
func (t *Test) Observe(e []float32, leads []bool, label int64, end func(Episode)) {
	t.confirmed = t.confirmed[:0]
	t.follow(e, leads, label, end)
	for r := range t.n {
		t.evaluate(r)
	}
}

// follow is observe without the tests of windows.
func (t *Test) follow(e []float32, leads []bool, label int64, end func(Episode)) {
	t.labels[t.count%labelMemory] = label
	t.endWarmUp()
	t.noise(e)
	t.rhoUp *= 1 - 1.0/threshold.Memory
	t.rhoDown *= 1 - 1.0/threshold.Memory
	t.least = float32(math.Log1p(t.cfg.MinEffect))
	slot, rho, led := t.count%threshold.Window, t.rho(), anyLeads(e, leads)
	delta := float32(t.cfg.Effect)
	for r, x := range e {
		t.window(r)[slot] = x
		if x != x {
			t.prev[r] = robust.NaN
			continue
		}

		if t.first[r] < 0 {
			t.first[r], t.firstLabel[r] = int32(t.count), label
		}

		sig := t.Noise(r)
		d := x
		if t.baseN[r] >= minBase {
			d -= t.base[r]
		} else if t.SelfOnly {
			d = 0
		}

		warming := t.warm[r] > 0
		if warming {
			t.warm[r]--
			t.warmed[r]++
		}

		t.spike(r, x, d, label, leads, led)
		if t.phase[r] == ok {
			if t.climb[r] > 0 || !(d <= delta/2) { // else it stays at the bottom, however high the noise makes the top
				t.rise(r, d, delta/2, t.height(sig, rho), label, warming)
			}

			if !warming {
				t.learn(r, x, sig)
			}

			continue
		}

		unit := max(delta/2, min(sig, t.effect[r]/2)) // what is half as slow is not over
		if t.phase[r] == degraded && t.effect[r] > 0 {
			unit = min(unit, t.effect[r]/2)
		}

		if ep, ended := t.sink(r, d, unit, label); ended {
			end(ep)
		}
	}

	t.count++
	for r := (threshold.BlockSteps - t.count%threshold.BlockSteps) % threshold.BlockSteps; r < t.n; r += threshold.BlockSteps {
		if t.first[r] >= 0 {
			t.closeBlock(r)
			switch {
			case t.slow[r] && t.laneMean[r][0] < min(delta, t.effect[r])/2:
				end(t.over(r, t.count-1))
			case t.phase[r] == degraded && t.Intermittent(r): // bursts were taken for what lasts
				t.endEpisode(r)
				end(Episode{Unit: r})
			}
		}
	}

	if t.count%threshold.EvaluateEvery == 0 {
		t.spreads()
	}
}

// endWarmUp forgets the noise of the first steps once most units are through them.
func (t *Test) endWarmUp() {
	n := 0
	for _, w := range t.warm {
		if w > 0 {
			n++
		}
	}

	was := t.warming
	if t.warming = 2*n > t.n; was && !t.warming {
		clear(t.sigmaN)
	}
}

// height is how far the CUSUM must climb at that noise. A CUSUM with reference
// delta/2 crosses h in health with a chance of about exp(-2·(delta/2)·h/sigma²) a
// step; correlation makes the noise of a sum larger.
func (t *Test) height(sigma float32, rho float64) float32 {
	half := float32(t.cfg.Effect / 2)
	long := float32((1 + rho) / (1 - rho))
	return max(suspectAt, cusumOdds*sigma*sigma*long/(2*half*half))
}

// rise drives the suspicion of a healthy unit. Where the noise would raise the
// height too far, the CUSUM looks for an effect so much larger that suspectAt is
// high enough again; what is smaller is left to the slow lanes.
func (t *Test) rise(r int, d, unit, at float32, label int64, warming bool) {
	was := t.climb[r]
	if at > cusumHighest {
		unit *= robust.Sqrt(at / suspectAt)
		at = suspectAt
		was = min(was, at-1) // it climbed in smaller units
	}

	most := at / suspectAt // five steps at least
	if t.few[r] && t.baseN[r] >= minBase {
		most *= fewStep
	}

	g := max(0, was+robust.Clip((d-unit)/unit, cusumDown, most))
	if t.few[r] {
		at *= fewPeers
	}

	if warming {
		g = min(g, at-3) // what is slow while it starts must go on being slow
	}

	if was == 0 && g > 0 && t.passes[r] == 0 && t.lanePasses[r] == 0 { // a window knows better
		t.since[r], t.sinceAt[r] = label, int32(t.count)
		t.sum[r], t.sumN[r] = 0, 0
	}

	if g > 0 && d > unit {
		t.sum[r] += d
		t.sumN[r]++
	}

	t.climb[r] = g
	if g >= at {
		t.phase[r], t.detected[r] = suspect, label
		t.begin(r)
		t.passes[r], t.fall[r] = 0, 0
		t.until[r], t.fallAt[r] = label, int32(t.count)
	}
}
