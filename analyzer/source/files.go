package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	layout "github.com/laggard-dev/laggard/schemas/parquet"
	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/profiles"
	"github.com/laggard-dev/laggard/writer/rollup"
	"github.com/laggard-dev/laggard/writer/rollup/merge"
	"github.com/laggard-dev/laggard/writer/segment"
)

// tree is a directory of segment files: a profiling directory, one job's or one
// rank's.
type tree struct {
	dir    string            // as given
	ranks  []segment.RankDir // as they were when it was opened
	merged merge.Result      // jobs that lay in several directories
	made   *profiles.Tree    // of other tools' profiles, nil of segments
}

// errNoRank is returned, wrapped, for a folder that is no profiling directory.
var errNoRank = errors.New("no rank directory in it")

// openFiles opens a directory that has ranks in it, whoever wrote them.
func openFiles(dir string) (Source, error) {
	ranks, err := segment.Walk(dir)
	if err != nil {
		return nil, fmt.Errorf("open source %s: %w", dir, err)
	}

	if len(ranks) == 0 {
		return nil, fmt.Errorf("open source %s: %w: a profiling directory holds <job>/<rank>/<unix seconds> (LAGGARD_DIR, default /user/cluster-info/profiling); a Parquet store holds %s/%s…", dir, errNoRank, row.StepsTable, layout.FolderPrefix)
	}

	return &tree{dir: dir, ranks: ranks, merged: merge.Directories(ranks)}, nil
}

// Close implements Source.
func (t *tree) Close() error {
	if t.made == nil {
		return nil
	}

	return t.made.Close()
}

// Jobs implements Source.
func (t *tree) Jobs(context.Context) ([]string, error) {
	var jobs []string
	for _, r := range t.ranks {
		jobs = append(jobs, r.Job)
	}

	slices.Sort(jobs)
	return slices.Compact(jobs), nil
}

// Load implements Source. What of other tools' profiles could not be read is told.
func (t *tree) Load(ctx context.Context, job string, take func(*row.Rows), o Options) (Info, error) {
	info, err := t.load(ctx, job, take, o)
	if t.made != nil {
		info.Damaged += len(t.made.Unread)
		info.Notes = append(info.Notes, profiles.Sentences(t.made.Unread)...)
		info.Notes = append(info.Notes, profiles.Sentences(t.made.Notes)...)
	}

	return info, err
}

// load rolls the segments of every rank up, the way that ingest does.
func (t *tree) load(ctx context.Context, job string, take func(*row.Rows), o Options) (Info, error) {
	job, err := pick(ctx, t, t.dir, job)
	if err != nil {
		return Info{}, err
	}

	info := Info{Job: job}
	dirs := t.of(job)
	info.Notes = append(info.Notes, t.merged.Notes(job)...)
	l, err := layoutOf(&info, o, t.dir, t.merged.Dirs(job), dirs)
	if err != nil {
		return info, err
	}

	off := false // recording was
	var counts rollup.Counts
	err = inOrder(ctx, len(dirs), o.workers(), func(ctx context.Context, i int) (*rolled, error) {
		return rollUp(ctx, dirs[i], l, !o.NoCommunications)
	}, func(i int, r *rolled) error {
		// A process writes its identity into each of its segments; one row of it is enough.
		r.rows.Ranks = newestRanks(r.rows.Ranks)
		off = off || slices.ContainsFunc(r.rows.Ranks, func(r row.Rank) bool { return len(r.Off) > 0 })
		take(&r.rows)
		info.Steps += len(r.rows.Steps)
		addCounts(&counts, &r.counts)
		o.progress(i+1, len(dirs))
		return nil
	})
	if err != nil {
		return info, err
	}

	info.Lines, info.Unknown, info.Torn = int(counts.Lines), int(notUnderstood(counts)), int(counts.Torn)
	// Without steps there is no verdict, unless the switch explains it: then that is the verdict.
	if info.Steps == 0 && !off {
		return info, t.nothing(job, info, counts)
	}

	info.notes(counts)
	return info, nil
}

// of returns the rank directories of a job.
func (t *tree) of(job string) []segment.RankDir {
	return slices.DeleteFunc(slices.Clone(t.ranks), func(r segment.RankDir) bool { return r.Job != job })
}

