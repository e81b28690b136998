package simulate

import "github.com/laggard-dev/laggard/schemas/verdict"

// regularBursts come every 25 steps, or so often that every second or third step is slow, or two of three.
func (d *draw) regularBursts() {
	like := Fault{BurstEvery: 25, BurstSteps: 8}
	if d.turn(3) == 2 {
		kinds := [][2]int{{2, 1}, {3, 1}, {3, 2}}
		kind := kinds[d.c.Seed/3%uint64(len(kinds))]
		like.BurstEvery, like.BurstSteps = kind[0], kind[1]
	}

	d.bursts(like)
}

// bursts makes a fault that comes and goes in 600 steps.
func (d *draw) bursts(like Fault) {
	d.comparable()
	d.c.Steps = 600
	d.compute(d.between(1.4, 2))
	f := &d.c.Faults[0]
	f.BurstEvery, f.BurstShare, f.BurstSteps, f.BurstMost = like.BurstEvery, like.BurstShare, like.BurstSteps, like.BurstMost
	f.From = 20 + d.IntN(30)
	if d.c.Noise.HeavyShare > 0.003 { // else innocents do the same
		d.c.Noise.HeavyShare = 0.003
	}

	d.c.Noise.GCShare = min(d.c.Noise.GCShare, 0.005)
	d.c.Expect.Exit = []int{verdict.ExitHealthy, verdict.ExitDegraded}
}
