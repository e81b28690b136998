package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/laggard-dev/laggard/ageing"
	"github.com/laggard-dev/laggard/analyzer/source"
	ddl "github.com/laggard-dev/laggard/schemas/clickhouse"
	"github.com/laggard-dev/laggard/writer/clickhouse"
	"github.com/laggard-dev/laggard/writer/intake"
	"github.com/laggard-dev/laggard/writer/profiles"
	"github.com/laggard-dev/laggard/writer/rollup"
)

// shipping are the flags that agent and ingest have in common: how rows go to a
// store.
type shipping struct {
	records     string
	memory      string
	state       string
	trustUIDs   []uint
	asyncInsert bool
}

// uids returns the further owners to trust.
func (s *shipping) uids() []uint32 {
	uids := make([]uint32, len(s.trustUIDs))
	for i, u := range s.trustUIDs {
		uids[i] = uint32(u)
	}

	return uids
}

// flags registers them. How much memory is usual differs: a sidecar shares its pod with a trainer.
func (s *shipping) flags(c *cobra.Command, memory string) {
	f := c.Flags()
	f.StringVar(&s.records, "records", "light", "raw ranges to store: none, light (all kinds but Communication), all, or deep (all of the steps in which Communication was recorded)")
	f.StringVar(&s.memory, "memory", memory, "the memory of the process, 96 MiB and 128 KiB a rank aside")
	f.UintSliceVar(&s.trustUIDs, "trust-uid", nil, "further users whose files, and whose rings, are taken, beside this one, root and the owner of the job's directory (for rings: where that was there before the agent)")
	f.StringVar(&s.state, "state", "", "folder for the cursor and for rows that the store refused")
	f.BoolVar(&s.asyncInsert, "async-insert", false, "let the server collect the inserts of many agents into few parts (ClickHouse 26.2 and newer)")
}

// options turns the flags into those of the intake, and tells what is wrong with the form of a store's name ("" is
// none) and what that store can't do.
func (s *shipping) options(store string) (intake.Options, error) {
	o := intake.Options{State: s.state, TrustUIDs: s.uids(), AsyncInsert: s.asyncInsert, Logger: newLogger()}
	if s.asyncInsert && !strings.HasPrefix(store, ddl.Scheme) {
		return o, usage("--async-insert: a ClickHouse server collects inserts, so it needs a store clickhouse://user@host:9000/db")
	}

	if store != "" {
		if err := checkStore(store); err != nil {
			return o, err
		}
	}

	var ok bool
	if o.Records, ok = rollup.ParseSelection(s.records); !ok {
		return o, usage("--records %s%s", s.records, didYouMean(s.records, []string{"none", "light", "all", "deep"}))
	}

	var err error
	if o.Ship.Memory, err = ageing.ParseSize(s.memory); err != nil || o.Ship.Memory <= 0 {
		return o, usage("--memory %s: want a size such as 64MiB", s.memory)
	}

	return o, nil
}

// ingestCommand is the agent's way without the agent: existing files, one pass.
func ingestCommand() *cobra.Command {
	var to, node string
	var foreign source.Options
	var giveUp time.Duration
	var s shipping
	c := &cobra.Command{
		Use:   "ingest SOURCE --to STORE",
		Short: "one pass over existing files into a store, each record once",
		Long: `ingest reads the segments (laggard's own or TaskD's) under SOURCE once and stores what STORE has not yet. Of a folder of other tools' profiles
it stores each range once, whoever reads it: by the content of its file and the range's place in it. The job is named for the folder, or by --job.
A second pass stores nothing and says so; one that was killed is finished by the next, from any machine.
Ranks that a running agent ships are left to it.`,
		Example: `  laggard ingest /user/cluster-info/profiling --to parquet:/data/laggard
  laggard ingest /user/cluster-info/profiling --to clickhouse://laggard@ch:9000/laggard --records all`,
		Args: positional("SOURCE"),
		RunE: func(c *cobra.Command, args []string) error {
			if to == "" {
				return usage("laggard ingest: --to STORE is missing: parquet:DIR or clickhouse://user@host:9000/db")
			}

			o, err := s.options(to)
			if err != nil {
				return err
			}

			if giveUp <= 0 {
				return usage("--give-up %v: must be more than 0", giveUp)
			}

			o.Node, o.Ship.GiveUp = node, giveUp
			return ingest(c, args[0], to, foreign, o)
		},
	}
	c.Flags().StringVar(&to, "to", "", "STORE: parquet:DIR or clickhouse://user@host:9000/db")
	c.Flags().StringVar(&node, "node", "", "this node's name, for TaskD's files on a disk of its own")
	environment(c.Flags(), "node", "NODE_NAME")
	c.Flags().DurationVar(&giveUp, "give-up", intake.DefaultGiveUp, "how long the store may fail before the pass ends with its error")
	fromFlag(c.Flags(), &foreign.From)
	c.Flags().StringVar(&foreign.Job, "job", "", "what to call the job of a folder of profiles (default: as the folder)")
	s.flags(c, "256MiB")
	return c
}

// checkStore makes a text that names no store a usage error, before anything is made.
func checkStore(spec string) error {
	if err := intake.CheckStore(spec); err != nil {
		return usage("%v", err)
	}

	return nil
}

// errInterrupted is what a signal makes of a pass.
var errInterrupted = errors.New("interrupted")

// ingest makes one pass. Other tools' profiles become segments in a temporary directory first, and then
// go the way of our own. What could not be read is an error at the end, when the rest is stored.
func ingest(c *cobra.Command, root, to string, foreign source.Options, o intake.Options) error {
	given := root
	made, none := source.Profiles(c.Context(), root, foreign)
	if none != nil && (foreign.From != "" || !errors.Is(none, profiles.ErrNone)) {
		return fmt.Errorf("ingest %s: %w", given, none)
	}

	if made == nil && foreign.Job != "" {
		return usage("--job %s: it names the job of a folder of profiles, and %s is none: its jobs have names", foreign.Job, given)
	}

	if made != nil {
		defer made.Close()
		root = made.Dir
	}

	sink, err := intake.OpenStore(to, clickhouse.Options{Node: o.Node, AsyncInsert: o.AsyncInsert, Logger: o.Logger})
	if err != nil {
		return err
	}
	defer sink.Close()
	bar := newProgress("ingest")
	if bar.terminal {
		o.Progress = func(read, known int64) { bar.at(int(read>>10), int(known>>10)) }
	}

	report, err := intake.Once(c.Context(), root, sink, o)
	bar.done()
	if err != nil && c.Context().Err() != nil {
		err = errInterrupted
	}

	// Neither segments nor profiles: both reasons are said, for either may have been meant.
	if errors.Is(err, intake.ErrNothing) && none != nil {
		return fmt.Errorf("%w; %w", err, none)
	}

	if err != nil && report.Ranks > 0 {
		return fmt.Errorf("ingest %s: %w; what is stored stays, the same command goes on with the rest", given, err)
	}

	if err != nil {
		return err
	}

	if made != nil {
		report.Problems = append(report.Problems, profiles.Sentences(made.Unread)...)
		report.Notes = append(report.Notes, profiles.Sentences(made.Notes)...)
	}

	fmt.Fprintln(c.OutOrStdout(), report)
	if len(report.Problems) > 0 {
		return errors.New("ingest: some of the source could not be read (said above); what could be is stored")
	}

	return nil
}

// newLogger returns the program's log: words on stderr.
func newLogger() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo}))
}
