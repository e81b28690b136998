package intake

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/rollup"
	"github.com/laggard-dev/laggard/writer/rollup/merge"
	"github.com/laggard-dev/laggard/writer/segment"
	"github.com/laggard-dev/laggard/writer/ship"
	"github.com/laggard-dev/laggard/writer/tail"
)

// Report is what one pass did.
type Report struct {
	Store    string
	Ranks    int      // rank directories read
	Leased   []string // left alone: another process ships them
	Unlocked int      // rank directories in which no lease can be had (read-only)
	Segments uint64   // read to their end; the newest of each rank is not counted
	Lines    uint64
	Bytes    uint64
	Tables   map[string]ship.TableStats
	Losses   map[string]LossSum // by reason
	Altered  map[string]uint64  // records stored otherwise than they came, by reason
	Problems []string           // directories and files that could not be read
	Notes    []string           // jobs that lay in several directories
	Singles  uint64             // rounds of inserts that are in one replica only
	Rest     int64              // bytes of last lines that are not complete yet
}

// Stored returns the number of rows that the pass added, the account's own aside.
func (r Report) Stored() uint64 {
	var n uint64
	for table, t := range r.Tables {
		if table != row.LedgerTable {
			n += t.Inserted
		}
	}

	return n
}

// Found returns the number of rows that the store had already.
func (r Report) Found() uint64 {
	var n uint64
	for table, t := range r.Tables {
		if table != row.LedgerTable {
			n += t.Found
		}
	}

	return n
}

// String says it in a sentence a table or cause.
func (r Report) String() string {
	var b strings.Builder
	if r.Stored() == 0 && r.Found() > 0 {
		fmt.Fprintf(&b, "nothing to store: %s has all %d rows already", r.Store, r.Found())
	} else {
		fmt.Fprintf(&b, "stored %d rows in %s", r.Stored(), r.Store)
		if r.Found() > 0 {
			fmt.Fprintf(&b, ", which had %d of them already", r.Found())
		}
	}

	fmt.Fprintf(&b, " (%d ranks, %d lines, %d bytes)", r.Ranks, r.Lines, r.Bytes)
	tables := make([]string, 0, len(r.Tables))
	for table := range r.Tables {
		tables = append(tables, table)
	}

	slices.Sort(tables)
	for _, table := range tables {
		if t := r.Tables[table]; t.Inserted+t.Found+t.Poisoned > 0 {
			fmt.Fprintf(&b, "\n  %-14s %d stored, %d found", table, t.Inserted, t.Found)
			if t.Poisoned > 0 {
				fmt.Fprintf(&b, ", %d refused by the store and kept as dead letters", t.Poisoned)
			}
		}
	}

	if r.Singles > 0 {
		fmt.Fprintf(&b, "\n  in one replica only: %d rounds of inserts, no second one had them within a minute", r.Singles)
	}

	if n := r.Altered[rollup.WordTooLong]; n > 0 {
		fmt.Fprintf(&b, "\n  cut (%s): words of %d records", rollup.WordTooLong, n)
	}

	if n := r.Altered[rollup.Crowded]; n > 0 {
		fmt.Fprintf(&b, "\n  not waited for (%s): the end of the step of %d records", rollup.Crowded, n)
	}

	if n := r.Altered[rollup.Oversized]; n > 0 {
		fmt.Fprintf(&b, "\n  left out (%s): the members of %d groups", rollup.Oversized, n)
	}

	if n := r.Altered[rollup.NoGroups]; n > 0 {
		fmt.Fprintf(&b, "\n  without dimension (%s): the communication of %d steps, for no parallel_group.json names their communicators", rollup.NoGroups, n)
	}

	for _, reason := range slices.Sorted(maps.Keys(r.Losses)) {
		l := r.Losses[reason]
		fmt.Fprintf(&b, "\n  lost (%s): %d times, %d bytes", reason, l.Events, l.Bytes)
	}

	if len(r.Leased) > 0 {
		fmt.Fprintf(&b, "\n  left to the agent that ships them: %s", strings.Join(r.Leased, ", "))
	}

	if r.Rest > 0 {
		fmt.Fprintf(&b, "\n  left for the next pass: %d bytes of last lines that are not complete (their writer was killed, or is at it)", r.Rest)
	}

	for _, n := range r.Notes {
		fmt.Fprintf(&b, "\n  %s", n)
	}

	for _, p := range r.Problems {
		fmt.Fprintf(&b, "\n  not read: %s", p)
	}

	return b.String()
}

// ErrNothing is returned, wrapped, by Once for a directory without any rank.
var ErrNothing = errors.New("no rank directories in it; want <dir>/<job>/<rank>/<unix seconds>")

// Once reads all segments under root and stores what the store has not yet. A
// directory that a live process ships is reported and left alone.
func Once(ctx context.Context, root string, sink ship.Sink, o Options) (Report, error) {
	if o.Ship.GiveUp == 0 {
		o.Ship.GiveUp = DefaultGiveUp
	}

	o = o.withDefaults()
	r := Report{Store: storeName(sink)}
	if err := reach(ctx, sink); err != nil {
		return r, err
	}

	if o.Ship.Memory <= 0 {
		o.Ship.Memory = onceShare * ship.DefaultMemory
	}

	memory := o.Ship.Memory
	o.Ship.Memory /= onceShare
	o.Ship.DeadLetters = deadLetters(o.State)
	shipper, err := ship.New(sink, o.Ship)
	if err != nil {
		return r, err
	}

	e := newEngine(root, shipper, o)
	e.whole = ship.WholeRows(sink, o.Ship)
	e.batch = e.whole / 4 // the store begins the sooner
	if err = e.once(ctx, memory, &r); err == nil {
		err = compact(ctx, sink, time.Minute)
	}

	stats := shipper.Stats()
	r.Tables, r.Singles, r.Losses, r.Altered = stats.Tables, stats.Singles, e.losses, e.altered
	c := e.tree.Counters()
	r.Segments, r.Lines, r.Bytes = c.Segments, c.Lines, c.Bytes
	return r, errors.Join(err, e.close())
}