// nothing says why a job gave no step.
func (t *tree) nothing(job string, info Info, c rollup.Counts) error {
	files := 0
	for _, d := range t.of(job) {
		list, err := segment.List(d.Path)
		if err != nil {
			return fmt.Errorf("read rank %d: %w", d.Rank, err)
		}

		files += len(list)
	}

	where := fmt.Sprintf("read job %s in %s: no step in it", quoteIfOdd(job), t.dir)
	switch {
	case files == 0:
		return fmt.Errorf("%s: its rank directories hold no segment (files named by unix seconds): is the recorder on, does the agent write to this directory?", where)
	case info.Lines == 0 && len(c.Damaged) > 0:
		return fmt.Errorf("%s: %d of its %d files are damaged and the others empty: %s", where, len(c.Damaged), files, c.Damaged[0])
	case info.Lines == 0 && info.Torn > 0:
		return fmt.Errorf("%s: no line in its %d files is complete, %d end in the middle of their first: their writer was killed, or has only begun", where, files, info.Torn)
	case info.Lines == 0:
		return fmt.Errorf("%s: nothing stands in its %d files: wait until the agent has written something", where, files)
	case info.Unknown == info.Lines:
		return fmt.Errorf("%s: none of %d lines in %d files was understood, the first is %s: these are no files of laggard's or TaskD's", where, info.Lines, files, c.Odd)
	case c.LostFor(rollup.BadTime) > 0:
		return fmt.Errorf("%s: %d lines in %d files, %d of them with a time that can't be right (%s): was the clock of the machine set?", where, info.Lines, files, c.LostFor(rollup.BadTime), badTime)
	case info.Unknown > 0:
		return fmt.Errorf("%s: %d lines in %d files, %d of them not understood (the first is %s): is the kind Step on?", where, info.Lines, files, info.Unknown, c.Odd)
	}

	return fmt.Errorf("%s: %d lines in %d files: is the kind Step on (`laggard trace status`), has a step ended yet?", where, info.Lines, files)
}

// notes adds what a person should know of the files.
func (i *Info) notes(c rollup.Counts) {
	if n := notUnderstood(c); n > 0 {
		i.Notes = append(i.Notes, fmt.Sprintf("%d of %d lines were not understood and left out; the first is %s", n, c.Lines, c.Odd))
	}

	if c.Torn > 0 {
		i.Notes = append(i.Notes, fmt.Sprintf("files with a line that a crash or damage cut short: %d (%d bytes); the rest of them was read", c.Torn, c.TornBytes))
	}

	if n := len(c.Damaged); n > 0 {
		i.Damaged += n
		i.Notes = append(i.Notes, fmt.Sprintf("compressed files that are damaged: %d; what stands before the damage was read, the rest of them is left out; the first: %s", n, c.Damaged[0]))
	}

	bad := c.LostFor(rollup.BadTime)
	if bad > 0 {
		i.Notes = append(i.Notes, fmt.Sprintf("%d lines have a time that can't be right (%s) and were left out", bad, badTime))
	}

	wild := c.LostFor(record.Implausible)
	if wild > 0 {
		i.Notes = append(i.Notes, fmt.Sprintf("%d loss lines claim more records than any writer can lose and were left out", wild))
	}

	late := c.LostFor(rollup.LateRange)
	if late > 0 {
		i.Notes = append(i.Notes, fmt.Sprintf("%d ranges began when their step was over already and were left out (a clock was set back, or lines came late)", late))
	}

	if n := c.LostFor("") - bad - wild - late; n > 0 {
		i.Notes = append(i.Notes, fmt.Sprintf("%d records never arrived, by the account of their writers (laggard audit shows the reasons)", n))
	}
}

// badTime says what rollup.BadTime means.
var badTime = fmt.Sprintf("more than %.0f years from that of their file's name", rollup.Around.Hours()/24/365)

// addCounts adds what is told of a rank's files.
func addCounts(sum, c *rollup.Counts) {
	sum.Lines += c.Lines
	sum.Unknown += c.Unknown
	sum.Garbage += c.Garbage
	sum.Torn += c.Torn
	sum.TornBytes += c.TornBytes
	sum.Damaged = append(sum.Damaged, c.Damaged...)
	sum.Odd = cmp.Or(sum.Odd, c.Odd)
	for _, l := range c.Lost {
		sum.Lose(l.Kind, l.Reason, l.Count)
	}
}

// rolled is one rank's rows and account.
type rolled struct {
	rows   row.Rows
	counts rollup.Counts
}

// again is how often a rank is read anew because a segment was aged away between
// listing and reading.
const again = 5

// rollUp reads the segments of one rank.
func rollUp(ctx context.Context, dir segment.RankDir, p *rollup.Placement, communications bool) (*rolled, error) {
	for tries := 1; ; tries++ {
		r := &rolled{}
		var err error
		r.counts, err = rollup.Dir(ctx, dir, p.Options(dir, rollup.None), func(rows *row.Rows) error {
			r.rows.Add(rows)
			return nil
		})
		if errors.Is(err, fs.ErrNotExist) && tries < again {
			continue
		}

		if err != nil {
			return nil, fmt.Errorf("read rank %d: %w", dir.Rank, err)
		}

		if !communications {
			r.rows.Communications = nil
		}

		return r, nil
	}
}

// notUnderstood counts lines of nobody's format and those that are no text at all.
func notUnderstood(c rollup.Counts) uint64 { return c.Unknown + c.Garbage }
