package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/laggard-dev/laggard/schemas/verdict"
	"github.com/laggard-dev/laggard/writer/audit"
	"github.com/laggard-dev/laggard/writer/clickhouse"
	"github.com/laggard-dev/laggard/writer/intake"
)

// auditCommand compares and never writes, so that it may run beside agents.
func auditCommand() *cobra.Command {
	var job, output string
	c := &cobra.Command{
		Use:   "audit SOURCE STORE",
		Short: "store = ledger, or the difference by segment",
		Long: `audit proves that STORE holds what the files and the ledger under the profiling directory SOURCE say, or names the difference by segment, with the
reason. It changes nothing. Exit code 0: equal; 3: different.`,
		Example: `  laggard audit /user/cluster-info/profiling clickhouse://laggard@ch:9000/laggard
  laggard audit /data/profiling parquet:/data/laggard --job j1 -o json`,
		Args: positional("SOURCE", "STORE"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := oneOf("--output %s", output, "table", "json"); err != nil {
				return err
			}

			if err := checkStore(args[1]); err != nil {
				return err
			}

			return runAudit(c, args[0], args[1], job, output)
		},
	}
	c.Flags().StringVar(&job, "job", "", "the job, where SOURCE has several")
	c.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	return c
}

// runAudit prints the comparison. A difference is an exit code and not an error: the report says it.
func runAudit(c *cobra.Command, dir, store, job, output string) error {
	job, err := auditedJob(dir, job)
	if err != nil {
		return err
	}

	sink, err := intake.OpenStore(store, clickhouse.Options{Logger: newLogger()})
	if err != nil {
		return err
	}
	defer sink.Close()
	if err := sink.Ping(c.Context()); err != nil {
		return err
	}

	bar := newProgress("audit")
	report, err := audit.Run(c.Context(), dir, job, store, sink, bar.at)
	bar.done()
	if err != nil {
		return err
	}

	if err := printAudit(c.OutOrStdout(), report, output); err != nil {
		return err
	}

	if !report.Equal {
		return exitError{code: verdict.ExitDegraded}
	}

	return nil
}

// auditedJob returns the job to audit: the only one, unless one is named.
func auditedJob(dir, job string) (string, error) {
	jobs, err := audit.Jobs(dir)
	switch {
	case err != nil:
		return "", err
	case len(jobs) == 0:
		return "", fmt.Errorf("audit %s: no rank directories and no ledger in it; name the profiling directory", dir)
	case job == "" && len(jobs) == 1:
		return jobs[0], nil
	case job == "":
		return "", usage("laggard audit: %s has %d jobs, name one with --job: %s", dir, len(jobs), strings.Join(jobs, ", "))
	case !slices.Contains(jobs, job):
		return "", errors.New("audit " + dir + ": no job " + job + didYouMean(job, jobs))
	}

	return job, nil
}

// printAudit writes the account first, in the ledger's words, then what does not fit into it.
func printAudit(w io.Writer, r *audit.Report, output string) error {
	if output == "json" {
		return writeJSON(w, "  ", r)
	}

	// The report has drops by reason; the equation wants their sum.
	dropped := uint64(0)
	for _, n := range r.Dropped {
		dropped += n
	}

	fmt.Fprintf(w, "job %s: %d ranks, %d segments on disk, store %s\n", r.Job, r.Ranks, r.Segments, r.Store)
	fmt.Fprintf(w, "emitted %d = stored %d + summarised %d + aged %d + dropped %d + in flight %d\n",
		r.Emitted, r.Stored, r.Summarised, r.Aged, dropped, r.InFlight)
	for _, damage := range r.Damaged {
		fmt.Fprintf(w, "damaged, the rest of it is left out: %s\n", damage)
	}

	if r.Equal {
		fmt.Fprintln(w, "equal: the store holds what files and ledger say")
		return nil
	}

	fmt.Fprintf(w, "%d differences:\n", len(r.Differences))
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "rank\tsegment\tid\ttable\tkind\twant\thave\treason")
	for _, d := range r.Differences {
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\t%d\t%d\t%s\n", d.Rank, d.Segment, d.ID, d.Table, d.Kind, d.Want, d.Have, d.Reason)
	}

	return t.Flush()
}
