package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/spf13/pflag"

	"github.com/laggard-dev/laggard/analyzer/arrival"
	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/analyzer/report"
	"github.com/laggard-dev/laggard/analyzer/source"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/schemas/verdict"
	"github.com/laggard-dev/laggard/writer/chrome"
)

// timelines are the settings of explain --timeline.
type timelines struct {
	files []string
	step  int64
	ranks []int
}

// mostLines bounds the ranks that are read side by side.
const mostLines = 32

// flags adds the settings to explain's.
func (o *timelines) flags(f *pflag.FlagSet) {
	f.StringArrayVar(&o.files, "timeline", nil, "write one step of a few ranks side by side to FILE.json (a Chrome trace for ui.perfetto.dev) or FILE.html (the report with it); may be given twice. Needs raw ranges, as --what-if")
	f.Int64Var(&o.step, "step", -1, "with --timeline: which step (default: where the culprit cost most, else the last complete one)")
	f.IntSliceVar(&o.ranks, "ranks", nil, "with --timeline: which ranks (default: the culprit, who waits for it, a peer)")
}

// check refuses what would be ignored, before anything is read.
func (o *timelines) check(f *pflag.FlagSet) error {
	if len(o.files) == 0 && (f.Changed("step") || f.Changed("ranks")) {
		return usage("--step and --ranks go with --timeline FILE")
	}

	if f.Changed("step") && o.step < 0 {
		return usage("--step %d: steps are counted from 0", o.step)
	}

	for _, file := range o.files {
		if e := filepath.Ext(file); e != ".json" && e != ".html" {
			return usage("--timeline %s: want a name that ends in .json (a Chrome trace) or .html (the report)", file)
		}
	}

	slices.Sort(o.ranks)
	o.ranks = slices.Compact(o.ranks)
	if len(o.ranks) > mostLines {
		return usage("--ranks: %d ranks are too many to be read side by side, at most %d; `laggard export --format chrome` writes all", len(o.ranks), mostLines)
	}

	return nil
}

// timeline reads the ranges of one step, as the settings say.
func (a *analysis) timeline(ctx context.Context, o *timelines, v *verdict.Verdict) (*frame.Timeline, error) {
	if a.mixed() {
		return nil, errors.New("show a step: there are two runs under one job name")
	}

	column := arrival.Costliest(a.frame, v)
	if o.step >= 0 {
		var err error
		if column, err = arrival.ColumnOf(a.frame, o.step); err != nil {
			return nil, err
		}
	}

	if column < 0 {
		return nil, errors.New("show a step: none was recorded")
	}

	shown := arrival.Choose(a.frame, v, column)
	if len(o.ranks) > 0 {
		shown = asked(o.ranks, shown)
	}

	for _, x := range shown {
		if !slices.Contains(a.frame.Ranks, x.Rank) {
			return nil, fmt.Errorf("show rank %d: it was not recorded; %d ranks were, from %d to %d", x.Rank, len(a.frame.Ranks), a.frame.Ranks[0], a.frame.Ranks[len(a.frame.Ranks)-1])
		}
	}

	aligner := arrival.NewAligner(a.frame, column, shown)
	if err := a.records(ctx, aligner.Take); err != nil {
		return nil, err
	}

	step, err := aligner.Align()
	if err != nil {
		return nil, fmt.Errorf("show step %d of %s: %w", a.frame.Columns[column].Step, source.Redact(a.source), err)
	}

	return step, nil
}

// asked are the ranks that somebody wants to see; what they are is known of those chosen.
func asked(ranks []int, chosen []frame.Line) (shown []frame.Line) {
	for _, rank := range ranks {
		x := frame.Line{Rank: rank}
		if i := slices.IndexFunc(chosen, func(l frame.Line) bool { return l.Rank == rank }); i >= 0 {
			x = chosen[i]
		}

		shown = append(shown, x)
	}

	return shown
}

// writeTimeline writes a step to its files.
func (a *analysis) writeTimeline(o *timelines, v *verdict.Verdict, view *frame.Timeline) error {
	for _, file := range o.files {
		err := toFile(file, nil, func(w io.Writer) error {
			if filepath.Ext(file) == ".json" {
				return traceOf(w, view)
			}

			return report.HTML(w, v, a.drawn(), view, made())
		})
		if err != nil {
			return err
		}

		fmt.Fprintf(os.Stderr, "laggard: step %d of %d ranks is in %s\n", view.Step, len(view.Lines), file)
	}

	return nil
}

// traceOf writes the ranges of a step, and beside them who waits for whom.
func traceOf(w io.Writer, view *frame.Timeline) error {
	t := chrome.NewWriter(w, view.From)
	t.Note(report.TimelineClocks(view))
	for _, l := range view.Lines {
		node := l.Node
		if l.Part != "" && node != "" {
			node += ", "
		}

		t.Rank(&row.Rank{Rank: uint32(l.Rank), Node: node + l.Part, StartedNs: view.From})
		var records []row.Record
		for i := range l.Ranges {
			r := &l.Ranges[i]
			records = append(records, r.Record)
			if r.For >= 0 {
				records = append(records, row.Record{
					Rank: r.Rank, Kind: "waiting", Op: "waits for rank " + strconv.Itoa(r.For), OpRaw: r.Op, Group: r.Group, Step: r.Step, StartNs: r.StartNs, DurNs: r.Waits,
				})
			}
		}

		t.Records(records)
	}

	return t.Close()
}
