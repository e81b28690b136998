// Package drain moves ranges out of the rings of this machine's training
// processes into segments.
//
// Invariant: a tail moves only after the records before it were flushed, and
// where a ring goes on after a restart is read from the segments themselves. So
// a SIGKILL of the agent at any instant loses nothing and duplicates nothing,
// and when the disk is full the rings fill up, count, and go on by themselves.
// What can't arrive stands in the segments as a loss line, once (see note).
//
// Caveat: everything in a ring folder is written by others. Names, sizes, ids
// and counts are bounded, and one broken folder never holds up the others.
package drain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/laggard-dev/laggard/collector/ring"
	"github.com/laggard-dev/laggard/schemas/record"
)

// Writer takes the lines of one incarnation; *segment.Writer is one.
//
// Next returns, for each ring that has records on disk, the sequence number
// after the last one; Ended whether the end line is there. Name and Bytes say which
// segment is open and how long it is when all that was accepted is flushed: by them
// the next agent knows whether a line was written before a kill. A Writer that returns
// "" or 0 gets such a line again. A line that an Append
// accepted (returned nil for) is the Writer's: after an error of Flush the
// accepted lines stay with it and Flush is called again, no line is appended
// twice. Append after Append may flush by itself. Sync makes what was flushed
// survive the host.
type Writer interface {
	Next() map[uint32]uint64
	Ended() bool
	Name() string
	Bytes() int64
	SetMeta(record.Meta) error
	AppendRecord(*record.Record) error
	AppendLine([]byte) error
	Flush() error
	Sync() error
	Close() error
}

// Defaults of Options.
const (
	// A record is in a segment within the interval. A ring that gets a quarter full sooner
	// is drained sooner (filling). Each pass looks at every folder: at 200 ms an agent of eight busy
	// ranks takes a tenth more processor time.
	defaultInterval = 500 * time.Millisecond
	// Lines of the last second are what a host that loses its power can lose.
	defaultSync = time.Second
)

const (
	// patience is how long a slot below the head may be wrong, or a string
	// missing, before it is counted instead of waited for: no store takes that
	// long to be seen.
	patience = time.Second
	// anonymous is how long a process without an identity is waited for before
	// its ranges go to the job of those that name none (jobOf), as rank 0.
	anonymous = 10 * time.Second
	// reopen is the pause after a Writer could not be opened.
	reopen = time.Second
	// retryRemove is the pause after a folder could not be removed: there is nothing in
	// it for us any more.
	retryRemove = 10 * time.Second
	// lifeEvery bounds how long a process that died, and left its lock to a child, counts
	// as alive.
	lifeEvery = time.Second
	// lossEvery bounds the loss lines of an overflow that goes on.
	lossEvery = time.Second
	// passSlots bounds the slots copied of a process in a pass: 4 MiB. Its rings may fill as
	// fast as they are drained, and the others wait for their turn.
	passSlots = 65536
	// halfMade is the age at which a folder that was never finished is removed: its
	// recorder was killed, making one takes milliseconds.
	halfMade = 10 * time.Second
	// rush is the pause before the next look after a pass in which a ring held much, glance the longest
	// one: a ring that was at rest gets full in as long at 5,120 light ranges a second.
	rush   = 10 * time.Millisecond
	glance = 200 * time.Millisecond
)

// Options of a Drain.
type Options struct {
	// RunDir is where recorders make their folders. It may be missing yet.
	RunDir string
	// Open returns the Writer of an incarnation, in the directory of its job and
	// rank. Job is one path component. It is called again after an error.
	Open func(record.Meta) (Writer, error)
	// Node and Pod fill what an identity leaves empty. Its job is then default_task_id_<unix
	// seconds of the first process without one>.
	Node, Pod string
	// Wanted, when it is set and returns true, is what a recorder of a job is told to
	// record, once: bits of the switch word. Who tells it otherwise later is not
	// overruled.
	Wanted func(job string) (bits uint32, ok bool)
	// Trust says of which jobs a user's folders are drained, or that they are of all;
	// nil: of our own user and of root, whatever the job.
	Trust func(uid uint32) (jobs []string, all bool)
	// Files bounds the descriptors of all folders that are held; what there is no room for
	// has its turn later. 0 means half of ring.OpenFiles.
	Files int
	// Drained is called after a pass in which lines were flushed, Rotated when a Writer has
	// begun another segment; nil is nobody.
	Drained, Rotated func()
	// Interval between passes and Sync between fdatasyncs; 0 means the default.
	Interval, Sync time.Duration
	// Now is the clock; nil: time.Now.
	Now func() time.Time
	// Logger gets what goes wrong; nil: silent.
	Logger *slog.Logger
}

