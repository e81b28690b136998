// Package agent is laggard's sidecar: it drains the rings of a machine's training
// processes into segment files, keeps these under a disk cap, ships them to a store, and
// answers the switch, metrics and health endpoints.
//
// Invariant: it ends the record's way. The drain stops first, when the recorders are gone
// or the grace is nearly over; then the follower ships what the drain wrote; what is left
// in rings is an error that names it. Caveat: it composes packages of the collector, the
// writer and ageing, and is the only one below the command that knows them all.
package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/laggard-dev/laggard/ageing"
	"github.com/laggard-dev/laggard/collector/drain"
	"github.com/laggard-dev/laggard/collector/ring"
	"github.com/laggard-dev/laggard/collector/switchboard"
	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/clickhouse"
	"github.com/laggard-dev/laggard/writer/intake"
	"github.com/laggard-dev/laggard/writer/ledger"
	"github.com/laggard-dev/laggard/writer/segment"
	"github.com/laggard-dev/laggard/writer/tail"
	"github.com/laggard-dev/laggard/writer/taskd"
)

// agent is what runs: rings → drain → segments → follower → store, with ageing beside it.
type agent struct {
	o        Options
	drain    *drain.Drain
	follower *intake.Follower // nil without a store
	ageing   *ageing.Loop
	ledger   *ledger.Ledger
	board    *switchboard.Board
	left     error // what the drain left in the rings

	mu  sync.Mutex
	own map[record.RankID]*segment.Turn // guarded by mu: ranks of our rings, and what their writers share
}

// noRecorder is how long --until-idle waits for the first recorder.
const noRecorder = 10 * time.Minute

// errNoRecorder is the end of an agent that waited for nothing.
var errNoRecorder = errors.New("agent: no recorder has made a ring in 10 minutes: check LAGGARD_RUN of the trainers against --ring-dir, and LAGGARD_TRACE")

// Run runs an agent until ctx ends, or until all is idle where Options.UntilIdle says so.
// The error says what it left undone.
func Run(ctx context.Context, o Options) error {
	a := &agent{o: o, own: map[record.RankID]*segment.Turn{}}
	if err := a.build(); err != nil {
		return err
	}

	return errors.Join(a.run(ctx), a.left, a.ledger.Close())
}

// build makes the parts; it starts none.
func (a *agent) build() error {
	if err := os.MkdirAll(a.o.Dir, 0o755); err != nil {
		return fmt.Errorf("make profiling directory %s: %w; name another with --dir", a.o.Dir, err)
	}

	var err error
	if a.ledger, err = ledger.Open(a.o.Dir); err != nil {
		return err
	}

	self, err := ring.Self()
	if err == nil {
		err = taskd.Settle(a.o.Dir, filepath.Join(a.o.Dir, ".laggard"), self.BootID)
	}

	if err != nil {
		a.o.Logger.Warn("a write that was broken off is not settled", "err", err)
	}

	a.board = switchboard.New(switchboard.Options{
		RunDir: a.o.RingDir, Node: a.o.Node, Job: a.o.JobName, Seen: a.jobs,
		Unnamed: func() string { return a.drain.Unnamed() }, // of the drain that is made next
	})
	files, _ := a.shares()
	a.drain, err = drain.New(drain.Options{
		RunDir: a.o.RingDir, Open: a.openSegment, Node: a.o.Node, Pod: a.o.Pod, Logger: a.o.Logger, Trust: a.trust(), Wanted: a.board.Wanted,
		Drained: a.grown, Rotated: a.rotated, Files: files,
	})
	if err != nil {
		return err
	}

	if a.o.Store != "" {
		if err := a.buildFollower(); err != nil {
			return err
		}
	}

	a.ageing, err = ageing.New(a.ageingOptions())
	return err
}

// buildFollower opens the store and makes what ships to it. A store that is down now is no error:
// rows wait in the segments.
func (a *agent) buildFollower() error {
	sink, err := intake.OpenStore(a.o.Store, clickhouse.Options{Job: a.o.Job, Node: a.o.Node, AsyncInsert: a.o.Intake.AsyncInsert, Logger: a.o.Logger})
	if err != nil {
		return err
	}

	o := a.o.Intake
	o.State = cmp.Or(o.State, filepath.Join(a.o.Dir, ".laggard"))
	o.Logger = a.o.Logger
	o.Own, o.Node = a.owns, a.o.Node
	_, o.Ranks = a.shares()
	o.Files = min(o.Ranks/2, tail.DefaultFiles)
	o.Ship.Flush = a.o.Flush
	o.Grace = a.o.Grace
	a.follower, err = intake.NewFollower(a.o.Dir, sink, o)
	return err
}

// beside is how many files are open beside those of rings and ranks: some 17 listeners,
// watches, logs and accounts, and for moments a connection, a folder's listing, the next
// segment, a row group. Who has none left can't flush a line, and so never gives a ring up.
const beside = 26

// shares returns how many descriptors the drain may hold, and how many rank directories
// the shipper, which opens half as many segments. The shares are fixed: if each took what
// it found free, both would take the last ones.
func (a *agent) shares() (files, ranks int) {
	rest := max(ring.OpenFiles()-beside, 16)
	if a.o.Store == "" {
		return rest, 0
	}

	files = rest / 4
	return files, 2 * (rest - files) / (2*intake.RankFiles + 1)
}

// owns reports whether the rank's recorder was seen here.
func (a *agent) owns(rank record.RankID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.own[rank] != nil
}

