// Package intake is the way from segments to a store: tail → rollup → ship, once
// over what is there (Once) or for as long as the agent lives (Follower).
//
// Invariant: what a rank directory yields depends on its files alone, and a store
// says itself what it has, so any number of passes, by any machine, killed at any
// point, leave each row in the store once. A directory is shipped by one process
// at a time: the one that holds its lease.
//
// Caveat: Once ends what is open at the end of the files (the last step, a window
// of communication that is not full). Over the files of a rank that still writes
// and is shipped by nobody, a later pass completes the window by a row of its own
// (row.Communication.Complete); the row of a step stays as its end was seen.
package intake

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"time"

	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/schemas/topology"
	"github.com/laggard-dev/laggard/writer/rollup"
	"github.com/laggard-dev/laggard/writer/rollup/merge"
	"github.com/laggard-dev/laggard/writer/segment"
	"github.com/laggard-dev/laggard/writer/ship"
	"github.com/laggard-dev/laggard/writer/tail"
)

// Defaults of Options.
const (
	// defaultQuantum is how much of a rank is read before the next has its turn.
	defaultQuantum = 1 << 20
	// defaultGrace bounds the shipping of the rest on shutdown.
	defaultGrace = 20 * time.Second
	// DefaultGiveUp is how long Once lets a store fail.
	DefaultGiveUp = 5 * time.Minute
	// rescanEvery is how late something is seen that no hint tells of, on NFS for instance.
	rescanEvery = time.Second
	// scanApart bounds the cost of hints: a busy directory changes all the time.
	scanApart = 100 * time.Millisecond
	// markEvery is how far what is acknowledged may lag behind what is stored: a mark is
	// some kilobytes of JSON. Ageing waits for segments that are shipped as a whole, so
	// while one before the current is not, it is markBehind.
	markEvery  = 3 * time.Second
	markBehind = time.Second
	// mostEntries of a rank's account wait for its next position: 48 KiB.
	mostEntries = 256
	// noteEvery bounds what metrics and ageing may lag behind, saveEvery what is read again after a
	// kill: the store then says what it has.
	noteEvery = time.Second
	saveEvery = 3 * time.Second
)

// RankFiles is how many descriptors a Follower's rank directory takes beside its
// segment: its claim, its lease, and how far it is shipped.
const RankFiles = 3

// Options configure Once and a Follower. Zero values mean the defaults.
type Options struct {
	Records rollup.Selection // which raw ranges are stored
	// Node is this machine's name in the cluster, for files that say none (TaskD's) on a
	// disk of its own, see rollup.NewPlacement; "" is unknown.
	Node string
	// State is the directory for cursor and dead letters; "" keeps none (all
	// may be lost without harm to what is stored).
	State string
	// Own tells the ranks whose rings this process drains: other agents hand them
	// over. nil is none.
	Own func(record.RankID) bool
	// Ranks bounds the rank directories that a Follower holds at once, each with RankFiles
	// descriptors; those beyond wait until one is left. 0 is no bound.
	Ranks int
	// Files bounds the segments that are open at once; 0 is tail.DefaultFiles.
	Files int

	// AsyncInsert is clickhouse.Options.AsyncInsert, for who opens the store.
	AsyncInsert bool

	// TrustUIDs are owners of files to read beside ourselves, root and the owner of the
	// job's directory.
	TrustUIDs []uint32

	Ship    ship.Options  // Memory, BatchRows, Flush, GiveUp …; DeadLetters and Logger are set from here
	Quantum int64         // bytes of a rank's turn; 0 is 1 MiB, in a pass more with the memory
	Grace   time.Duration // bounds the shipping of the rest on shutdown; 0 is 20 s
	Logger  *slog.Logger  // nil is silent
	// Progress is called from time to time with the bytes read so far and those
	// known to be there; nil is nobody.
	Progress func(read, known int64)
}

// withDefaults fills in what Once and a Follower have in common.
func (o Options) withDefaults() Options {
	o.Grace = cmp.Or(max(o.Grace, 0), defaultGrace)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))

	o.Ship.Logger = o.Logger
	return o
}

// engine is what Once and Follower have in common. It is used by one goroutine.
type engine struct {
	o       Options
	tree    *tail.Tree
	shipper *ship.Shipper
	members map[string]*member // by path
	report  *Report            // what was lost and altered is added to it
	read    int64
	// part are the rank directories that a pass takes, by path; nil takes all.
	part  map[string]bool
	marks bool // positions are kept: a follower's

	ledger fs.FileInfo // of the profiling directory, as of aged
	aged   func(rank record.RankID, name string) bool

	merged merge.Result                 // jobs that lie in several directories
	jobs   map[string]*rollup.Placement // what was found of each
}

// newEngine prepares an engine; it reads nothing yet. shipper may be nil for who only looks.
func newEngine(root string, shipper *ship.Shipper, o Options, r *Report) *engine {
	return &engine{
		o: o, shipper: shipper, members: map[string]*member{}, report: r,
		tree: tail.New(root, tail.Options{Files: o.Files, TrustUIDs: o.TrustUIDs, Logger: o.Logger}),
		jobs: map[string]*rollup.Placement{},
	}
}

