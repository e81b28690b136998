package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/analyzer/report"
	"github.com/laggard-dev/laggard/analyzer/source"
	"github.com/laggard-dev/laggard/analyzer/whatif"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

func explainCommand() *cobra.Command {
	a := &analysis{}
	var replay bool
	var output string
	c := &cobra.Command{
		Use:   "explain SOURCE",
		Short: "the evidence of one verdict, in words and numbers",
		Example: `  laggard explain parquet:/data/laggard --job 6f3a
  laggard explain /user/cluster-info/profiling --job 6f3a --what-if`,
		Args: positional("SOURCE"),
		RunE: func(c *cobra.Command, args []string) error {
			if output != "text" && output != "json" {
				return usage("unknown output %q%s", output, didYouMean(output, []string{"text", "json"}))
			}
			a.source = args[0]
			v, err := a.decide(c.Context())
			if err != nil {
				return err
			}
			var result *whatif.Result
			if replay {
				if result, err = a.replay(c.Context()); err != nil {
					return err
				}
			}
			if err := a.explain(c.OutOrStdout(), output, v, result); err != nil {
				return fmt.Errorf("write explanation: %w", err)
			}
			return exitOf(v, a.minImpact)
		},
	}
	a.flags(c)
	c.Flags().BoolVar(&replay, "what-if", false, "replay the steps as if everybody worked alike; needs raw Communication ranges (files, or a store with --records all)")
	c.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	return c
}

func (a *analysis) explain(w io.Writer, output string, v *verdict.Verdict, result *whatif.Result) error {
	if output == "json" {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(struct {
			Verdict *verdict.Verdict `json:"verdict"`
			WhatIf  *whatif.Result   `json:"what_if,omitempty"`
		}{v, result})
	}
	if err := report.Explain(w, v, a.picture(), a.terminal(w)); err != nil || result == nil {
		return err
	}
	fmt.Fprintln(w)
	return report.WhatIf(w, result)
}

// replaySteps bounds what a replay takes: more steps say nothing new.
const replaySteps = 64

// replay plays the job's steps again from its raw ranges.
func (a *analysis) replay(ctx context.Context) (*whatif.Result, error) {
	s, err := source.Open(ctx, a.source, a.from)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	var ranks []row.Rank
	var records []row.Record
	err = s.Records(ctx, a.job, a.from, func(rs []row.Rank, ranges []row.Record) error {
		ranks = append(ranks, rs...)
		for i := range ranges {
			if whatif.Plays(&ranges[i]) {
				records = append(records, ranges[i])
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(os.Stderr, "replaying at most %d steps of %d ranges\n", replaySteps, len(records))
	return whatif.FromRows(replayLayout(a.frame), ranks, records, replaySteps).Replay()
}

// replayLayout is the last attempt's stages and replicas.
func replayLayout(f *frame.Frame) whatif.Layout {
	l := whatif.Layout{Stage: map[int]int{}, Replica: map[int]int{}}
	if len(f.Layouts) == 0 {
		return l
	}
	last := f.Layouts[len(f.Layouts)-1]
	for i, rank := range last.Ranks {
		if role := last.Role[i]; role >= 0 {
			l.Stage[rank] = max(last.Roles[role].Stage, 0)
		}
		l.Replica[rank] = int(last.Replica[i])
	}
	return l
}