// jobs lists the jobs whose recorders were seen here.
func (a *agent) jobs() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var jobs []string
	for rank := range a.own {
		jobs = append(jobs, rank.Job)
	}

	slices.Sort(jobs)
	return slices.Compact(jobs)
}

// account enters what was lost into the ledger, and into the store's.
func (a *agent) account(rows []row.Ledger) error {
	rows = slices.Clone(rows)
	for _, r := range rows { // lost or not, they were emitted
		r.State, r.Reason, r.Bytes = "emitted", r.State+":"+r.Reason, 0
		rows = append(rows, r)
	}

	if err := a.ledger.Append(rows...); err != nil || a.follower == nil {
		return err
	}

	a.follower.Account(rows)
	return nil
}

// ageingOptions makes the account of what ageing deletes close: emitted = stored +
// summarised + aged + dropped. What the follower has begun is held until the store
// has it, so the follower may be ahead of the store by a quarter of the cap only.
func (a *agent) ageingOptions() ageing.Options {
	aged, err := ledger.Aged(a.o.Dir)
	if err != nil {
		a.o.Logger.Warn("ledger not readable: deletions that were broken off are not finished", "err", err)
	}

	o := ageing.Options{
		Dir: a.o.Dir, Cap: a.o.Cap, SegmentLimit: a.o.SegmentBytes, Log: a.o.Logger,
		Account:   a.account,
		Accounted: func(d segment.RankDir, s segment.Info) bool { return aged(d.RankID, s.Name) },
	}
	if a.follower == nil {
		return o
	}

	a.follower.HoldAtMost(a.o.Cap / 4)
	o.Release = func(d segment.RankDir, s segment.Info, account func() error) error {
		return a.follower.Release(d.Path, s, account)
	}
	o.Shipped = func(d segment.RankDir, s segment.Info) bool { return a.follower.Shipped(d.Path, s.Name) }
	o.Held = func(d segment.RankDir, s segment.Info) bool { return a.follower.Holds(d.Path, s.Name) }
	o.Rank = func(d segment.RankDir) (owned, live bool) {
		// A process that hangs writes nothing and has its segment open all the same.
		return a.follower.Ships(d.Path), a.owns(d.RankID) && !a.drain.Idle()
	}
	return o
}

// run starts all parts and ends them in order: drain, follower, then ageing and what is served.
// Each end is the next one's signal; ctx, which SIGTERM ends, reaches wait alone, so that no part
// leaves before what it has to finish.
func (a *agent) run(ctx context.Context) error {
	g, inner := errgroup.WithContext(context.WithoutCancel(ctx))
	draining, stopDraining := context.WithCancel(inner)
	following, stopFollowing := context.WithCancel(inner)
	serving, stopServing := context.WithCancel(inner)
	defer stopDraining()
	defer stopFollowing()
	defer stopServing()

	if err := a.drain.Begin(); err != nil { // before anything is aged
		a.o.Logger.Warn("drain", "cause", err)
	}

	g.Go(func() error {
		defer stopFollowing()          // the follower ships what the last pass wrote
		a.left = a.drain.Run(draining) // what is on disk is shipped all the same
		return nil
	})
	g.Go(func() error {
		defer stopServing()
		if a.follower == nil {
			<-following.Done()
			return nil
		}

		return a.follower.Run(following)
	})
	g.Go(func() error { return a.ageing.Run(serving) })
	g.Go(func() error { return a.serve(serving) })
	g.Go(func() error {
		defer stopDraining()
		return a.wait(ctx, draining)
	})
	return g.Wait()
}

// wait returns when the drain may stop: at the end of --until-idle, or after
// SIGTERM when the recorders are gone or the grace is nearly over.
func (a *agent) wait(ctx, draining context.Context) error {
	if a.o.UntilIdle == 0 { // nothing to look for until it is asked to leave
		select {
		case <-draining.Done():
			return nil
		case <-ctx.Done():
		}
	}

	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	started := time.Now()
	idle := time.Now()
	var deadline <-chan time.Time
	asked := ctx.Done()
	sighting := newSighting(a.o.Dir, a.o.RingDir)
	seen := a.o.UntilIdle > 0 && sighting.before(started)
	for {
		select {
		case <-draining.Done():
			return nil
		case <-asked:
			asked = nil
			deadline = time.After(a.o.Grace * 3 / 5) // the rest of the grace is for shipping
			a.o.Logger.Info("leaving: draining what is left")
		case <-deadline:
			return nil
		case <-tick.C:
		}

		if !a.drain.Idle() {
			idle, seen = time.Now(), true
			if a.o.UntilIdle > 0 {
				sighting.note(idle)
			}
		}

		seen = seen || a.drain.Seen()
		switch {
		case asked == nil && a.drain.Idle():
			sighting.forget()
			return nil
		case a.o.UntilIdle == 0:
		case !seen && time.Since(started) > noRecorder:
			return errNoRecorder
		case seen && time.Since(idle) > a.o.UntilIdle:
			err := a.settle(ctx)
			if err == nil {
				sighting.forget()
			}

			return err
		}
	}
}

// settle waits until everything on disk is shipped, however long the store takes, and
// lets go what could not go before; SIGTERM ends the wait.
func (a *agent) settle(ctx context.Context) error {
	if a.follower == nil {
		return nil
	}

	if err := a.follower.Sync(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}

		return err
	}

	a.ageing.LookAndSay(ctx)
	return nil
}