// Drain drains one run directory. Begin, Pass and Close are for one goroutine, which owns all
// of it; the other methods may be called from any, and tell what that published last.
type Drain struct {
	o       Options
	public  atomic.Pointer[Stats]
	swept   time.Time                   // when half-made folders were looked for last
	left    map[string]*left            // by folder
	files   int                         // descriptors granted to the processes that are held
	folders map[uint32]int              // of them, by user
	skip    int                         // passes that look for no folders
	turns   map[record.RankID]*process  // by rank directory: who writes there now
	leaving bool                        // nobody waits for a turn any more
	claims  map[record.RankID]time.Time // when it was said that two living processes claim a rank
	buf     []byte                      // slots of one pass
	copied  []*laneState                // the rings that they are of
	rec     record.Record
	oldest  int64 // earliest end of the records drained in this pass, 0 none
	flushed bool  // lines, in this pass

	// What say said: users and jobs, until when it is quiet about a user, and when the last
	// lines were, at most mostLines.
	said      map[string]bool
	quietTill map[uint32]time.Time
	lines     []time.Time

	processes []*process // that are held, in the order in which they were taken
	stats     Stats
}

// New returns a Drain. It starts nothing.
func New(o Options) (*Drain, error) {
	if o.RunDir == "" || o.Open == nil {
		return nil, errors.New("make drain: want a run directory and a way to open writers")
	}

	o.Interval, o.Sync = cmp.Or(o.Interval, defaultInterval), cmp.Or(o.Sync, defaultSync)
	o.Files = cmp.Or(o.Files, ring.OpenFiles()/2)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Now == nil {
		o.Now = time.Now
	}

	if o.Trust == nil {
		o.Trust = func(uid uint32) ([]string, bool) { return nil, uid == 0 || uid == uint32(os.Geteuid()) }
	}

	if o.Drained == nil {
		o.Drained = func() {}
	}

	if o.Rotated == nil {
		o.Rotated = func() {}
	}

	d := &Drain{
		o: o, left: make(map[string]*left), folders: make(map[uint32]int), turns: make(map[record.RankID]*process), buf: make([]byte, passSlots*slotBytes),
		claims: make(map[record.RankID]time.Time),
		stats:  Stats{Refused: make(map[string]uint64), Dropped: make(map[string]uint64)},
	}
	d.publish()
	return d, nil
}

// Run drains until the context ends, then once more, and closes everything. The error
// says what it left in the rings then.
func (d *Drain) Run(ctx context.Context) error {
	defer d.Close()
	timer := time.NewTimer(0)
	defer timer.Stop()
	var quiet throttle // of what goes wrong
	var last time.Time
	full, pause := false, glance
	for {
		select {
		case <-ctx.Done():
			return d.leave()
		case <-timer.C:
		}

		if full || time.Since(last) >= d.o.Interval || d.filling() {
			var err error
			full, err = d.Pass()
			quiet.log(d.o.Logger, d.o.Now(), errors.Join(err, d.Ready()))
			last = time.Now()
		}

		pause = pauseAfter(pause, full)
		timer.Reset(min(pause, d.o.Interval-time.Since(last)))
	}
}

// pauseAfter returns the pause after a look that came after the pause last. From a full ring on pauses begin
// short and double: a ring that was not a quarter full after one is not half full after the next.
func pauseAfter(last time.Duration, full bool) time.Duration {
	if full {
		return rush
	}

	return min(2*last, glance)
}

