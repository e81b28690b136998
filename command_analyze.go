package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/laggard-dev/laggard/analyzer/arrival"
	"github.com/laggard-dev/laggard/analyzer/detect"
	"github.com/laggard-dev/laggard/analyzer/feed"
	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/analyzer/report"
	"github.com/laggard-dev/laggard/analyzer/source"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/schemas/verdict"
	"github.com/laggard-dev/laggard/writer/profiles"
)

// defaultMinImpact is the share of step time below which a degraded node does
// not change the exit code.
const defaultMinImpact = 0.01

// analysis is one job's way from a source to a verdict: what analyze, explain
// and demo have in common.
type analysis struct {
	source, job string
	from        source.Options
	minImpact   float64

	plain bool // nothing will be drawn
	frame *frame.Frame
	info  source.Info
}

// flags registers what every command that analyzes takes.
func (a *analysis) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&a.job, "job", "", "which job of the source; needed where it holds several")
	sourceFlags(c, &a.from)
	f.Float64Var(&a.minImpact, "min-impact", defaultMinImpact, "share of step time from which a degraded node makes exit code 3")
}

// sourceFlags registers what says of a source's ranks where they run and with whom.
func sourceFlags(c *cobra.Command, o *source.Options) {
	f := c.Flags()
	f.StringVar(&o.Topology, "topology", "", "topology file (JSON); found by itself where one exists")
	f.StringVar(&o.Node, "node", "", "this node's name, for TaskD's files on a disk of its own")
	environment(f, "node", "NODE_NAME")
	fromFlag(f, &o.From)
}

// fromFlag registers the format of a SOURCE that holds profiles of other tools.
func fromFlag(f *pflag.FlagSet, from *string) {
	f.StringVar(from, "from", "", "format of the profiles in SOURCE, told by content where it isn't given: "+strings.Join(profiles.Words(), ", "))
}

// checkMinImpact refuses what is no share: 5 for 5 % would call every job healthy.
func checkMinImpact(x float64) error {
	if !(x >= 0 && x <= 1) {
		return usage("--min-impact %v: want a share of step time, 0 to 1 (0.05 is 5 %%)", x)
	}

	return nil
}

// decide loads the job and returns the verdict on it.
func (a *analysis) decide(ctx context.Context) (*verdict.Verdict, error) {
	if err := checkMinImpact(a.minImpact); err != nil {
		return nil, err
	}

	o := a.from
	// Quarters of a batch run are noise beside its verdict, so only a terminal is shown how far it is.
	if bar := newProgress("reading"); bar.terminal {
		defer bar.done()
		o.Progress = bar.at
	}

	s, err := source.Open(ctx, a.source, o)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	rows, err := a.load(ctx, s, o)
	if err != nil {
		return nil, err
	}

	cfg := detect.Default()
	cfg.MinImpact = a.minImpact
	judge := detect.Begin(a.frame, cfg)
	// Metrics are kept in memory for what draws them alone.
	drawn := report.Drawn
	if a.plain {
		drawn = nil
	}

	stages := &arrival.Stages{}
	step := func(c *frame.Column) {
		stages.Observe(c)
		judge.Observe(c)
	}
	if err := rows.Play(step, judge.ObserveTransfer, drawn...); err != nil {
		return nil, err
	}

	v := judge.Verdict()
	detect.Tell(v, a.frame.Off, a.frame.Overlap)
	v.Source, v.Job = source.Redact(a.source), a.job
	if i := a.info; i.Unknown+i.Torn > 0 {
		v.Unread = &verdict.Unread{Lines: i.Unknown, Of: i.Lines, Torn: i.Torn}
	}

	v.Healthy = v.Exit(a.minImpact) == verdict.ExitHealthy
	return v, a.fewSteps(ctx, s, v, stages)
}

// load reads the rows of the job, and says what the source has to say of them.
func (a *analysis) load(ctx context.Context, s source.Source, o source.Options) (rows *feed.History, err error) {
	rows = &feed.History{}
	if a.info, err = s.Load(ctx, a.job, rows.Add, o); err != nil {
		return nil, err
	}

	a.job = a.info.Job
	for _, note := range a.info.Notes {
		fmt.Fprintln(os.Stderr, "laggard:", note)
	}

	a.frame, err = rows.Settle(a.info.Topology)
	return rows, err
}

// A few steps are told of where there is no verdict; arrivals of jobs that are small enough to be
// held: raw ranges are read for them, each range of a step of a rank. With 32 collectives a step
// these bounds come to the two million calls that arrival holds.
const (
	arrivalRanks = 1 << 10
	arrivalSteps = 64
)

