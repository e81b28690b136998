package intake

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/laggard-dev/laggard/writer/rollup/merge"
	"github.com/laggard-dev/laggard/writer/segment"
	"github.com/laggard-dev/laggard/writer/ship"
	"github.com/laggard-dev/laggard/writer/tail"
)

// ErrNothing is returned, wrapped, by Once for a directory without any rank.
var ErrNothing = errors.New("no rank directories in it; want <dir>/<job>/<rank>/<unix seconds>")

// Once reads all segments under root and stores what the store has not yet. A
// directory that a live process ships is reported and left alone. Where the store has
// shards each takes the ranks of its nodes, one shard after the other.
func Once(ctx context.Context, root string, sink ship.Sink, o Options) (Report, error) {
	if o.Ship.GiveUp == 0 {
		o.Ship.GiveUp = DefaultGiveUp
	}

	o = o.withDefaults()
	r := newReport(sink.Name())
	shards, err := byShard(ctx, root, sink, o)
	if err != nil {
		return *r, err
	}

	if shards == nil {
		err := pass(ctx, root, sink, nil, o, r)
		return *r, err
	}

	for _, name := range slices.Sorted(maps.Keys(shards)) {
		sink.(ship.Remote).KeepShard(name)
		if err := pass(ctx, root, sink, shards[name], o, r); err != nil {
			return *r, fmt.Errorf("shard %s: %w", name, err)
		}
	}

	return *r, nil
}

// pass is Once into one shard, of the rank directories of part (nil: of all); r is added to.
func pass(ctx context.Context, root string, sink ship.Sink, part map[string]bool, o Options, r *Report) error {
	if err := sink.Ping(ctx); err != nil { // a store that is not there is an error at once instead of a retry
		return err
	}

	memory := shareMemory(&o.Ship, 4*ship.DefaultMemory)
	o.Quantum = cmp.Or(max(o.Quantum, 0), max(o.Ship.Memory/4, defaultQuantum)) // few large batches, of few ranks each
	o.Ship.DeadLetters = deadLetters(o.State)
	shipper, err := ship.New(sink, o.Ship)
	if err != nil {
		return err
	}

	e := newEngine(root, shipper, o, r)
	e.part = part
	if err = e.once(ctx, memory); err == nil {
		err = compact(ctx, sink, time.Minute)
	}

	r.add(shipper.Stats(), e.tree)
	return errors.Join(err, e.close())
}

// compact lets a sink that keeps many small files tidy up when nothing more comes.
func compact(ctx context.Context, sink ship.Sink, most time.Duration) error {
	c, ok := sink.(interface{ Compact(context.Context) error })
	if !ok {
		return nil
	}

	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	if err := c.Compact(ctx); err != nil && ctx.Err() == nil {
		return err
	}

	return nil // what there was no time for is left to the next one: all is stored
}

// once ships what is there: it takes the lease of every rank it may, reads them to their ends, and
// returns when the store has acknowledged all of it and holds the copies that are asked for.
func (e *engine) once(ctx context.Context, memory int64) error {
	r := e.report
	streams, err := e.tree.Scan()
	if err != nil {
		if len(streams) == 0 {
			return err
		}

		for _, p := range strings.Split(err.Error(), "\n") {
			if !slices.Contains(r.Problems, p) { // the pass into another shard has said it
				r.Problems = append(r.Problems, p)
			}
		}
	}

	if len(streams) == 0 {
		return fmt.Errorf("ingest %s: %w", e.tree.Root(), ErrNothing)
	}

	r.Notes = e.gather(streams)
	var members []*member
	for _, s := range streams {
		if e.part != nil && !e.part[s.Dir.Path] {
			continue
		}

		m, err := e.lease(s)
		if err != nil {
			return err
		}

		if m != nil {
			members = append(members, m)
		}
	}

	r.Ranks += len(members)
	defer limitMemory(memory, len(members))()
	return e.storeAll(ctx, members)
}

// storeAll reads the members to their ends and stores what they hold.
func (e *engine) storeAll(ctx context.Context, members []*member) error {
	g, ctx := errgroup.WithContext(ctx)
	running, stop := context.WithCancel(ctx)
	g.Go(func() error { return e.shipper.Run(running) })
	g.Go(func() error {
		defer stop()
		if err := e.drain(ctx, members); err != nil {
			return err
		}

		for _, m := range members {
			m.roller.End()
			m.closeSegment()
			if err := e.take(ctx, m, true); err != nil {
				return err
			}
		}

		if err := e.shipper.Flush(ctx); err != nil {
			return err
		}

		return e.shipper.AwaitCopies(ctx)
	})
	return g.Wait()
}

// gather names the streams of a job that lies in several directories by one name.
func (e *engine) gather(streams []*tail.Stream) []string {
	dirs := make([]segment.RankDir, len(streams))
	for i, s := range streams {
		dirs[i] = s.Dir
	}

	e.merged = merge.Directories(dirs)
	for i, s := range streams {
		s.Dir.Job = dirs[i].Job
	}

	return e.merged.Notes("")
}

// lease makes a stream a member, or notes why not.
func (e *engine) lease(s *tail.Stream) (*member, error) {
	l, err := tail.TakeLease(s.Dir.Path, false)
	if errors.Is(err, tail.ErrLeased) {
		e.report.Leased = append(e.report.Leased, s.Dir.Path)
		return nil, l.Close()
	}

	if err != nil {
		return nil, errors.Join(err, l.Close())
	}

	return e.join(s, l, segment.Position{})
}

// drain reads all members to their ends, in turns.
func (e *engine) drain(ctx context.Context, members []*member) error {
	r := e.report
	known := int64(0)
	for _, m := range members {
		if err := m.stream.Refresh(); err != nil {
			r.Problems = append(r.Problems, err.Error())
		}

		known += m.stream.Backlog()
	}

	for busy := true; busy; {
		busy = false
		for _, m := range members {
			n, more, err := e.turn(ctx, m)
			if err != nil {
				return err
			}

			busy = busy || more || n > 0 && m.unreadable != "" || m.stream.Waits() // a file that failed is tried again
		}

		if e.o.Progress != nil {
			e.o.Progress(e.read, max(known, e.read))
		}
	}

	for _, m := range members {
		r.Rest += m.stream.Backlog()
		if m.unreadable != "" {
			r.Problems = append(r.Problems, m.unreadable)
		}
	}

	return nil
}
