package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/laggard-dev/laggard/ageing"
	"github.com/laggard-dev/laggard/collector/drain"
	"github.com/laggard-dev/laggard/collector/ring"
	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/intake"
	"github.com/laggard-dev/laggard/writer/ledger"
	"github.com/laggard-dev/laggard/writer/segment"
	"github.com/laggard-dev/laggard/writer/taskd"
)

// agent is the sidecar's cast: rings → drain → segments → follower → store, with
// ageing beside it.
//
// Ending goes the record's way: the drain stops first, when the recorders are gone
// or the grace is nearly over; then the follower ships what the drain wrote.
type agent struct {
	o        *agentOptions
	log      *slog.Logger
	drain    *drain.Drain
	follower *intake.Follower // nil without a store
	ageing   *ageing.Loop
	ledger   *ledger.Ledger
	switches *switches
	left     error // what the drain left in the rings

	mu  sync.Mutex
	own map[rankKey]*segment.Turn // guarded by mu: ranks of our rings, and what their writers share
}

type rankKey struct {
	job  string
	rank int
}

// noRecorder is how long --until-idle waits for the first recorder.
const noRecorder = 10 * time.Minute

// errNoRecorder is the end of an agent that waited for nothing.
var errNoRecorder = errors.New("agent: no recorder has made a ring in 10 minutes: check LAGGARD_RUN of the trainers against --ring-dir, and LAGGARD_TRACE")

func runAgent(ctx context.Context, o *agentOptions, log *slog.Logger) error {
	a := &agent{o: o, log: log, own: map[rankKey]*segment.Turn{}}
	if err := a.build(ctx); err != nil {
		return err
	}
	return errors.Join(a.run(ctx), a.left, a.ledger.Close())
}

// build makes the parts; it starts none.
func (a *agent) build(ctx context.Context) error {
	if err := os.MkdirAll(a.o.dir, 0o755); err != nil {
		return fmt.Errorf("make profiling directory %s: %w; name another with --dir", a.o.dir, err)
	}
	var err error
	if a.ledger, err = ledger.Open(a.o.dir, ledger.Options{}); err != nil {
		return err
	}
	self, err := ring.Self()
	if err == nil {
		err = taskd.Settle(a.o.dir, filepath.Join(a.o.dir, ".laggard"), self.BootID)
	}
	if err != nil {
		a.log.Warn("a write that was broken off is not settled", "err", err)
	}
	a.switches = newSwitches(switchOptions{
		runDir: a.o.ringDir, file: a.o.switchFile, node: a.o.node, jobName: a.o.jobName, log: a.log, known: a.hasJob,
		unnamed: func() string { return a.drain.Unnamed() },
	})
	a.drain, err = drain.New(drain.Options{
		RunDir: a.o.ringDir, Open: a.openSegment, Node: a.o.node, Pod: a.o.pod, Logger: a.log, Trust: a.trust(), Wanted: a.switches.wanted,
		Drained: a.grown,
	})
	if err != nil {
		return err
	}
	if a.o.store != "" {
		if err := a.buildFollower(ctx); err != nil {
			return err
		}
	}
	a.ageing, err = ageing.New(a.ageingOptions())
	return err
}

func (a *agent) buildFollower(ctx context.Context) error {
	sink, err := intake.OpenStore(ctx, a.o.store, intake.StoreOptions{Logger: a.log})
	if err != nil {
		return err
	}
	o, err := a.o.shipping.options()
	if err != nil {
		return err
	}
	if o.State == "" {
		o.State = filepath.Join(a.o.dir, ".laggard")
	}
	o.Logger = a.log
	o.Own, o.Node = a.owns, a.o.node
	o.Room = func() bool { return drain.FreeFiles() >= drain.SpareFiles }
	o.Ship.Flush = a.o.flush
	o.Grace = a.o.grace
	a.follower, err = intake.NewFollower(a.o.dir, sink, o)
	return err
}

// openSegment returns the segment writer of a new incarnation.
func (a *agent) openSegment(m record.Meta) (drain.Writer, error) {
	a.mu.Lock()
	turn := a.own[rankKey{m.Job, m.Rank}]
	if turn == nil {
		turn = new(segment.Turn)
		a.own[rankKey{m.Job, m.Rank}] = turn
	}
	a.mu.Unlock()
	dir := filepath.Join(a.o.dir, m.Job, strconv.Itoa(m.Rank))
	var w named
	var err error
	if a.o.format == "taskd" {
		w, err = taskd.Open(dir, m, taskd.Options{State: filepath.Join(a.o.dir, ".laggard"), Limit: a.o.segmentBytes, Turn: turn, Account: a.account})
	} else {
		w, err = segment.Open(dir, m, segment.Options{Limit: a.o.segmentBytes, Turn: turn, TrustUIDs: a.o.uids(), OnClose: a.segmentClosed})
	}
	if err != nil {
		return nil, err
	}
	a.hint() // a rank directory may be new
	return &rotating{named: w, rotated: a.rotated}, nil
}