// filling reports whether a ring has become a quarter full since the last pass, or is new: it may fill as soon.
func (d *Drain) filling() bool {
	return slices.ContainsFunc(d.processes, (*process).filling)
}

// Begin takes the folders that are there and finds out what of them the agent before has
// written. That comes before anything is aged: what was written last is seen in the
// segments alone. Each pass does the same for folders that come later.
func (d *Drain) Begin() error { return d.begin(d.o.Now()) }

// begin is Begin at a time.
func (d *Drain) begin(now time.Time) error {
	err := d.find(now)
	d.publish()                                   // before a segment of theirs is opened: what is held is not idle
	for _, p := range slices.Clone(d.processes) { // some may go meanwhile
		if p.w != nil || p.note.Home == nil {
			continue
		}

		p.resume(now) // what is wrong the pass finds, too
		if p.removed {
			d.forget(p)
		}
	}

	return err
}

// Pass finds folders and drains each of them once. full says that a ring was more than a
// quarter full, or that there is more: the next pass should come soon. The error joins what went wrong with
// single folders; the others were drained.
func (d *Drain) Pass() (full bool, err error) {
	now := d.o.Now()
	errs := []error{d.begin(now)}
	if now.Sub(d.swept) >= halfMade {
		d.swept = now
		_, err := ring.Sweep(d.o.RunDir, now.Add(-halfMade))
		errs = append(errs, err)
	}

	for _, p := range slices.Clone(d.processes) {
		n, err := p.pass(now)
		full = full || p.full
		switch p.err, p.records = err, n; {
		case errors.Is(err, errForeign):
			d.letGo(p, now)
			continue
		case errors.Is(err, errNoRoom) && !p.unsaid: // else its writer must flush first
			errs = append(errs, d.release(p, p.needs, now))
			continue
		case err != nil:
			errs = append(errs, fmt.Errorf("drain %s: %w", p.name, err))
		}

		if p.removed {
			d.forget(p)
		}
	}

	d.claimed(now)
	if d.flushed {
		d.o.Drained()
	}

	d.flushed = false
	d.stats.Passes++
	d.stats.Lag = 0
	if d.oldest != 0 {
		d.stats.Lag = max(now.Sub(time.Unix(0, d.oldest)), 0)
	}

	d.oldest = 0
	d.look(now)
	d.publish()
	return full, joinFirst(errs)
}

// forget closes a process that was held. Its folder stays, or was removed before.
func (d *Drain) forget(p *process) {
	p.leaveTurn()
	p.close()
	d.files -= p.granted
	if d.folders[p.folder.Owner]--; d.folders[p.folder.Owner] == 0 {
		delete(d.folders, p.folder.Owner)
	}

	d.processes = slices.DeleteFunc(d.processes, func(q *process) bool { return q == p })
}

// jobOf returns the job of a process whose identity names none.
func (d *Drain) jobOf(startedNs int64) string {
	if d.stats.unnamed == "" {
		d.stats.unnamed = fmt.Sprintf("default_task_id_%d", startedNs/int64(time.Second))
	}

	return d.stats.unnamed
}

// Unnamed returns the job of the processes whose identity names none; "" until there
// was one.
func (d *Drain) Unnamed() string { return d.public.Load().unnamed }

// Seen reports whether this Drain has held a recorder so far.
func (d *Drain) Seen() bool { return d.public.Load().seen }

// Idle reports whether every recorder seen has gone and is in its segments.
func (d *Drain) Idle() bool {
	s := d.public.Load()
	return s.Processes == 0 && s.Waiting == 0
}

// Close flushes and closes the writers and gives the folders up; another agent
// may take them then.
func (d *Drain) Close() error {
	defer d.publish()
	var errs []error
	for _, p := range slices.Clone(d.processes) {
		if p.w != nil {
			errs = append(errs, p.settle(), p.w.Sync())
		}

		d.forget(p)
	}

	return errors.Join(errs...)
}
