package ageing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"laggard/schemas/row"
	"laggard/writer/segment"
)

const (
	defaultInterval = time.Second
	// quiet is how long a rank of which nobody knows anything counts as live after
	// its newest segment was touched: TaskD writes every 5 s.
	quiet = 10 * time.Minute
	// sayEvery bounds the log of trouble that goes on.
	sayEvery = 30 * time.Second
)

// RankState is what the agent knows of a rank.
type RankState struct {
	Owned bool     // ours to age: of our rings, or leased
	Live  bool     // its newest segment stays
	Open  []string // base names of further segments in use (written, being compressed): they stay
}

// Options of a Loop. Dir, Cap and Account are required.
type Options struct {
	Dir string // the profiling directory
	Cap int64  // bytes
	// SegmentLimit is the size of a full segment: that much room is kept for each
	// live rank that is ours. 0 is segment.DefaultLimit.
	SegmentLimit int64
	Interval     time.Duration // between two looks; 0 is 1 s
	Now          func() time.Time
	Log          *slog.Logger // nil is silent

	// Rank tells whose a rank is. nil: all are ours, and live when their newest
	// segment was touched in the last 10 minutes.
	Rank func(segment.RankDir) RankState
	// Shipped tells whether everything in a segment is stored. nil: nothing is.
	Shipped func(segment.RankDir, segment.Info) bool
	// Release makes the shipper let go of a segment that is not shipped: from its
	// return on nothing beyond the byte offset stored of the segment will ever be
	// stored. An error keeps the segment this time. nil: stored is 0.
	Release func(segment.RankDir, segment.Info) (stored int64, err error)
	// Account writes what is lost with one segment to the ledger, durably. It is
	// called before the unlink; an error keeps the segment and ends the pass.
	Account func([]row.Ledger) error
	// Accounted tells that the ledger already holds the loss of a segment: a
	// process died between Account and unlink. Such a segment goes at the first
	// look, and must not be shipped either. nil: none.
	Accounted func(segment.RankDir, segment.Info) bool
}

// Stats counts what a Loop did.
type Stats struct {
	Passes   int64 // that deleted something
	Segments int64 // deleted
	Shipped  int64 // of them shipped
	Bytes    int64 // freed
	Records  int64 // lost with segments that were not shipped
	Errors   int64
	Tree     int64 // bytes of the tree after the last look
	Over     int64 // bytes that it is over the cap with nothing left to delete
}

// Loop looks at the tree again and again and carries out Plan. Its methods may be
// called from anywhere; Run once.
type Loop struct {
	o     Options
	nudge chan struct{}

	looking   sync.Mutex      // one look at a time; guards what follows
	accounted map[string]bool // paths in the ledger whose unlink failed
	released  map[string]bool // paths the shipper let go of whose loss is not in the ledger yet
	looked    bool            // the first look is done
	said      string          // the last trouble that was logged, "" when it is over
	saidAt    time.Time

	mu    sync.Mutex
	stats Stats // guarded by mu
}

// New returns a Loop; it starts nothing.
func New(o Options) (*Loop, error) {
	switch {
	case o.Dir == "":
		return nil, errors.New("age segments: no directory")
	case o.Cap <= 0:
		return nil, fmt.Errorf("age segments in %s: cap of %d bytes", o.Dir, o.Cap)
	case o.Account == nil:
		return nil, fmt.Errorf("age segments in %s: no ledger to write the loss to", o.Dir)
	}
	if o.SegmentLimit <= 0 {
		o.SegmentLimit = segment.DefaultLimit
	}
	if o.Interval <= 0 {
		o.Interval = defaultInterval
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Loop{o: o, nudge: make(chan struct{}, 1), accounted: make(map[string]bool), released: make(map[string]bool)}, nil
}

// Nudge asks for a look now: call it when a segment was closed. It never blocks.
func (l *Loop) Nudge() {
	select {
	case l.nudge <- struct{}{}:
	default: // one is asked for already
	}
}

// Run looks every interval, and when nudged, until the context is done; it returns
// nil then. Trouble is logged once and counted, the next look tries again.
func (l *Loop) Run(ctx context.Context) error {
	tick := time.NewTicker(l.o.Interval)
	defer tick.Stop()
	for {
		l.MakeRoom(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-l.nudge:
		}
	}
}

// say logs trouble when it begins, when it changes (at most twice a minute, its text
// may hold numbers) and when it is over.
func (l *Loop) say(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.o.Now()
	switch {
	case err == nil && l.said != "":
		l.said = ""
		l.o.Log.Info("ageing works again")
	case err != nil && err.Error() != l.said && (l.said == "" || now.Sub(l.saidAt) >= sayEvery):
		l.said, l.saidAt = err.Error(), now
		l.o.Log.Warn("ageing has trouble", "error", err)
	}
}

// Stats returns the counters.
func (l *Loop) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stats
}

// Look looks once and deletes what the rule says. The error joins everything that
// kept it from seeing or deleting; it has done what it could.
func (l *Loop) Look(ctx context.Context) error {
	l.looking.Lock()
	defer l.looking.Unlock()
	return l.look(ctx)
}

// MakeRoom is a Look of somebody who is about to fill another segment: when it
// returns, the room that Plan keeps for it is there, unless nothing more may be
// deleted. Trouble is logged as Run does it.
func (l *Loop) MakeRoom(ctx context.Context) {
	l.looking.Lock()
	defer l.looking.Unlock()
	if err := l.look(ctx); ctx.Err() == nil {
		l.say(err)
	}
}

