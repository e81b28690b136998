package ageing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/segment"
)

const (
	defaultInterval = time.Second
	// quiet is how long a rank counts as live after its newest segment was touched: TaskD
	// writes every 5 s.
	quiet = 10 * time.Minute
	// readTries is how often a segment that can't be read, so that nobody knows what
	// would be lost with it, is spared: the cap is worth more than one that stays so.
	readTries = 10
	// longest is the longest pause between two looks, however long they take.
	longest = time.Minute
	// sayEvery bounds the log of trouble that goes on.
	sayEvery = 30 * time.Second
)

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

	// Rank tells whether a rank is ours to age, being of our rings or leased, and whether it
	// is live: its newest segment stays then, as it does when it was touched in the last 10
	// minutes. nil: all are ours.
	Rank func(segment.RankDir) (owned, live bool)
	// Held tells whether a segment is in use, and stays. nil: none is.
	Held func(segment.RankDir, segment.Info) bool
	// Shipped tells whether everything in a segment is stored. nil: nothing is.
	Shipped func(segment.RankDir, segment.Info) bool
	// Release makes the shipper let go of a segment that is not shipped: it calls
	// account, and when that succeeds nothing of the segment will ever be stored. An
	// error, account's or its own, keeps the segment this time. nil calls account.
	Release func(s segment.RankDir, i segment.Info, account func() error) error
	// Account writes what is lost with one segment to the ledger, durably. It is
	// called before the unlink; an error keeps the segment and ends the pass.
	Account func([]row.Ledger) error
	// Accounted tells that the ledger already holds the loss of a segment: a
	// process died between Account and unlink. Such a segment goes at once,
	// and must not be shipped either. nil: none.
	Accounted func(segment.RankDir, segment.Info) bool
}

// Stats counts what a Loop did.
type Stats struct {
	Looks    int64 // at the whole tree
	Segments int64 // deleted
	Shipped  int64 // of them shipped
	Bytes    int64 // freed
	Records  int64 // lost with segments that were not shipped
	Tree     int64 // bytes of the tree after the last look
	Over     int64 // bytes that it is over the cap with nothing left to delete
}

// Loop looks at the tree again and again and carries out plan. Its methods may be
// called from anywhere; Run once.
type Loop struct {
	o Options

	looking   sync.Mutex      // one look at a time; guards what follows
	accounted map[string]bool // paths in the ledger whose unlink failed
	most      int64           // bytes that the tree and the room in it can have come to; 0 not known
	unread    map[string]int  // paths that could not be read to count them → how often
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

	o.SegmentLimit = cmp.Or(o.SegmentLimit, segment.DefaultLimit)
	o.Interval = cmp.Or(o.Interval, defaultInterval)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if o.Now == nil {
		o.Now = time.Now
	}

	return &Loop{o: o, accounted: make(map[string]bool), unread: make(map[string]int)}, nil
}

// Run looks every interval until the context is done; it returns nil then. A tree of
// many files is looked at so often that it costs a twentieth of a core at most.
// Trouble is logged once and counted, the next look tries again.
func (l *Loop) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
			began := time.Now()
			l.LookAndSay(ctx)
			timer.Reset(max(l.o.Interval, min(time.Since(began)*20, longest)))
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

// MakeRoom is called by somebody who is about to fill another segment, each time:
// when it returns, the room that plan keeps for it is there, unless nothing more may be
// deleted. It looks at the tree only when that can have outgrown the cap since the
// last look: by a segment for each call. What others write is seen by Run. Trouble is
// logged as Run does it.
func (l *Loop) MakeRoom(ctx context.Context) {
	l.looking.Lock()
	if l.most > 0 {
		l.most += l.o.SegmentLimit
	}

	enough := l.most > 0 && l.most <= l.o.Cap
	l.looking.Unlock()
	if !enough {
		l.LookAndSay(ctx)
	}
}

// LookAndSay looks once, and logs trouble as Run does it.
func (l *Loop) LookAndSay(ctx context.Context) {
	if err := l.look(ctx); ctx.Err() == nil {
		l.say(err)
	}
}

