// Package simulate makes labelled synthetic training jobs: per-step rows, or
// files as a real job leaves them, with the truth beside.
//
// It plays a synchronous training step as events: every rank computes, sends,
// receives and meets others in collectives that end together; whoever comes
// early waits. Nothing of a wait is drawn: a fault, a long sequence, a slow link
// only change how long somebody's own work or transfer takes, and the waits of
// all others follow from who waits for whom.
//
// The truth says who is slow since when and for what cause, whether anybody could
// tell from what is recorded (one peer and hardly a past: nobody can), and what each
// culprit costs: the job is played again without it, by the same chance, and the
// recorded steps from its onset on are compared. A fault that never begins is not in it.
//
// Invariant: the same Config (its Seed included) gives the same job, byte for
// byte. What concerns only the record of the job (clocks, losses) is drawn from
// other sources of chance than the job itself: with and without it the same job ran.
//
// The order in which chance is drawn is part of that: a draw more, or in another place,
// makes other jobs of all seeds.
//
// Caveats: transfers don't slow computing down when they overlap; a send doesn't
// block its sender; hosts' CPUs are not modelled beyond gaps between operations.
// The package shares no code and no constant with the detector that is measured
// with it.
package simulate

import (
	"math/rand/v2"

	"github.com/laggard-dev/laggard/schemas/row"
)

// Run simulates cfg and hands its rows over in the order they are finished; they are used again
// when take returns. Memory is that of one step.
func Run(cfg Config, take func(*row.Rows)) (Truth, error) {
	return run(cfg, take, nil)
}

// Rows simulates cfg and returns all its rows.
func Rows(cfg Config) (row.Rows, Truth, error) {
	var rows row.Rows
	t, err := Run(cfg, rows.Add)
	return rows, t, err
}

// run plays the attempts of the job one after the other. take takes its rows, rec its ranges; nil
// for who wants none.
func run(cfg Config, take func(*row.Rows), rec *files) (Truth, error) {
	j, err := ready(&cfg, take, rec)
	if err != nil {
		return Truth{}, err
	}

	if err := j.play(); err != nil {
		return Truth{}, err
	}

	return j.truth(), nil
}

// ready returns a job that can be played. It completes cfg.
func ready(cfg *Config, take func(*row.Rows), rec *files) (*job, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}

	unit, err := calibrate(*cfg)
	if err != nil {
		return nil, err
	}

	j := newJob(cfg, take, rec)
	j.unit = unit
	return j, nil
}

// source is one of several sources of chance of a seed: draws for one purpose don't move those
// for another. The factor is 2^64 divided by the golden ratio, which spreads small numbers.
func source(seed, purpose uint64) *rand.Rand {
	return rand.New(rand.NewPCG(seed, purpose*0x9e3779b97f4a7c15+1))
}

// What chance is drawn for.
const (
	forPhysics   = iota + 1 // what happens
	forClocks               // what hosts' clocks show
	forLosses               // what does not arrive
	forPlacement            // where a restart puts ranks
	forFaults               // when bursts come
	forScenario             // what the configuration is
)

// calibrate returns the length of the model's unit such that a quiet step of the
// job takes Model.Seconds: it plays two quiet steps with a unit of 1. All of a quiet step is in
// proportion to the unit but the first loopNs.
func calibrate(cfg Config) (float64, error) {
	quiet := cfg
	quiet.Steps, quiet.Noise, quiet.Work, quiet.Network = 2, Noise{DriftSteps: 1, HeavyIndex: 1}, Work{Elasticity: cfg.Work.Elasticity}, Network{}
	quiet.Faults, quiet.Restarts, quiet.Devices, quiet.Replay = nil, nil, nil, nil
	quiet.Checkpoint.Every, quiet.Pause.Every, quiet.Loss = 0, 0, Loss{Run: 1}
	quiet.Loader.SD = 0
	j := newJob(&quiet, nil, nil)
	j.unit = 1
	if err := j.play(); err != nil {
		return 0, err
	}

	return cfg.Model.Seconds / (j.elapsed / 2 / 1e9), nil
}