// rotated ages before another segment is filled, so the tree stays under its cap
// however fast it grows, and shows the follower the new one.
func (a *agent) rotated() {
	a.ageing.MakeRoom(context.Background())
	a.hint()
}

// named is a writer of segments that tells which one it is at.
type named interface {
	drain.Writer
	Name() string
}

// rotating is a segment writer that says when it has begun another segment, so
// that nobody need wait for the next look.
type rotating struct {
	named
	rotated func()
	name    string
}

// AppendRecord implements drain.Writer.
func (r *rotating) AppendRecord(rec *record.Record) error {
	err := r.named.AppendRecord(rec)
	r.look()
	return err
}

// Flush implements drain.Writer.
func (r *rotating) Flush() error {
	err := r.named.Flush()
	r.look()
	return err
}

func (r *rotating) look() {
	if name := r.named.Name(); name != r.name {
		r.name = name
		r.rotated()
	}
}

// grown tells the follower that segments are longer.
func (a *agent) grown() {
	if a.follower != nil {
		a.follower.Grown()
	}
}

// hint tells the follower that there are other segments than before.
func (a *agent) hint() {
	if a.follower != nil {
		a.follower.Hint()
	}
}

// segmentClosed compresses a segment when it is to be.
func (a *agent) segmentClosed(path string) {
	if a.o.compress {
		if _, err := segment.Compress(path); err != nil {
			a.log.Warn("segment not compressed", "segment", path, "err", err)
		}
	}
	a.hint()
}

func (a *agent) owns(job string, rank int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.own[rankKey{job, rank}] != nil
}

// hasJob tells whether recorders of the job were seen here.
func (a *agent) hasJob(job string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for k := range a.own {
		if a.switches.job(k.job) == job {
			return true
		}
	}
	return false
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
	aged, err := ledger.Aged(a.o.dir)
	if err != nil {
		a.log.Warn("ledger not readable: deletions that were broken off are not finished", "err", err)
	}
	o := ageing.Options{
		Dir: a.o.dir, Cap: a.o.capBytes, SegmentLimit: a.o.segmentBytes, Log: a.log,
		Account: func(rows []row.Ledger) error {
			if len(rows) > 0 && aged(rows[0].Job, int(rows[0].Rank), rows[0].Name) {
				return nil // by an agent that died before the unlink
			}
			return a.account(rows)
		},
	}
	if a.follower == nil {
		return o
	}
	a.follower.HoldAtMost(a.o.capBytes / 4)
	o.Release = func(d segment.RankDir, s segment.Info, account func() error) error {
		return a.follower.Release(d.Path, s, account)
	}
	o.Shipped = func(d segment.RankDir, s segment.Info) bool { return a.follower.Shipped(d.Path, s.Name) }
	o.Accounted = func(d segment.RankDir, s segment.Info) bool { return aged(d.Job, d.Rank, s.Name) }
	o.Rank = func(d segment.RankDir, infos []segment.Info) ageing.RankState {
		state := ageing.RankState{Owned: a.follower.Ships(d.Path)}
		// A process that hangs writes nothing and has its segment open all the same.
		quiet := time.Since(infos[len(infos)-1].ModTime) > 10*time.Minute
		state.Live = !quiet || a.owns(d.Job, d.Rank) && !a.drain.Idle()
		for _, s := range infos {
			if a.follower.Holds(d.Path, s.Name) {
				state.Open = append(state.Open, s.Name)
			}
		}
		return state
	}
	return o
}

// run has the whole cast on the stage, in order.
func (a *agent) run(ctx context.Context) error {
	g, inner := errgroup.WithContext(context.WithoutCancel(ctx))
	draining, stopDraining := context.WithCancel(inner)
	following, stopFollowing := context.WithCancel(inner)
	serving, stopServing := context.WithCancel(inner)
	defer stopDraining()
	defer stopFollowing()
	defer stopServing()

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
	if a.o.untilIdle == 0 { // nothing to look for until it is asked to leave
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
	sighting := newSighting(a.o.dir, a.o.ringDir)
	seen := a.o.untilIdle > 0 && sighting.before(started)
	for {
		select {
		case <-draining.Done():
			return nil
		case <-asked:
			asked = nil
			deadline = time.After(a.o.grace * 3 / 5) // the rest of the grace is for shipping
			a.log.Info("leaving: draining what is left")
		case <-deadline:
			return nil
		case <-tick.C:
		}
		if !a.drain.Idle() {
			idle, seen = time.Now(), true
			if a.o.untilIdle > 0 {
				sighting.note(idle)
			}
		}
		seen = seen || a.drain.Seen() > 0
		switch {
		case asked == nil && a.drain.Idle():
			sighting.forget()
			return nil
		case a.o.untilIdle == 0:
		case !seen && time.Since(started) > noRecorder:
			return errNoRecorder
		case seen && time.Since(idle) > a.o.untilIdle:
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
