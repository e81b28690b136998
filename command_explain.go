package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/analyzer/whatif"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// explainCommand says why: the verdict's evidence, a replay, and one step as a picture.
func explainCommand() *cobra.Command {
	a := &analysis{}
	var replay bool
	var output string
	var shown timelines
	c := &cobra.Command{
		Use:   "explain SOURCE",
		Short: "the evidence of one verdict, in words and numbers",
		Example: `  laggard explain parquet:/data/laggard --job 6f3a
  laggard explain /user/cluster-info/profiling --job 6f3a --what-if
  laggard explain traces/ --timeline step.json --timeline step.html`,
		Args: positional("SOURCE"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := oneOf("unknown output %q", output, "text", "json"); err != nil {
				return err
			}

			if err := shown.check(c.Flags()); err != nil {
				return err
			}

			a.source, a.plain = args[0], output == "json" && len(shown.files) == 0
			v, err := a.decide(c.Context())
			if err != nil {
				return err
			}

			var view *frame.Timeline
			if len(shown.files) > 0 {
				if view, err = a.timeline(c.Context(), &shown, v); err != nil {
					return err
				}
			}

			var result *verdict.WhatIf
			if replay && a.mixed() {
				fmt.Fprintln(os.Stderr, "laggard: nothing is replayed of two runs under one job name")
			} else if replay {
				if result, err = a.replay(c.Context(), v); err != nil {
					return err
				}
			}

			if err := a.explain(c.OutOrStdout(), output, v, result, view); err != nil {
				return fmt.Errorf("write explanation: %w", err)
			}

			if err := a.writeTimeline(&shown, v, view); err != nil {
				return err
			}

			return exitWith(v.Exit(a.minImpact))
		},
	}
	a.flags(c)
	c.Flags().BoolVar(&replay, "what-if", false, "replay the steps as if everybody worked alike; needs raw Communication ranges (files, or a store with --records all)")
	c.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	shown.flags(c.Flags())
	return c
}

// explain writes all that was asked for: the replay and the step are nil where they were not.
func (a *analysis) explain(w io.Writer, output string, v *verdict.Verdict, result *verdict.WhatIf, view *frame.Timeline) error {
	if output == "json" {
		return writeJSON(w, "  ", struct {
			Verdict *verdict.Verdict `json:"verdict"`
			WhatIf  *verdict.WhatIf  `json:"what_if,omitempty"`
		}{v, result})
	}

	p := a.printer(w)
	err := p.Explain(v)
	if view != nil {
		err = p.Timeline(view)
	}

	if result != nil {
		err = p.WhatIf(v, result)
	}

	return err
}

// A replay takes as many steps as their ranks are few: more say little new. Raw ranges of all
// its steps are held at once, so the bound is on steps times ranks.
const (
	replayedRanks = 1 << 14 // rank-steps
	mostReplayed  = 200     // steps
	leastReplayed = 16      // steps of a job of any size
)

// replay plays the job's steps since the fault began again from its raw ranges.
func (a *analysis) replay(ctx context.Context, v *verdict.Verdict) (*verdict.WhatIf, error) {
	repairs, since := repairsOf(v, a.frame)
	limit := min(mostReplayed, max(leastReplayed, replayedRanks/max(1, len(a.frame.Ranks))))
	// The job as it runs now: a restart may have moved ranks to other nodes.
	last := &frame.Layout{}
	if n := len(a.frame.Layouts); n > 0 {
		last = a.frame.Layouts[n-1]
	}

	job := whatif.NewJob(last, whatif.Spread(stepsSince(a.frame, since), limit))
	reading, seen := newProgress("ranks read again"), map[uint32]bool{}
	err := a.records(ctx, func(ranks []row.Rank, ranges []row.Record) {
		job.Take(ranks, ranges)
		for i := range ranks {
			seen[ranks[i].Rank] = true
		}

		reading.at(len(seen), len(a.frame.Ranks))
	})
	reading.done()
	if err != nil {
		return nil, err
	}

	fmt.Fprintf(os.Stderr, "replaying at most %d steps of %d ranges\n", limit, job.Ranges())
	playing := newProgress("replays")
	defer playing.done()
	return job.Replay(repairs, playing.at)
}

// repairsOf are the culprits of a verdict as repairs, and the step since when the
// first of them is slow. Who comes and goes is slow in too few steps to be replayed,
// and a save or a link is no rank's work. Where several ranks of a node are slow all
// of it is repaired, as in the verdict's cost.
func repairsOf(v *verdict.Verdict, f *frame.Frame) (repairs []whatif.Repair, since int64) {
	for _, n := range v.Nodes {
		if n.State != verdict.Degraded || n.Cause == verdict.Checkpoint || n.Cause == verdict.Communication {
			continue
		}

		r := whatif.Repair{Name: n.Node, Ranks: n.Ranks, Slowdown: n.Slowdown, Host: n.Cause == verdict.HostDelay}
		if len(n.Ranks) > 1 {
			r.Ranks = ranksOn(f, n.Node)
		}

		if n.Cause == verdict.DataLoader {
			r.Slowdown, r.Loading = 1, 1
			for _, e := range n.Evidence {
				if e.Metric == "dataloader" && e.Peers > 0 {
					r.Loading = max(r.Loading, e.Value/e.Peers)
				}
			}
		}

		if len(repairs) == 0 || n.SinceStep < since {
			since = n.SinceStep
		}

		repairs = append(repairs, r)
	}

	return repairs, since
}

// ranksOn lists the ranks that a node has in the last attempt.
func ranksOn(f *frame.Frame, node string) (ranks []int) {
	l := f.Layouts[len(f.Layouts)-1]
	for row, rank := range l.Ranks {
		if l.NodeOf(row) == node {
			ranks = append(ranks, rank)
		}
	}

	return ranks
}

// stepsSince lists the steps of the last attempt from a step on.
func stepsSince(f *frame.Frame, since int64) []int64 {
	steps := []int64{}
	for _, c := range f.Columns {
		if c.Attempt == f.Attempts-1 && c.Step >= since {
			steps = append(steps, c.Step)
		}
	}

	return steps
}