// fewSteps adds what can be told where there is too little for a verdict: stages that are unevenly
// loaded, and who entered collectives last.
func (a *analysis) fewSteps(ctx context.Context, s source.Source, v *verdict.Verdict, stages *arrival.Stages) error {
	if v.Decided || a.mixed() || len(a.frame.Ranks) < 2 || len(a.frame.Columns) > arrivalSteps {
		return nil
	}

	// The detector may have found the stages itself: its numbers count.
	known := slices.ContainsFunc(v.Findings, func(f verdict.Finding) bool { return f.Kind == verdict.StageImbalance })
	if f := stages.Finding(); f != nil && !known {
		v.Findings = slices.Insert(v.Findings, 0, *f)
	}

	if len(a.frame.Ranks) > arrivalRanks {
		return nil
	}

	job := arrival.NewJob()
	one := a.from
	one.Workers = 1 // of each rank that is read, the ranges of a step are held twice
	err := s.Records(ctx, a.job, one, taking(job.Take))
	v.Arrivals = job.Order()
	return err
}

// records reads the job's raw ranges again, from a source of their own.
func (a *analysis) records(ctx context.Context, take func([]row.Rank, []row.Record)) error {
	s, err := source.Open(ctx, a.source, a.from)
	if err != nil {
		return err
	}
	defer s.Close()
	return s.Records(ctx, a.job, a.from, taking(take))
}

// taking fits what takes all to a source.
func taking(take func([]row.Rank, []row.Record)) func([]row.Rank, []row.Record) error {
	return func(ranks []row.Rank, ranges []row.Record) error {
		take(ranks, ranges)
		return nil
	}
}

// mixed reports whether the rows are of two runs: nothing is said of them.
func (a *analysis) mixed() bool { return a.frame.Overlap != nil && a.frame.Overlap.Mixed }

// drawn is the frame as far as it is drawn: of two runs nothing is.
func (a *analysis) drawn() *frame.Frame {
	if a.mixed() {
		return nil
	}

	return a.frame
}

// printer writes in words what the output can show, with the frame for sparklines.
func (a *analysis) printer(w io.Writer) *report.Printer {
	p := report.NewPrinter(w)
	p.Frame, p.Made = a.drawn(), made()
	return p
}

// made is the stamp of what is written now.
func made() string { return report.Made(time.Now(), version) }

// analyzeCommand is the batch verdict: all rows are there, and none is waited for.
func analyzeCommand() *cobra.Command {
	a := &analysis{}
	var output string
	c := &cobra.Command{
		Use:   "analyze SOURCE",
		Short: "batch verdict: which node is slow, why, what it costs",
		Long: `analyze reads one job from SOURCE (a directory, a folder or file of profiles that other tools
wrote, parquet:DIR or clickhouse://user@host:9000/db) and decides.
Rows beyond 64 MiB are sorted in an unnamed temporary file, in TMPDIR or /tmp: about 70 bytes for each step of a rank.
Exit code 0: nothing degraded; 3: a node or link is; 4: not enough data to decide; 1: error; 2: usage.`,
		Example: `  laggard analyze traces/
  laggard analyze /user/cluster-info/profiling --job 6f3a
  laggard analyze parquet:/data/laggard -o json
  laggard analyze clickhouse://laggard@ch:9000/laggard --job 6f3a -o html > report.html`,
		Args: positional("SOURCE"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := oneOf("unknown output %q", output, "table", "json", "html", "faultdiag"); err != nil {
				return err
			}

			a.source, a.plain = args[0], output == "json"
			v, err := a.decide(c.Context())
			if err != nil {
				return err
			}

			if err := a.write(c.OutOrStdout(), output, v); err != nil {
				return fmt.Errorf("write verdict: %w", err)
			}

			return exitWith(v.Exit(a.minImpact))
		},
	}
	a.flags(c)
	c.Flags().StringVarP(&output, "output", "o", "table", "table, json, html, or faultdiag (FaultDiag-online's result)")
	return c
}

// dimension tells a group's dimension where the topology or the ranks name it.
func (a *analysis) dimension(group string) string {
	if a.info.Topology != nil {
		for _, g := range a.info.Topology.Groups {
			if g.Name == group {
				return g.Dim
			}
		}
	}

	for _, l := range a.frame.Layouts {
		for i := range l.Groups {
			if l.Groups[i].Name == group && l.Groups[i].Dim != "" {
				return l.Groups[i].Dim
			}
		}
	}

	return ""
}

// write writes the verdict in the form that --output names.
func (a *analysis) write(w io.Writer, output string, v *verdict.Verdict) error {
	switch output {
	case "json":
		return report.JSON(w, v)
	case "html":
		return report.HTML(w, v, a.drawn(), nil, made())
	case "faultdiag":
		return report.FaultDiag(w, v, a.drawn(), a.dimension)
	}

	return a.printer(w).Table(v)
}

// exitWith returns an exit code as an error, nil for 0.
func exitWith(code int) error {
	if code != verdict.ExitHealthy {
		return exitError{code: code}
	}

	return nil
}
