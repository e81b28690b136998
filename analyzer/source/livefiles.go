package source

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/laggard-dev/laggard/analyzer/feed"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/schemas/topology"
	"github.com/laggard-dev/laggard/writer/profiles"
	"github.com/laggard-dev/laggard/writer/rollup"
	"github.com/laggard-dev/laggard/writer/segment"
)

// fileReader follows the segments of one job through a rollup for each rank.
type fileReader struct {
	dir, job string
	o        Options
	plan     *rollup.Placement
	topology *topology.File
	ranks    map[string]*rankReader // by path
	saved    map[int]segment.Position
	more     bool     // in the middle of a look
	unread   []string // profiles of other tools, or parts of them
}

// Damaged implements feed.Reader.
func (r *fileReader) Damaged() (all []string) {
	all = append(all, r.unread...)
	for _, k := range r.ranks {
		for _, why := range k.damaged {
			all = append(all, why)
		}
	}

	slices.Sort(all)
	return all
}

// follow implements Source.
func (t *tree) follow(o Options, job string, from []byte) (feed.Reader, error) {
	c, err := goOn(t.dir, from)
	if err != nil {
		return nil, err
	}

	r := &fileReader{dir: t.dir, job: job, o: o, ranks: map[string]*rankReader{}, saved: c.Ranks}
	if t.made != nil {
		r.unread = profiles.Sentences(t.made.Unread)
	}

	if err := r.arrange(); err != nil {
		return nil, err
	}

	return r, nil
}

// arrange finds new rank directories, and what is known of the job beside them.
func (r *fileReader) arrange() error {
	dirs, err := segment.Walk(r.dir)
	if err != nil {
		return fmt.Errorf("read job %s in %s: %w", quoteIfOdd(r.job), r.dir, err)
	}

	dirs = slices.DeleteFunc(dirs, func(d segment.RankDir) bool { return d.Job != r.job })
	for _, d := range dirs {
		if r.ranks[d.Path] != nil {
			continue
		}

		if r.plan == nil || len(r.ranks) > 0 {
			if err := r.learn(dirs); err != nil {
				return err
			}
		}

		if r.ranks[d.Path], err = r.begin(d); err != nil {
			return err
		}
	}

	return nil
}

// learn looks for nodes and groups anew when a rank is new: the files that tell them may be written,
// or change, after the first rank has begun.
func (r *fileReader) learn(dirs []segment.RankDir) error {
	info := Info{Job: r.job}
	p, err := layoutOf(&info, r.o, r.dir, []string{r.job}, dirs)
	if err != nil {
		return err
	}

	r.plan, r.topology = p, info.Topology
	return nil
}

// begin follows one more rank, from where an earlier process stopped if there was one.
func (r *fileReader) begin(d segment.RankDir) (*rankReader, error) {
	o := r.plan.Options(d, rollup.None)
	k := &rankReader{dir: d, stream: rollup.New(o), newest: math.MinInt64}
	p, ok := r.saved[d.Rank]
	if !ok {
		return k, nil
	}

	delete(r.saved, d.Rank)
	if err := k.stream.Resume(p); err != nil {
		return nil, fmt.Errorf("read rank %d: %w", d.Rank, err)
	}

	k.segment, k.offset = p.Segment, p.Offset
	return k, nil
}

// Read implements feed.Reader. A round brings every rank up to one moment of recorded
// time: two dozen steps after the rank that is furthest behind.
func (r *fileReader) Read(ctx context.Context, at feed.Stage, take func(*row.Rows) error) (bool, error) {
	if !r.more {
		if err := r.arrange(); err != nil {
			return false, err
		}
	}

	list := make([]*rankReader, 0, len(r.ranks))
	for _, k := range r.ranks {
		if !r.more {
			k.stream.Learn()
			k.atEnd = k.over
		}

		list = append(list, k)
	}

	slices.SortFunc(list, func(a, b *rankReader) int { return a.dir.Rank - b.dir.Rank })
	until := horizon(list)
	err := inOrder(ctx, len(list), r.o.workers(), func(ctx context.Context, i int) (*row.Rows, error) {
		return list[i].read(ctx, until, at == feed.Over)
	}, func(i int, rows *row.Rows) error {
		err := take(rows)
		*rows = row.Rows{Ranks: rows.Ranks[:0], Steps: rows.Steps[:0], Communications: rows.Communications[:0]}
		return err
	})
	if err != nil {
		r.more = false
		return false, err
	}

	r.more = slices.ContainsFunc(list, func(k *rankReader) bool { return !k.atEnd })
	return r.more, nil
}

// aheadSteps is about how many steps a round brings: the feed holds the steps of ranks that are
// ahead until the others have theirs, so that memory grows with it.
const aheadSteps = 24

// horizon is the moment of recorded time that a round goes to: the newest step of the rank that is
// furthest behind, and aheadSteps of the longest steps. As long as a rank has no step the round
// goes nowhere: only ranks without one read on.
func horizon(list []*rankReader) int64 {
	least, length := int64(math.MaxInt64), int64(0)
	for _, k := range list {
		if !k.atEnd {
			least = min(least, k.newest)
		}

		length = max(length, k.length)
	}

	if least == math.MaxInt64 || least == math.MinInt64 {
		return math.MinInt64
	}

	return least + aheadSteps*max(length, int64(time.Millisecond))
}

// Topology implements feed.Reader.
func (r *fileReader) Topology() *topology.File { return r.topology }

// Cursor implements feed.Reader.
func (r *fileReader) Cursor() []byte {
	c := cursor{Ranks: map[int]segment.Position{}}
	maps.Copy(c.Ranks, r.saved)
	for _, k := range r.ranks {
		c.Ranks[k.dir.Rank] = k.stream.LowWater()
	}

	return c.text()
}

// newest returns when a segment of the job was written last.
func (t *tree) newest(_ context.Context, job string) (time.Time, error) {
	var newest time.Time
	for _, d := range t.of(job) {
		list, err := segment.List(d.Path)
		if err != nil {
			return time.Time{}, fmt.Errorf("look at job %s: %w", quoteIfOdd(job), err)
		}

		for _, s := range list {
			if s.ModTime.After(newest) {
				newest = s.ModTime
			}
		}
	}

	return newest, nil
}