// look scans the tree once and ages what the plan says. An error of one pass doesn't stop the others, but a ledger that can't be written
// does: nothing is deleted that isn't accounted for. The error joins everything that kept
// it from seeing or deleting; it has done what it could.
func (l *Loop) look(ctx context.Context) error {
	l.looking.Lock()
	defer l.looking.Unlock()
	l.most = 0
	l.count(func(s *Stats) { s.Looks++ })
	t, err := l.scan()
	if t == nil {
		return err
	}

	errs := []error{err}
	for _, pass := range plan(t, l.o.Cap) {
		if err := l.pass(ctx, t, pass); err != nil {
			errs = append(errs, err)
			if ctx.Err() != nil || errors.Is(err, errLedger) {
				break
			}
		}
	}

	if errors.Join(errs...) == nil {
		l.most = max(1, t.bytes()+t.room)
	}

	errs = append(errs, l.over(t))
	return errors.Join(errs...)
}

// over tells a tree that is too large with nothing left to delete.
func (l *Loop) over(t *tree) error {
	bytes := t.bytes()
	over := max(0, bytes-l.o.Cap)
	l.count(func(s *Stats) { s.Tree, s.Over = bytes, over })
	if over == 0 {
		return nil
	}

	return fmt.Errorf("%s is over its cap of %d bytes and no more may be deleted (%d bytes are not segments): raise --cap, or remove what is not laggard's",
		l.o.Dir, l.o.Cap, t.other)
}

// count changes the figures that other goroutines read.
func (l *Loop) count(add func(*Stats)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	add(&l.stats)
}

// errLedger is in the error of a deletion that the account could not note before: nothing more may be deleted.
var errLedger = errors.New("write the loss to the ledger")

// pass deletes one pass of the plan and logs what went.
func (l *Loop) pass(ctx context.Context, t *tree, pass []int) error {
	var sum Stats
	var errs []error
	var first, last string
	for _, i := range pass {
		if err := ctx.Err(); err != nil {
			errs = append(errs, err)
			break
		}

		lost, err := l.delete(t, i)
		if err != nil {
			errs = append(errs, err)
			if errors.Is(err, errLedger) {
				break
			}

			// It could not be removed: others may be.
			continue
		}

		c := &t.segments[i]
		c.gone = true
		sum.Segments++
		sum.Bytes += c.Size
		sum.Records += lost
		if c.shipped {
			sum.Shipped++
		}

		if last = c.path(); first == "" {
			first = last
		}
	}

	if sum.Segments > 0 {
		l.count(func(s *Stats) {
			s.Segments += sum.Segments
			s.Shipped += sum.Shipped
			s.Bytes += sum.Bytes
			s.Records += sum.Records
		})
		l.o.Log.Info("aged segments", "deleted", sum.Segments, "shipped", sum.Shipped, "unshipped", sum.Segments-sum.Shipped,
			"records_lost", sum.Records, "bytes", sum.Bytes, "first", first, "last", last, "tree_bytes", t.bytes(), "cap", l.o.Cap)
	}

	return errors.Join(errs...)
}

// delete removes one segment, its loss first into the ledger. One that is there a
// second time is no loss.
func (l *Loop) delete(t *tree, i int) (lost int64, err error) {
	c := &t.segments[i]
	path := c.path()
	if !c.shipped && !c.accounted && !t.twin(i) {
		account := func() (err error) {
			lost, err = l.account(c)
			return err
		}
		if l.o.Release != nil {
			err = l.o.Release(c.dir, c.Info, account)
		} else {
			err = account()
		}

		if err != nil {
			return 0, err
		}

		l.accounted[path] = true
		l.o.Log.Debug("segment goes unshipped", "segment", path, "records_lost", lost)
	}

	if err := segment.Remove(c.dir.Path, c.Info); err != nil {
		return 0, fmt.Errorf("delete segment: %w", err)
	}

	delete(l.accounted, path)
	return lost, nil
}

// account writes what is lost with a segment to the ledger and returns its records.
func (l *Loop) account(c *candidate) (lost int64, err error) {
	path := c.path()
	rows, err := loss(c.dir, c.Info)
	if err != nil {
		if l.unread[path]++; l.unread[path] < readTries {
			return 0, fmt.Errorf("count what is lost: %w", err)
		}

		l.o.Log.Warn("a segment that can't be read goes uncounted", "segment", path, "error", err)
	}

	if err := l.o.Account(rows); err != nil {
		return 0, fmt.Errorf("%w: segment %s: %w", errLedger, path, err)
	}

	delete(l.unread, path)
	for _, r := range rows {
		if r.State == stateAged {
			lost += int64(r.Records)
		}
	}

	return lost, nil
}