// rollup configures the rollup of a rank by what is known of its job, which is looked for
// once.
func (e *engine) rollup(d segment.RankDir) rollup.Options {
	j := e.jobs[d.Job]
	if j == nil {
		found, servers, err := topology.DiscoverAll(e.tree.Root(), e.merged.Dirs(d.Job))
		if err != nil {
			e.o.Logger.Warn("topology not usable", "err", fmt.Errorf("find topology of job %s: %w", d.Job, err))
		}

		j = rollup.NewPlacement(found, servers, nil, e.o.Node)
		e.jobs[d.Job] = j
	}

	return j.Options(d, e.o.Records)
}

// join makes a stream a member: leased, with a roller, at the position given.
func (e *engine) join(s *tail.Stream, l *tail.Lease, from segment.Position) (*member, error) {
	m := &member{
		stream: s, lease: l,
		out: ship.NewStream(fmt.Sprintf("%s/%d", s.Dir.Job, s.Dir.Rank)), marked: time.Now(),
	}
	m.refuse = func(id record.ID, line []byte, reason, text string) {
		e.report.lose(reason, 0)
		e.shipper.Refuse(id, line, text)
	}
	o := e.rollup(s.Dir)
	o.Refused = m.refuseLine
	m.roller = rollup.New(o)
	aged, err := e.agedOf(s.Dir.RankID)
	if err != nil {
		return nil, fmt.Errorf("read ledger of %s: %w", e.tree.Root(), err)
	}

	if err := s.Guard(aged); err != nil {
		return nil, err
	}

	resumed, err := m.resume(from)
	if errors.Is(err, rollup.ErrPosition) {
		// Of another version: the oldest segment it is, and the store tells what it has.
		e.o.Logger.Warn("position not usable", "dir", s.Dir.Path, "err", err)
		e.tree.Forget(s)
		return nil, nil
	}

	if err != nil {
		return nil, err
	}

	m.altered = m.roller.Altered()
	e.o.Logger.Debug("rank directory taken", "dir", s.Dir.Path, "resumed", resumed)
	e.members[s.Dir.Path] = m
	return m, nil
}

// turn reads up to a quantum of a member and puts the rows that are finished. It
// returns the bytes, and whether there is more of what is known to be there.
func (e *engine) turn(ctx context.Context, m *member) (n int64, more bool, err error) {
	if err := e.rest(ctx, m); err != nil {
		return 0, false, err
	}

	// The roller fills the bundle that is put then.
	if m.spare == nil {
		m.spare = e.shipper.Rows()
	}

	m.roller.Take(m.spare)
	n, more, err = m.stream.Read(e.o.Quantum, m)
	e.read += n
	if err != nil {
		// One file that can't be read must not stop the others; it is tried again.
		if text := err.Error(); text != m.unreadable {
			m.unreadable = text
			e.o.Logger.Error("read segment", "err", err)
		}
	} else if n > 0 {
		m.unreadable = ""
	}

	m.unmarked = m.unmarked || n > 0
	return n, more, e.take(ctx, m, false)
}

// rest puts what a Put that was broken off left behind.
func (e *engine) rest(ctx context.Context, m *member) error {
	if m.rows == nil {
		return nil
	}

	return e.put(ctx, m)
}

// take puts what the roller has finished. A position costs some kilobytes, so it
// goes with the rows once in a while only, or when it is forced, and the entries of the
// account go with it: from the position before a restart makes them again.
func (e *engine) take(ctx context.Context, m *member, force bool) error {
	if err := e.rest(ctx, m); err != nil {
		return err
	}

	rows, turned := m.spare, m.spare != nil
	if m.spare = nil; !turned {
		rows = &row.Rows{} // it is not filled: the roller gives its own memory
	}

	m.roller.Take(rows)
	if now := m.roller.Altered(); !maps.Equal(now, m.altered) {
		for reason, n := range now {
			e.report.Altered[reason] += n - m.altered[reason]
		}

		m.altered = now
	}

	for _, l := range m.stream.Losses() {
		e.report.lose(l.Reason, int64(l.Bytes))
		m.lose(l)
	}

	mark := e.marks && m.unmarked && (force || m.markDue())
	if mark || force || !m.unmarked || len(m.entries) >= mostEntries { // nobody waits for them: each insert costs the store the same
		rows.Ledger = append(rows.Ledger, m.entries...)
		m.entries = m.entries[:0]
	}

	if rows.Len() == 0 && !mark {
		if turned {
			e.shipper.Recycle(rows)
		}

		return nil
	}

	m.rows, m.mark = rows, nil
	if mark {
		p := m.position()
		m.mark, m.unmarked, m.marked, m.behind = p, false, time.Now(), p.Segment != m.reading
	}

	return e.put(ctx, m)
}

// put hands a member's rows over. What a Put that was broken off did not take stays the member's.
func (e *engine) put(ctx context.Context, m *member) error {
	if err := e.shipper.Put(ctx, m.out, m.rows, m.mark); err != nil {
		return err
	}

	m.rows, m.mark = nil, nil
	return nil
}

// close closes files, and gives the leases up last: nobody else ships a directory before.
func (e *engine) close() error {
	e.tree.Close()
	var errs []error
	for _, m := range e.members {
		errs = append(errs, m.lease.Close())
	}

	return errors.Join(errs...)
}
