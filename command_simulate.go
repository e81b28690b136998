package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/laggard-dev/laggard/analyzer/simulate"
)

func simulateCommand() *cobra.Command {
	var scenario, config, format string
	var seed uint64
	var ranks, steps int
	var list bool
	c := &cobra.Command{
		Use:   "simulate DIR",
		Short: "a labelled synthetic job as files, the truth beside",
		Long: `simulate plays a synchronous training job as events (who waits for whom) and writes what it leaves behind below DIR:
<job>/<rank>/<unix seconds>, topology.json, truth.json and scenario.yaml, from which --scenario-file plays it again.`,
		Example: `  laggard simulate --list
  laggard simulate --scenario compute-1.10 --seed 7 job7
  laggard analyze job7`,
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
			cfg, err := scenarioConfig(scenario, config, seed, ranks)
			if err != nil {
				return err
			}
			if steps > 0 {
				cfg.Steps = steps
			}
			if format != "" {
				cfg.Record.Format = format
			}
			truth, err := simulate.Write(args[0], cfg)
			if err != nil {
				return err
			}
			e := json.NewEncoder(c.OutOrStdout())
			e.SetIndent("", " ")
			return e.Encode(truth)
		},
	}
	f := c.Flags()
	f.StringVar(&scenario, "scenario", "", "which kind of job, see --list")
	f.StringVar(&config, "scenario-file", "", "a scenario as YAML instead")
	f.Uint64Var(&seed, "seed", 1, "chance: the same seed gives the same job")
	f.IntVar(&ranks, "ranks", 0, "number of ranks, 2 to 10000 (0: drawn)")
	f.IntVar(&steps, "steps", 0, "training steps (0: the scenario's)")
	f.StringVar(&format, "format", "", "laggard or taskd (default: the scenario's)")
	f.BoolVar(&list, "list", false, "list the scenarios")
	return c
}

func scenarioConfig(scenario, file string, seed uint64, ranks int) (simulate.Config, error) {
	switch {
	case scenario != "" && file != "":
		return simulate.Config{}, usage("--scenario and --scenario-file exclude each other")
	case file != "":
		return simulate.Load(file)
	case scenario == "":
		return simulate.Config{}, usage("laggard simulate: --scenario is missing; known: %s", strings.Join(append(simulate.Names(), simulate.Families()...), ", "))
	}
	cfg, err := simulate.Sized(scenario, seed, ranks)
	if err != nil {
		return cfg, usageError{err.Error()}
	}
	return cfg, nil
}

func listScenarios(c *cobra.Command) error {
	for _, name := range append(simulate.Names(), simulate.Families()...) {
		row, what := simulate.Row(name)
		fmt.Fprintf(c.OutOrStdout(), "%2d  %-16s %s\n", row, name, what)
	}
	return nil
}
