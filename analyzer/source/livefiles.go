package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path/filepath"
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
	more     bool // in the middle of a look
	draining bool
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

// fileCursor is the Cursor of files: where each rank's rollup goes on.
type fileCursor struct {
	Ranks map[int]segment.Position `json:"ranks"`
}

func (t *tree) follow(o Options, job string, cursor []byte) (feed.Reader, error) {
	c, err := goOn[fileCursor](t.dir, cursor)
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

func (r *fileReader) learn(dirs []segment.RankDir) error {
	info := Info{Job: r.job}
	p, err := layoutOf(&info, r.o, r.dir, []string{r.job}, dirs)
	if err != nil {
		return err
	}

	r.plan, r.topology = p, info.Topology
	return nil
}

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

	k.segment, k.offset, k.resume = p.Segment, p.Offset, p.Segment != ""
	return k, nil
}

// Read implements feed.Reader. A round brings every rank up to one moment of recorded
// time: two dozen steps after the rank that is furthest behind.
func (r *fileReader) Read(ctx context.Context, take func(*row.Rows) error) (bool, error) {
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
		return list[i].read(ctx, until, r.draining)
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
func (r *fileReader) Topology(context.Context) (*topology.File, error) { return r.topology, nil }

// Drain implements feed.Reader.
func (r *fileReader) Drain() { r.draining = true }

// Cursor implements feed.Reader.
func (r *fileReader) Cursor() ([]byte, error) {
	c := fileCursor{Ranks: map[int]segment.Position{}}
	for rank, p := range r.saved {
		c.Ranks[rank] = p
	}

	for _, k := range r.ranks {
		c.Ranks[k.dir.Rank] = k.stream.LowWater()
	}

	return cursorOf(c)
}

// Close implements feed.Reader.
func (r *fileReader) Close() error { return nil }

// rankReader follows one rank's directory.
type rankReader struct {
	dir     segment.RankDir
	stream  *rollup.Stream
	segment string // being read, "" before the first
	offset  int64
	resume  bool // the stream must be told of segment first
	newest  int64
	length  int64 // of the last step
	atEnd   bool  // everything that is there was read
	over    bool  // the stream was ended
	rows    row.Rows
	damaged map[string]string // why, by the name of the segment
}

const (
	// takeBytes of lines lie between two looks at what is finished.
	takeBytes = 64 << 10
	// roundBytes of lines are a round's at most: a rank that finishes no step (its job hangs, or
	// the kind Step is off) holds up the others no longer than it takes to read them.
	roundBytes = 8 << 20
)

// read goes on until a finished step starts at `until` or later, the round's
// bytes are used up, or there is no more.
func (k *rankReader) read(ctx context.Context, until int64, drain bool) (*row.Rows, error) {
	budget := int64(roundBytes)
	for !k.atEnd && (k.newest == math.MinInt64 || k.newest < until) && budget > 0 {
		if err := ctx.Err(); err != nil {
			return nil, err
		}

		done, n, err := k.some(min(budget, takeBytes))
		if err != nil {
			return nil, fmt.Errorf("read rank %d: %w", k.dir.Rank, err)
		}

		budget -= n
		k.atEnd = done
		k.collect()
	}

	if k.atEnd && drain && !k.over {
		k.stream.End()
		k.over = true
		k.collect()
	}

	return &k.rows, nil
}

func (k *rankReader) collect() {
	from := len(k.rows.Steps)
	k.stream.Take(&k.rows)
	k.rows.Raws, k.rows.Ledger = row.Raws{}, nil
	for _, s := range k.rows.Steps[from:] {
		k.newest = max(k.newest, s.StartNs)
		if s.StepNs > 0 {
			k.length = s.StepNs
		}
	}
}

// some reads about n bytes of lines. done says that there are no more now.
func (k *rankReader) some(n int64) (done bool, read int64, err error) {
	list, err := segment.List(k.dir.Path)
	if err != nil {
		return false, 0, err
	}

	at := slices.IndexFunc(list, func(s segment.Info) bool { return plainName(s.Name) == k.segment })
	if at < 0 {
		// Not begun, or the segment was aged away: the next one that is there.
		was, _ := segment.Number(k.segment)
		at = slices.IndexFunc(list, func(s segment.Info) bool { return k.segment == "" || s.Number > was })
		if at < 0 {
			return true, 0, nil
		}

		k.segment, k.offset, k.resume = plainName(list[at].Name), 0, false
	}

	path := filepath.Join(k.dir.Path, list[at].Name)
	f, err := segment.OpenReader(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, 1, nil // aged away, or compressed, just now: look again
	}

	if err != nil {
		return false, 0, err
	}

	defer func() { err = errors.Join(err, f.Close()) }()
	if k.resume && k.offset > 0 { // else the first line tells the stream below
		line, _, err := f.Next()
		if errors.Is(err, io.EOF) && f.Damage() != nil {
			return k.end(f, list, at), 1, nil
		}

		if err != nil {
			return false, 0, fmt.Errorf("read %s: %w", path, err)
		}

		k.stream.Segment(segment.Identity(k.dir.Job, k.dir.Rank, list[at].Name, line), list[at].Name)
	}

	k.resume = false
	if k.offset > 0 {
		if err := f.SeekTo(k.offset); err != nil {
			return false, 0, err
		}
	}

	for read < n {
		line, offset, err := f.Next()
		if errors.Is(err, io.EOF) {
			return k.end(f, list, at), read + 1, nil
		}

		if err != nil {
			return false, read, fmt.Errorf("read %s: %w", path, err)
		}

		if offset == 0 {
			k.stream.Segment(segment.Identity(k.dir.Job, k.dir.Rank, list[at].Name, line), list[at].Name)
		}

		k.stream.Line(offset, line)
		k.offset = f.Offset()
		read += int64(len(line)) + 1
	}

	return false, read, nil
}

// end goes on behind the segment that was read to its end, where another follows;
// last says that none does.
func (k *rankReader) end(f *segment.Reader, list []segment.Info, at int) (last bool) {
	if damage := f.Damage(); damage != nil {
		if k.damaged == nil {
			k.damaged = map[string]string{}
		}

		k.damaged[list[at].Name] = damage.Error()
	}

	if at == len(list)-1 {
		return true
	}

	k.stream.Torn(f.Torn())
	k.segment, k.offset = plainName(list[at+1].Name), 0
	return false
}

func plainName(name string) string {
	if ext := filepath.Ext(name); ext != "" {
		return name[:len(name)-len(ext)]
	}

	return name
}

// newest returns when a segment of the job was written last.
func (t *tree) newest(_ context.Context, job string) (time.Time, error) {
	dirs, err := segment.Walk(t.dir)
	if err != nil {
		return time.Time{}, fmt.Errorf("look at job %s in %s: %w", quoteIfOdd(job), t.dir, err)
	}

	var newest time.Time
	for _, d := range dirs {
		if d.Job != job {
			continue
		}

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
