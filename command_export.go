package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/laggard-dev/laggard/analyzer/source"
	"github.com/laggard-dev/laggard/schemas/keep"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/arrow"
	"github.com/laggard-dev/laggard/writer/chrome"
	"github.com/laggard-dev/laggard/writer/parquet"
)

// exporting are the settings of laggard export.
type exporting struct{ format, table, job, out, from string }

// exportCommand hands data to other tools: it decides nothing and leaves nothing out.
func exportCommand() *cobra.Command {
	var e exporting
	c := &cobra.Command{
		Use:   "export SOURCE --format parquet|arrow|chrome -o FILE",
		Short: "one job as a Parquet file, an Arrow stream or a Chrome trace",
		Long: `export writes one table of one job from SOURCE (a profiling directory, a folder of profiles, parquet:DIR or clickhouse://…) as a Parquet file or an Arrow IPC stream, or
its ranges as a Chrome trace for https://ui.perfetto.dev: a rank is a process, a kind of range a track. -o - is stdout.`,
		Example: `  laggard export /user/cluster-info/profiling --format chrome -o job.json
  laggard export parquet:/data/laggard --job j1 --format arrow --table steps -o steps.arrow`,
		Args: positional("SOURCE"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := e.check(); err != nil {
				return err
			}

			return e.run(c, args[0])
		},
	}
	f := c.Flags()
	f.StringVar(&e.format, "format", "", "parquet, arrow or chrome")
	f.StringVar(&e.table, "table", row.StepsTable, "ranks, steps, communications or records (chrome: always the ranges)")
	f.StringVar(&e.job, "job", "", "the job, where SOURCE has several")
	f.StringVarP(&e.out, "output", "o", "", "the file; - is stdout")
	fromFlag(f, &e.from)
	return c
}

// check refuses words that are unknown, with the nearest that is known.
func (e *exporting) check() error {
	err := cmp.Or(
		oneOf("laggard export: --format %q: want parquet, arrow or chrome", e.format, "parquet", "arrow", "chrome"),
		oneOf("laggard export: --table %q: want ranks, steps, communications or records", e.table, row.RanksTable, row.StepsTable, row.CommunicationsTable, row.RecordsTable))
	if err == nil && e.out == "" {
		return usage("laggard export: -o FILE is missing (- is stdout)")
	}

	return err
}

// run writes the file, then says what of the source is not in it.
func (e *exporting) run(c *cobra.Command, spec string) error {
	bar := newProgress("export")
	o := source.Options{From: e.from, Progress: bar.at}
	s, err := source.Open(c.Context(), spec, o)
	if err != nil {
		return err
	}
	defer s.Close()
	var info source.Info
	err = toFile(e.out, c.OutOrStdout(), func(w io.Writer) (err error) {
		info, err = e.write(c.Context(), w, s, o)
		return err
	})
	bar.done()
	if err != nil {
		return err
	}

	for _, note := range info.Notes {
		fmt.Fprintln(os.Stderr, "laggard:", note)
	}

	if info.Damaged > 0 {
		return errors.New("export: some of the source could not be read (said above); what could be is written")
	}

	return nil
}

// toFile has a file appear complete or not at all. A missing folder is said in place of keep's
// error, which speaks of the file beside it that is renamed in the end.
func toFile(path string, stdout io.Writer, write func(io.Writer) error) error {
	if path == "-" {
		return write(stdout)
	}

	err := keep.Replace(path, 0o644, write)
	if _, missing := os.Stat(filepath.Dir(path)); errors.Is(missing, fs.ErrNotExist) {
		return fmt.Errorf("write %s: there is no folder %s: make it, or name another file", path, filepath.Dir(path))
	}

	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}

	return nil
}

// write writes the job, and returns what is known of its source.
func (e *exporting) write(ctx context.Context, w io.Writer, s source.Source, o source.Options) (source.Info, error) {
	if e.format == "chrome" {
		return e.trace(ctx, w, s, o)
	}

	o.NoCommunications = e.table != row.CommunicationsTable
	switch e.table {
	case row.RanksTable:
		return loadTable(ctx, e, w, s, o, func(r *row.Rows) []row.Rank { return r.Ranks })
	case row.StepsTable:
		return loadTable(ctx, e, w, s, o, func(r *row.Rows) []row.Step { return r.Steps })
	case row.CommunicationsTable:
		return loadTable(ctx, e, w, s, o, func(r *row.Rows) []row.Communication { return r.Communications })
	}

	t := newTable[row.Record](e, w)
	info, err := s.Load(ctx, e.job, func(*row.Rows) {}, o) // tells the job, where only one is there
	if err != nil {
		return info, err
	}

	o.Workers = 1 // rows in the ranks' order
	err = s.Records(ctx, info.Job, o, func(_ []row.Rank, records []row.Record) error { return t.Write(records) })
	if err != nil {
		return info, err
	}

	return info, t.Close()
}

// loadTable writes one table of the job, whose rows of picks out.
func loadTable[T any](ctx context.Context, e *exporting, w io.Writer, s source.Source, o source.Options, of func(*row.Rows) []T) (source.Info, error) {
	t := newTable[T](e, w)
	var failed error
	info, err := s.Load(ctx, e.job, func(r *row.Rows) {
		if failed == nil { // who hands rows over takes no error
			failed = t.Write(of(r))
		}
	}, o)
	if err != nil {
		return info, err
	}

	return info, errors.Join(failed, t.Close())
}

// tableWriter is a file of one table.
type tableWriter[T any] interface {
	Write(rows []T) error
	Close() error
}

// newTable begins a file of the table in the format that is wanted.
func newTable[T any](e *exporting, w io.Writer) tableWriter[T] {
	if e.format == "arrow" {
		return arrow.NewWriter[T](w, e.table)
	}

	return parquet.NewExport[T](w, e.table)
}

// trace writes the ranges of a job; of a source that has none, its steps.
func (e *exporting) trace(ctx context.Context, w io.Writer, s source.Source, o source.Options) (source.Info, error) {
	o.NoCommunications = true
	var b row.Rows
	info, err := s.Load(ctx, e.job, b.Add, o)
	if err != nil {
		return info, err
	}

	// Times of a trace are µs from its beginning: since 1970 they would leave a float64, which viewers
	// use, no digits for ns.
	base := int64(0)
	for i := range b.Steps {
		if at := b.Steps[i].StartNs; base == 0 || at < base {
			base = at
		}
	}

	t := chrome.NewWriter(w, base)
	for i := range b.Ranks {
		t.Rank(&b.Ranks[i])
	}

	some := false
	o.Workers = 1 // ranges in the ranks' order
	err = s.Records(ctx, info.Job, o, func(_ []row.Rank, records []row.Record) error {
		some = some || len(records) > 0
		t.Records(records)
		return nil
	})
	if err != nil {
		return info, err
	}

	if !some { // a store without raw ranges
		for i := range b.Steps {
			t.Step(&b.Steps[i])
		}
	}

	return info, t.Close()
}