// reach makes a store that is not there an error at once instead of a retry.
func reach(ctx context.Context, sink ship.Sink) error {
	if p, ok := sink.(ship.Pinger); ok {
		return p.Ping(ctx)
	}

	return nil
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
// returns when the store has acknowledged all of it and holds the copies that are asked for. Rows of
// small tables go last, in one batch over all ranks.
func (e *engine) once(ctx context.Context, memory int64, r *Report) error {
	streams, err := e.tree.Scan()
	if err != nil {
		if len(streams) == 0 {
			return err
		}

		r.Problems = append(r.Problems, strings.Split(err.Error(), "\n")...)
	}

	if len(streams) == 0 {
		return fmt.Errorf("ingest %s: %w", e.tree.Root(), ErrNothing)
	}

	r.Notes = e.gather(streams)
	var members []*member
	for _, s := range streams {
		if e.o.Only != nil && !e.o.Only(s.Dir.Job, s.Dir.Rank) {
			continue
		}

		m, err := e.lease(s, r)
		if err != nil {
			return err
		}

		if m != nil {
			members = append(members, m)
		}
	}

	r.Ranks = len(members)
	defer limitMemory(memory, len(members))()
	g, ctx := errgroup.WithContext(ctx)
	running, stop := context.WithCancel(ctx)
	g.Go(func() error { return e.shipper.Run(running) })
	g.Go(func() error {
		defer stop()
		if err := e.drain(ctx, members, r); err != nil {
			return err
		}

		for _, m := range members {
			m.roller.End()
			m.closeSegment()
			if err := e.take(ctx, m, true); err != nil {
				return err
			}
		}

		for _, m := range members {
			if err := e.putLight(ctx, m); err != nil {
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

// mostHeld bounds the rows that wait beside raw ones for the end of the pass: some
// 8 MB.
const mostHeld = 32 << 10

// hold keeps the rows that come along with a batch of raw ones until the end of the
// pass: with each batch they would be an insert, or a file, of a few rows a table. A
// table's rows stay in their order.
func (e *engine) hold(m *member, rows *row.Rows) {
	n := len(rows.Steps) + len(rows.Communications) + len(rows.Ledger)
	if e.whole == 0 || len(rows.Raws.Rows) == 0 || e.held+n > mostHeld {
		e.held -= m.light.Len()
		rows.Steps = append(m.light.Steps, rows.Steps...)
		rows.Communications = append(m.light.Communications, rows.Communications...)
		rows.Ledger = append(m.light.Ledger, rows.Ledger...)
		m.light = row.Rows{}
		return
	}

	m.light.Steps = append(m.light.Steps, rows.Steps...)
	m.light.Communications = append(m.light.Communications, rows.Communications...)
	m.light.Ledger = append(m.light.Ledger, rows.Ledger...)
	rows.Steps, rows.Communications, rows.Ledger = rows.Steps[:0], rows.Communications[:0], rows.Ledger[:0]
	e.held += n
}

// putLight puts what was held.
func (e *engine) putLight(ctx context.Context, m *member) error {
	rows := m.light
	m.light = row.Rows{}
	if e.held -= rows.Len(); rows.Len() == 0 {
		return nil
	}

	return e.shipper.Put(ctx, m.out, &rows, nil)
}

// gather names the streams of a job that lies in several directories by one name.
func (e *engine) gather(streams []*tail.Stream) []string {
	dirs := make([]segment.RankDir, len(streams))
	for i, s := range streams {
		dirs[i] = s.Dir
	}

	e.plans.merged = merge.Directories(dirs)
	for i, s := range streams {
		s.Dir.Job = dirs[i].Job
	}

	return e.plans.merged.Notes("")
}

// lease makes a stream a member, or notes why not.
func (e *engine) lease(s *tail.Stream, r *Report) (*member, error) {
	l, err := tail.TakeLease(s.Dir.Path, false)
	if errors.Is(err, tail.ErrLeased) {
		r.Leased = append(r.Leased, s.Dir.Path)
		return nil, l.Close()
	}

	if err != nil {
		return nil, errors.Join(err, l.Close())
	}

	if l.ReadOnly() {
		r.Unlocked++
	}

	return e.join(s, l, tail.Position{})
}

// usualLine is the bytes of a line, rather less than more.
const usualLine = 128

// drain reads all members to their ends, in turns.
func (e *engine) drain(ctx context.Context, members []*member, r *Report) error {
	known := int64(0)
	for _, m := range members {
		if _, err := m.stream.Refresh(); err != nil {
			r.Problems = append(r.Problems, err.Error())
		}

		known += m.stream.Backlog()
	}

	if e.o.Records == rollup.All {
		e.shipper.Expect(int(min(known, int64(e.whole)*usualLine+e.o.Quantum) / usualLine)) // a turn ends within a quantum of a batch
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
