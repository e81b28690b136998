package intake

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/segment"
	"github.com/laggard-dev/laggard/writer/ship"
	"github.com/laggard-dev/laggard/writer/tail"
)

// Follower ships the segments under a root for as long as it runs. Run does the
// work; the other methods may be called from any goroutine.
type Follower struct {
	root   string
	memory int64 // the process's
	sink   ship.Sink
	store  string
	o      Options
	e      *engine
	hints  chan struct{}
	syncs  chan chan error
	// changed is that there is more to see than segments that have grown.
	changed atomic.Bool

	// Owned by Run's goroutine.
	waiting map[string]*tail.Lease // refused leases, with their claims
	cursor  map[record.RankID]segment.Position
	noted   time.Time // what is acknowledged
	saved   time.Time // the cursor
	dirty   bool
	hold    int64  // see HoldAtMost
	problem string // what could not be read at the last look, "" nothing

	mu      sync.Mutex
	shipped map[string]int64               // guarded by mu; by rank directory, the number of the first segment that is not acknowledged
	streams map[string]*tail.Stream        // guarded by mu; of the directories that are shipped
	aged    map[record.RankID][]row.Ledger // guarded by mu; for the store's ledger
	state   Report                         // guarded by mu; as of the last note
}

// NewFollower returns a follower of the rank directories under root. The
// directory need not exist yet.
func NewFollower(root string, sink ship.Sink, o Options) (*Follower, error) {
	o = o.withDefaults()
	memory := shareMemory(&o.Ship, ship.DefaultMemory)
	o.Ship.BatchBytes = memory / 10
	o.Quantum = cmp.Or(max(o.Quantum, 0), defaultQuantum)
	o.Ship.DeadLetters = deadLetters(o.State)
	shipper, err := ship.New(sink, o.Ship)
	if err != nil {
		return nil, err
	}

	f := &Follower{
		root: root, memory: memory, sink: sink, store: sink.Name(), o: o, e: newEngine(root, shipper, o, newReport(sink.Name())),
		hints: make(chan struct{}, 1), syncs: make(chan chan error),
		waiting: map[string]*tail.Lease{}, cursor: map[record.RankID]segment.Position{}, shipped: map[string]int64{},
		streams: map[string]*tail.Stream{}, aged: map[record.RankID][]row.Ledger{},
	}
	if o.State != "" {
		cursor, shard, err := tail.LoadCursor(cursorPath(o.State, f.store), f.store)
		if err != nil {
			o.Logger.Warn("cursor not usable, the store tells what it has", "err", err)
		}

		maps.Copy(f.cursor, cursor)
		if s, ok := sink.(ship.Remote); ok && shard != "" {
			s.KeepShard(shard)
		}
	}

	f.e.marks = true
	return f, nil
}

// deadLetters is the file of dead letters in a state folder, "" where none is kept.
func deadLetters(state string) string {
	if state == "" {
		return ""
	}

	return filepath.Join(state, "dead-letters.jsonl")
}

// Hint says that there are new segments, or others; the follower looks soon.
func (f *Follower) Hint() {
	f.changed.Store(true)
	f.Grown()
}

// Grown says that segments are longer than they were; the follower reads on soon.
// Whatever else has changed it sees within a second, as without any hint.
func (f *Follower) Grown() {
	select {
	case f.hints <- struct{}{}:
	default:
	}
}

// Sync reads what is on disk now and waits until it is acknowledged. What is open
// (a step that has not ended) stays open.
func (f *Follower) Sync(ctx context.Context) error {
	done := make(chan error, 1)
	select {
	case f.syncs <- done:
	case <-ctx.Done():
		return fmt.Errorf("sync: %w", ctx.Err())
	}

	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("sync: %w", ctx.Err())
	}
}

// Run follows until ctx ends, then ships the rest within Options.Grace. It
// returns an error when the rest could not be shipped in time; nothing is lost
// then, the next start goes on.
func (f *Follower) Run(ctx context.Context) error {
	defer collectOften()()
	defer limitMemory(f.memory, 0)()
	watcher := tail.NewWatcher(f.o.Logger)
	g, inner := errgroup.WithContext(context.WithoutCancel(ctx))
	shipping, stopShipping := context.WithCancel(inner)
	watching, stopWatching := context.WithCancel(inner)
	g.Go(func() error { return f.e.shipper.Run(shipping) })
	g.Go(func() error {
		return watcher.Run(watching, func(grown bool) {
			if grown {
				f.Grown()
			} else {
				f.Hint()
			}
		})
	})
	g.Go(func() error {
		defer stopShipping()
		defer stopWatching()
		if err := f.loop(ctx, inner, watcher); err != nil {
			return err
		}

		return f.finish(inner)
	})
	err := g.Wait()
	if err == nil {
		err = compact(context.WithoutCancel(ctx), f.sink, f.o.Grace)
	}

	f.mu.Lock()
	clear(f.streams) // nothing is released any more
	f.mu.Unlock()
	for _, l := range f.waiting {
		err = errors.Join(err, l.Close())
	}

	return errors.Join(err, f.e.close())
}