func (l *Loop) look(ctx context.Context) error {
	f, err := l.scan()
	if f == nil {
		l.count(func(s *Stats) { s.Errors++ })
		return err
	}
	errs := []error{err}
	if !l.looked {
		errs = append(errs, l.finish(f))
		l.looked = true
	}
	errs = append(errs, l.goOn(ctx, f))
	for _, pass := range Plan(&f.tree, l.o.Cap, f.room) {
		if err := l.pass(ctx, f, pass); err != nil {
			errs = append(errs, err)
			if ctx.Err() != nil || errors.Is(err, errLedger) {
				break
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		l.count(func(s *Stats) { s.Errors++ })
	}
	errs = append(errs, l.over(f))
	return errors.Join(errs...)
}

// over tells a tree that is too large with nothing left to delete.
func (l *Loop) over(f *forest) error {
	over := max(0, f.tree.Bytes()-l.o.Cap)
	l.count(func(s *Stats) { s.Tree, s.Over = f.tree.Bytes(), over })
	if over == 0 {
		return nil
	}
	return fmt.Errorf("%s is over its cap of %d bytes and no more may be deleted (%d bytes are not segments): raise --cap, or remove what is not laggard's",
		l.o.Dir, l.o.Cap, f.tree.Other)
}

func (l *Loop) count(add func(*Stats)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	add(&l.stats)
}

var errLedger = errors.New("write the loss to the ledger")

// pass deletes one pass of the plan and logs what went.
func (l *Loop) pass(ctx context.Context, f *forest, pass []int) error {
	var sum Stats
	var errs []error
	var first, last string
	for _, i := range pass {
		if err := ctx.Err(); err != nil {
			errs = append(errs, err)
			break
		}
		lost, err := l.delete(f, i)
		if err != nil {
			errs = append(errs, err)
			if errors.Is(err, errLedger) {
				break
			}
			continue
		}
		s := &f.tree.Segments[i]
		sum.Segments++
		sum.Bytes += s.Size
		sum.Records += lost
		if s.Shipped {
			sum.Shipped++
		}
		if last = f.path(i); first == "" {
			first = last
		}
		f.gone(i)
	}
	if sum.Segments > 0 {
		l.count(func(s *Stats) {
			s.Passes++
			s.Segments += sum.Segments
			s.Shipped += sum.Shipped
			s.Bytes += sum.Bytes
			s.Records += sum.Records
		})
		l.o.Log.Info("aged segments", "deleted", sum.Segments, "shipped", sum.Shipped, "unshipped", sum.Segments-sum.Shipped,
			"records_lost", sum.Records, "bytes", sum.Bytes, "first", first, "last", last, "tree_bytes", f.tree.Bytes(), "cap", l.o.Cap)
	}
	return errors.Join(errs...)
}

// delete removes one segment, its loss first into the ledger.
func (l *Loop) delete(f *forest, i int) (lost int64, err error) {
	dir, info, path := f.dirs[i], f.infos[i], f.path(i)
	if !f.tree.Segments[i].Shipped && !l.accounted[path] {
		var stored int64
		if l.o.Release != nil && !l.released[path] {
			if stored, err = l.o.Release(dir, info); err != nil {
				return 0, fmt.Errorf("release segment %s: %w", path, err)
			}
			if stored == 0 { // else Release tells it again
				l.released[path] = true
			}
		}
		rows := Loss(dir, info, stored)
		if err := l.o.Account(rows); err != nil {
			return 0, fmt.Errorf("%w: segment %s: %w", errLedger, path, err)
		}
		l.accounted[path] = true
		delete(l.released, path)
		for _, r := range rows {
			if r.State == stateAged {
				lost += int64(r.Records)
			}
		}
		l.o.Log.Debug("segment goes unshipped", "segment", path, "stored_bytes", stored, "records_lost", lost)
	}
	if err := segment.Remove(dir.Path, info); err != nil {
		return 0, fmt.Errorf("delete segment: %w", err)
	}
	delete(l.accounted, path)
	return lost, nil
}

// goOn deletes the segments whose loss could not be written to the ledger before. The
// shipper has let go of them, so nobody else takes their records any more: they go
// also when the tree is no longer too large.
func (l *Loop) goOn(ctx context.Context, f *forest) error {
	var pass []int
	for i := range f.tree.Segments {
		if l.released[f.path(i)] && f.owned[i] {
			pass = append(pass, i)
		}
	}
	if len(pass) == 0 {
		clear(l.released) // somebody else removed them
		return nil
	}
	return l.pass(ctx, f, pass)
}

// finish deletes what an earlier process had accounted for but not unlinked.
func (l *Loop) finish(f *forest) error {
	if l.o.Accounted == nil {
		return nil
	}
	var errs []error
	for i := range f.tree.Segments {
		if !f.owned[i] || !l.o.Accounted(f.dirs[i], f.infos[i]) {
			continue
		}
		if err := segment.Remove(f.dirs[i].Path, f.infos[i]); err != nil {
			l.accounted[f.path(i)] = true
			errs = append(errs, fmt.Errorf("delete accounted segment: %w", err))
			continue
		}
		l.o.Log.Info("finished an interrupted deletion", "segment", f.path(i))
		f.gone(i)
	}
	return errors.Join(errs...)
}

func (f *forest) path(i int) string { return filepath.Join(f.dirs[i].Path, f.infos[i].Name) }
