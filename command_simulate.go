package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/laggard-dev/laggard/analyzer/feed"
	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/analyzer/simulate"
	"github.com/laggard-dev/laggard/analyzer/source"
	"github.com/laggard-dev/laggard/schemas/topology"
)

// simulation is what the command was asked for.
type simulation struct {
	scenario, file, format string
	trace, job             string
	seed                   uint64
	ranks, steps           int
}

// simulateCommand makes jobs whose truth is known: what the detector is measured by.
func simulateCommand() *cobra.Command {
	var s simulation
	var list bool
	c := &cobra.Command{
		Use:   "simulate DIR",
		Short: "a labelled synthetic job as files, the truth beside",
		Long: `simulate plays a synchronous training job as events (who waits for whom) and writes what it leaves behind below DIR:
<job>/<rank>/<unix seconds>, topology.json, truth.json and scenario.yaml, from which --scenario-file plays it again.
truth.json says who is slow since when, for what cause, what each one costs (the job played again without it), and whether anybody could tell.
With --trace compute times are those of a recorded job, each rank brought to the pace of its stage, and the scenario's fault comes on top.`,
		Example: `  laggard simulate --list
  laggard simulate --scenario compute-1.10 --seed 7 job7
  laggard analyze job7
  laggard simulate --scenario compute-1.5 --trace job7 --seed 3 replayed`,
		Args: func(c *cobra.Command, args []string) error {
			if list {
				return nil
			}

			return positional("DIR")(c, args)
		},
		RunE: func(c *cobra.Command, args []string) error {
			if list {
				return listScenarios(c)
			}

			cfg, err := s.config(c.Context())
			if err != nil {
				return err
			}

			truth, err := simulate.Write(args[0], cfg)
			if err != nil {
				return err
			}

			return writeJSON(c.OutOrStdout(), " ", truth)
		},
	}
	f := c.Flags()
	f.StringVar(&s.scenario, "scenario", "", "which kind of job, see --list")
	f.StringVar(&s.file, "scenario-file", "", "a scenario as YAML instead")
	f.Uint64Var(&s.seed, "seed", 1, "chance: the same seed gives the same job")
	f.IntVar(&s.ranks, "ranks", 0, "number of ranks, 2 to 10000 (0: drawn)")
	f.IntVar(&s.steps, "steps", 0, "training steps (0: the scenario's)")
	f.StringVar(&s.format, "format", "", "laggard or taskd (default: the scenario's)")
	f.StringVar(&s.trace, "trace", "", "recorded job to replay: SOURCE as analyze takes it, or a labelled archive (.tar.gz)")
	f.StringVar(&s.job, "job", "", "with --trace: which of several jobs")
	f.BoolVar(&list, "list", false, "list the scenarios")
	return c
}

// config is the job to play.
func (s *simulation) config(ctx context.Context) (simulate.Config, error) {
	if s.scenario != "" && s.file != "" {
		return simulate.Config{}, usage("--scenario and --scenario-file exclude each other")
	}

	if s.trace != "" && s.ranks != 0 {
		return simulate.Config{}, usage("--trace and --ranks exclude each other: a recorded job has its own ranks")
	}

	if s.steps < 0 {
		return simulate.Config{}, usage("--steps %d: want 1 or more, or 0 for the scenario's", s.steps)
	}

	if s.format != "" {
		if err := oneOf("unknown format %q", s.format, "laggard", "taskd"); err != nil {
			return simulate.Config{}, err
		}
	}

	if s.scenario == "" && s.file == "" {
		return simulate.Config{}, usage("laggard simulate: --scenario is missing; known: %s", strings.Join(append(simulate.Names(), simulate.Families()...), ", "))
	}

	var t *simulate.Trace
	if s.trace != "" {
		var err error
		if t, err = recordedJob(ctx, s.trace, s.job); err != nil {
			return simulate.Config{}, err
		}
	}

	cfg, err := s.draw(t)
	if err != nil {
		return cfg, err
	}

	if s.steps > 0 {
		cfg.Steps = s.steps
	}

	if s.format != "" {
		cfg.Record.Format = s.format
	}

	return cfg, nil
}

// draw makes the scenario: from a file as it stands, over a recorded job, or by chance from the seed.
func (s *simulation) draw(t *simulate.Trace) (cfg simulate.Config, err error) {
	switch {
	case s.file != "":
		return simulate.Load(s.file, t)
	case t != nil:
		cfg, err = simulate.Replayed(s.scenario, s.seed, t)
	default:
		cfg, err = simulate.Sized(s.scenario, s.seed, s.ranks)
	}

	if err != nil {
		return cfg, usage("%v", err)
	}

	return cfg, nil
}

// recordedJob reads the compute times of a job: a labelled archive, or any source.
func recordedJob(ctx context.Context, spec, job string) (t *simulate.Trace, err error) {
	if strings.HasSuffix(spec, ".tar.gz") || strings.HasSuffix(spec, ".tgz") {
		return simulate.LoadTrace(spec)
	}

	o := source.Options{NoCommunications: true} // of no use: waits are played anew
	src, err := source.Open(ctx, spec, o)
	if err != nil {
		return nil, err
	}

	defer func() { err = errors.Join(err, src.Close()) }()
	var rows feed.History
	info, err := src.Load(ctx, job, rows.Add, o)
	if err != nil {
		return nil, err
	}

	f, err := rows.Frame(info.Topology)
	if err != nil {
		return nil, err
	}

	groups, ranks := lastAttempt(f)
	return simulate.NewTrace(info.Job, groups, ranks)
}

// lastAttempt is what the ranks computed as the job ran last, step by step, and their groups as far as
// they are told. What no range says of backward passes is what the forward ones leave of the rank's own time.
func lastAttempt(f *frame.Frame) (*topology.File, map[int]map[int64]simulate.Passes) {
	groups, ranks := &topology.File{}, map[int]map[int64]simulate.Passes{}
	last := f.Layouts[len(f.Layouts)-1]
	for _, g := range last.Groups {
		x := topology.Group{Name: g.Name, Dim: g.Dim}
		for _, r := range g.Rows {
			x.Ranks = append(x.Ranks, f.Ranks[r])
		}

		if last.From != "inferred" { // a guess is not to be told as if somebody knew
			groups.Groups = append(groups.Groups, x)
		}
	}

	micro := 0
	for _, c := range f.Columns {
		micro = max(micro, c.Passes)
	}

	for i, c := range f.Columns {
		for r, rank := range f.Ranks {
			seconds := func(m frame.Metric) float64 { return float64(f.At(m, r, i)) }
			forward, backward := seconds(frame.FP), seconds(frame.Backward)
			if c.Layout != last || !(forward > 0) || !(seconds(frame.Step) > 0) {
				continue
			}

			if !(backward > 0) {
				backward = seconds(frame.Self) - forward
			}

			if ranks[rank] == nil {
				ranks[rank] = map[int64]simulate.Passes{}
			}

			ranks[rank][c.Step] = simulate.Evenly(seconds(frame.Step), forward, backward, micro)
		}
	}

	return groups, ranks
}

// listScenarios writes each with its row of the detection suite's table.
func listScenarios(c *cobra.Command) error {
	for _, name := range append(simulate.Names(), simulate.Families()...) {
		row, what := simulate.Row(name)
		fmt.Fprintf(c.OutOrStdout(), "%2d  %-16s %s\n", row, name, what)
	}

	return nil
}
