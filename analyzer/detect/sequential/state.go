package sequential

import (
	"fmt"

	"github.com/laggard-dev/laggard/analyzer/detect/state"
)

// Check holds that a unit without a role is suspected of nothing: nobody is its peer.
func (t *Test) Check() error {
	for u, g := range t.role {
		if g < 0 && (t.phase[u] != ok || t.passes[u] > 0 || t.lanePasses[u] > 0) {
			return fmt.Errorf("unit %d has no role", u)
		}
	}

	return nil
}

// State is what a later step asks of earlier ones.
func (t *Test) State() state.Fields {
	f := state.Fields{
		"count": state.Counts(&t.count), "labels": &t.labels, "ring": &t.ring, "blocks": &t.blocks,
		"block": state.Counts(&t.block), "orphan": &t.Left, "load": &t.Load, "mu": &t.mu, "dev": &t.dev, "prev": &t.prev, "base": &t.base, "base_n": &t.baseN,
		"creep": &t.creep, "block_sd": &t.blockSD, "skew": &t.skew, "climb": &t.climb, "fall": &t.fall, "phase": &t.phase,
		"passes": &t.passes, "lane_passes": &t.lanePasses, "slow": &t.slow, "accused": &t.accused, "warm": &t.warm, "warmed": &t.warmed, "moved": &t.moved,
		"first": &t.first, "first_label": &t.firstLabel, "since": &t.since, "detected": &t.detected,
		"since_at": &t.sinceAt, "fall_at": &t.fallAt, "until": &t.until, "sum": &t.sum, "sum_n": &t.sumN, "z": &t.z,
		"effect": &t.effect, "mid": &t.mid, "least": &t.least, "sigma": &t.sigma, "sigmas": &t.sigmas, "mid_noise": &t.midNoise,
		"sigma_n": state.Counts(&t.sigmaN), "rho_up": &t.rhoUp, "rho_down": &t.rhoDown, "tau": &t.tau, "tau_host": &t.tauHost, "tau_own": &t.tauOwn,
		"tau_lane": &t.tauLane, "looks": &t.looks, "look_n": state.Counts(&t.lookN), "warming": &t.warming, "spikes": &t.spikes,
	}
	f["lanes"] = &t.laneMean
	return f
}