// loop scans and reads until ctx ends. inner ends when the shipper fails. A scan looks
// at each segment that there is, so where segments have only grown it reads on without one.
func (f *Follower) loop(ctx, inner context.Context, watcher *tail.Watcher) error {
	both, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(inner, cancel)()
	tick := time.NewTicker(rescanEvery)
	defer tick.Stop()
	var done chan error
	ranks := 0
	for look := true; ; {
		began := time.Now()
		if look {
			f.changed.Store(false)
			watcher.Watch(f.root, f.scan(), f.own)
			if n := len(f.e.members); n != ranks {
				ranks = n
				limitMemory(f.memory, ranks)
			}

			f.refresh()
		}

		look = true
		cut, err := f.shortPass(both, done != nil)
		if cut && both.Err() == nil {
			f.save(false)
			continue // there may be new ranks, and others may want theirs
		}

		if done != nil && err == nil {
			err = f.e.shipper.Flush(both)
		}

		if done != nil {
			f.save(true)
			done <- err
			done = nil
		}

		f.save(false)
		if both.Err() != nil {
			return context.Cause(inner)
		}

		select {
		case <-both.Done():
			return context.Cause(inner)
		case done = <-f.syncs:
			continue
		case <-tick.C:
			continue
		case <-f.hints:
		}

		done = f.pause(both, scanApart-time.Since(began))
		look = f.changed.Swap(false) || done != nil
	}
}

// pause lets hints gather for that long: many are one. A Sync ends it, and is returned.
func (f *Follower) pause(ctx context.Context, rest time.Duration) (done chan error) {
	if rest <= 0 {
		return nil
	}

	over := time.NewTimer(rest)
	defer over.Stop()
	select {
	case <-ctx.Done():
	case done = <-f.syncs:
	case <-over.C:
	}

	return done
}

// shortPass is a pass that ends after a while, done or not: cut tells. A store that
// does not answer must not keep the follower from looking what there is.
func (f *Follower) shortPass(ctx context.Context, mark bool) (cut bool, err error) {
	short, cancel := context.WithTimeout(ctx, passAtMost)
	defer cancel()
	err = f.pass(short, mark)
	return err != nil && short.Err() != nil, err
}

// passAtMost is how long one pass may keep the next scan waiting.
const passAtMost = time.Second

// refresh looks what segments the members have, and what is known beside them: what ageing took,
// parallel groups. A member that can't be listed is told of, and does not keep the others.
func (f *Follower) refresh() {
	for _, m := range f.e.members {
		f.enterAged(m)
		m.roller.Learn()
		if err := m.stream.Refresh(); err != nil {
			f.problem = err.Error()
		}
	}
}

// pass reads all members to their ends, in turns. With mark each then puts its position, whether or
// not it is time: who asked for a Sync wants to see it acknowledged.
func (f *Follower) pass(ctx context.Context, mark bool) error {
	for busy := true; busy; {
		busy = false
		for _, m := range f.e.members {
			if err := ctx.Err(); err != nil {
				return err
			}

			if f.overheld() {
				if err := f.settle(ctx); err != nil {
					return err
				}
			}

			_, more, err := f.e.turn(ctx, m)
			if err != nil {
				return err
			}

			busy = busy || more || m.stream.Waits()
		}

		f.save(false)
	}

	if mark {
		for _, m := range f.e.members {
			if err := f.e.take(ctx, m, true); err != nil {
				return err
			}
		}
	}

	return nil
}

// finish ships what is left on disk, within the grace.
func (f *Follower) finish(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, f.o.Grace)
	defer cancel()
	f.scan()
	f.refresh()
	err := f.pass(ctx, false)
	if err == nil {
		err = f.close(ctx)
	}

	if err == nil {
		err = f.e.shipper.Flush(ctx)
	}

	if err == nil {
		f.awaitCopies(ctx)
	}

	f.save(true)
	if err == nil && f.problem != "" {
		return fmt.Errorf("ship the rest: %s; the other ranks are shipped, what could not be read is for the next start", f.problem)
	}

	if err != nil {
		return fmt.Errorf("ship the rest to %s within %s: %w; nothing is lost, the next start goes on", f.store, f.o.Grace, err)
	}

	return nil
}

// lastCopies is how long a follower that leaves waits for second copies of the last rows.
// Without them the next one looks up what is stored since its cursor.
const lastCopies = 3 * time.Second

// awaitCopies lets the last rows be copied, for a moment.
func (f *Follower) awaitCopies(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lastCopies)
	defer cancel()
	if err := f.e.shipper.AwaitCopies(ctx); err != nil {
		f.o.Logger.Info("left to the next start: what it stored last is in one replica so far")
	}
}

// close puts the account of the segments that are being read, as it stands, and
// the last positions. What TaskD's lines leave open is put as Once puts it: nothing
// would ever close it. The last step of others is closed by their end, or by the next
// one: it is left to whoever ships them then, and so are steps that wait for their
// groups.
func (f *Follower) close(ctx context.Context) error {
	left, held := 0, 0
	for _, m := range f.e.members {
		if m.roller.Held() {
			held++
		} else if m.roller.Endless() {
			m.roller.End()
		} else if m.roller.Open() > 0 {
			left++
		}

		f.enterAged(m)
		m.closeSegment()
		if err := f.e.take(ctx, m, true); err != nil {
			return err
		}
	}

	if held > 0 {
		f.o.Logger.Info("left to the next start, or to `laggard ingest`: the first steps of ranks that have no parallel_group.json yet", "ranks", held)
	}

	if left > 0 {
		f.o.Logger.Info("left to the next start: the last step of ranks whose processes go on", "ranks", left)
	}

	return nil
}
