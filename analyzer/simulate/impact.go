package simulate

import (
	"slices"

	"github.com/laggard-dev/laggard/schemas/verdict"
)

// sureImpact is the true impact above which a job must be called degraded: three
// times the command's default minimum.
const sureImpact = 0.03

// Weigh measures what the faults cost: it plays the job again without each culprit,
// and without all of them, in the same noise. Then it says which exit codes are
// right: near the line between harmless and harmful either is.
func (t *Truth) Weigh(cfg Config) error {
	if len(t.Culprits) == 0 {
		return nil
	}

	with, err := lengths(cfg, nil)
	if err != nil {
		return err
	}

	// Every rank's noise is the same in both plays, so the difference is the fault's alone.
	var all []int
	first := len(with)
	for i := range t.Culprits {
		c := &t.Culprits[i]
		better, err := lengths(cfg, c.faults)
		if err != nil {
			return err
		}

		c.Impact = saved(with[c.first:c.last], better[c.first:c.last])
		all, first = append(all, c.faults...), min(first, c.first)
	}

	t.Impact = t.Culprits[0].Impact
	if len(t.Culprits) > 1 || t.Culprits[0].UntilStep > 0 {
		better, err := lengths(cfg, all)
		if err != nil {
			return err
		}

		t.Impact = saved(with[first:], better[first:])
	}

	if t.Impact < sureImpact && slices.Equal(t.ExpectExit, []int{verdict.ExitDegraded}) {
		t.ExpectExit = []int{verdict.ExitHealthy, verdict.ExitDegraded}
	}

	return nil
}

// saved is the share of the first steps' time that the second ones do without.
func saved(with, without []float64) float64 {
	a, b := 0.0, 0.0
	for k := range with {
		a, b = a+with[k], b+without[k]
	}

	if a <= 0 {
		return 0
	}

	return max(0, 1-b/a)
}

// lengths returns the recorded length of every step of the job, in the mean of its
// ranks, ns, with some of its faults left out.
func lengths(cfg Config, without []int) ([]float64, error) {
	j, err := ready(&cfg, nil, nil)
	if err != nil {
		return nil, err
	}

	j.lengths = make([]float64, 0, j.cfg.Steps)
	for _, k := range without {
		j.effects[k].out = true
	}

	err = j.play()
	return j.lengths, err
}
