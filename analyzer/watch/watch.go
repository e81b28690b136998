// Package watch follows running jobs: it reads only what is new, gives each
// finished step to the same engine as `analyze`, and says what changed.
//
//	source ─rows─▶ feed.Feed ─columns in order─▶ detect.Engine ─verdict─▶ changes ─▶ sink, log, observers
//
// Invariants: the same rows give the same verdict as `analyze`, however they are
// cut into looks and wherever the process is killed, as long as no row is later
// than the lag. Memory is bounded by ranks and by the lag, not by steps. State is
// saved before a change is sent, and what was not acknowledged is sent again
// under the same identity, so the table of verdicts holds each change once.
//
// Caveats: where no group is known, roles are guessed from a job's first 32 steps,
// which `analyze` guesses from 256 of each process. A rank that appears for the first time
// when the others have gone on for longer than the lag is judged from then on;
// `analyze` counts it as missing before. Rows that come later than the lag are
// counted, not judged.
package watch

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/laggard-dev/laggard/analyzer/detect"
	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
	"github.com/laggard-dev/laggard/analyzer/feed"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// Options configure a Watcher.
type Options struct {
	Source Source
	Jobs   []string // nil = all of the source
	// Sink stores changes as rows of the table of verdicts, which it makes where it is missing:
	// all of them or an error, a row that is there already a second time never. nil stores nothing.
	Sink func(ctx context.Context, rows []row.Verdict) error
	// Holder says which jobs of the store are this watcher's, of several; nil follows all.
	Holder Holder
	// Table is where a job that was another watcher's is taken up; it goes with Holder.
	Table Table
	// StateDir keeps what was learnt over restarts; "" keeps nothing.
	StateDir string
	// Thresholds is a file that is read again with each look; "" means detect.Default.
	Thresholds string
	// MinImpact is the share of step time from which a verdict is not healthy.
	// 0 means that of the thresholds.
	MinImpact float64
	Lag       time.Duration // a step waits for ranks that are late; 0 means feed.DefaultLag
	// Forget is for how long a job without news is kept; 0 means DefaultForget.
	Forget time.Duration
	// Observers hear of a job's verdict after each look that brought news, on the goroutine of
	// Look. changes is empty when nothing is said differently.
	Observers []func(ctx context.Context, v *verdict.Verdict, changes []Change)
	Log       *slog.Logger     // nil is silent
	Now       func() time.Time // nil is time.Now
}

// DefaultForget drops a job that was silent for an hour: longer than a restart
// or a long evaluation takes.
const DefaultForget = time.Hour

// Watcher follows the jobs of one source. Look and Run are used by one goroutine;
// Status may be called by others.
type Watcher struct {
	o   Options
	cfg threshold.Config
	// seen is what Options.Thresholds held at the last look, or why it could not be read; nil before the first.
	seen []byte
	lock *os.File        // of Options.StateDir, nil without
	jobs map[string]*job // those that are followed, by name

	// mu guards the status alone: metrics are read from it while a look is under way.
	mu     sync.Mutex
	status Status
}

// New returns a Watcher. It reads nothing yet; Close frees the state directory.
func New(o Options) (*Watcher, error) {
	if o.Now == nil {
		o.Now = time.Now
	}

	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	o.Forget = cmp.Or(o.Forget, DefaultForget)
	w := &Watcher{o: o, cfg: detect.Default(), jobs: map[string]*job{}, status: Status{Jobs: map[string]JobStatus{}}}
	w.cfg.MinImpact = cmp.Or(o.MinImpact, w.cfg.MinImpact)
	if cfg, changed, err := w.readThresholds(); err != nil {
		return nil, err
	} else if changed {
		w.cfg = cfg
	}

	if o.StateDir != "" {
		var err error
		if w.lock, err = Lock(o.StateDir); err != nil {
			return nil, err
		}

		if err := sweepStates(o.StateDir, o.Now().Add(-stateAge)); err != nil {
			return nil, errors.Join(err, w.lock.Close())
		}
	}

	return w, nil
}

// Close frees the state directory, and gives shared jobs to others.
func (w *Watcher) Close() error {
	var errs []error
	if w.lock != nil {
		errs = append(errs, w.lock.Close())
	}

	if w.o.Holder != nil {
		ctx, cancel := context.WithTimeout(context.Background(), leaveAtMost)
		defer cancel()
		errs = append(errs, w.o.Holder.Leave(ctx))
	}

	return errors.Join(errs...)
}

// leaveAtMost bounds what a watcher that goes waits for a store that may be gone.
const leaveAtMost = 5 * time.Second

// Run looks at once, and again for each tick, until ctx ends. Errors of a look
// are logged and counted: the next one tries again.
func (w *Watcher) Run(ctx context.Context, ticks <-chan time.Time) error {
	for {
		if err := w.Look(ctx); err != nil && ctx.Err() == nil {
			w.o.Log.Error("look failed", "error", err)
		}

		select {
		case <-ctx.Done():
			return nil
		case <-ticks:
		}
	}
}

// Look reads what is new of every job, judges it and publishes what changed. It
// returns the errors of all jobs; each job but the failing one has gone on.
func (w *Watcher) Look(ctx context.Context) error { return w.look(ctx, feed.Current) }

// Finish is the last Look of somebody who won't come back: steps that wait for
// something are judged as they are.
func (w *Watcher) Finish(ctx context.Context) error { return w.look(ctx, feed.Over) }

// look is what Look and Finish have in common; at says whether anything may still come.
func (w *Watcher) look(ctx context.Context, at feed.Stage) error {
	w.rethink()
	names, err := w.names(ctx)
	if err == nil && len(names) == 0 && w.status.Looks == 0 {
		w.o.Log.Info("no job yet: looking again with every look", "jobs", w.o.Jobs)
	}

	if err == nil {
		names, err = w.share(ctx, names)
	}

	if err != nil {
		w.note(err)
		return err
	}

	var errs []error
	for _, name := range names {
		if err := w.follow(ctx, name, at); err != nil {
			errs = append(errs, err)
			if ctx.Err() != nil {
				break
			}
		}
	}

	// After the look: a job that has just gone on is not dropped.
	w.forget()
	err = errors.Join(errs...)
	w.note(err)
	return err
}

// rethink takes changed thresholds.
func (w *Watcher) rethink() {
	cfg, changed, err := w.readThresholds()
	if err != nil {
		w.o.Log.Error("thresholds not taken, the last good ones stay", "error", err)
		w.count(func(s *Status) { s.BadThresholds = err.Error() })
		return
	}

	if !changed {
		return
	}

	w.cfg = cfg
	for _, j := range w.jobs {
		j.engine.Configure(cfg)
		j.dirty = true
	}

	w.count(func(s *Status) { s.BadThresholds = "" })
	w.o.Log.Info("thresholds changed", "thresholds", cfg)
}

// MinImpact is the share of step time from which a verdict is not healthy, as of now: the
// option's, else that of the thresholds. It is asked on the goroutine of Look.
func (w *Watcher) MinImpact() float64 { return w.cfg.MinImpact }

// Suspects returns what looks wrong in a job at this moment: for an Observer, on the
// goroutine of Look.
func (w *Watcher) Suspects(job string) detect.Suspects {
	if j := w.jobs[job]; j != nil {
		return j.engine.Suspects()
	}

	return detect.Suspects{}
}

// names returns the jobs to look at.
func (w *Watcher) names(ctx context.Context) ([]string, error) {
	all, err := w.o.Source.Jobs(ctx)
	if err != nil {
		return nil, err
	}

	if len(w.o.Jobs) == 0 {
		return all, nil
	}

	return slices.DeleteFunc(slices.Clone(all), func(n string) bool { return !slices.Contains(w.o.Jobs, n) }), nil
}

// follow looks at one job.
func (w *Watcher) follow(ctx context.Context, name string, at feed.Stage) error {
	if over, err := w.over(ctx, name, at); over || err != nil {
		return err
	}

	j, err := w.open(ctx, name)
	if err != nil {
		return err
	}

	news, err := j.read(ctx, w.o.Lag, at)
	if err != nil {
		j.failing = err.Error()
		w.show(j)
		return err
	}

	j.failing = ""
	w.tellDamage(j)
	if news || j.Moved.IsZero() {
		j.Moved = w.o.Now()
	}

	if err := w.held(name); err != nil {
		return err
	}

	// Without a verdict yet even a look that read nothing decides: that nothing was recorded is a verdict.
	if j.dirty || j.verdict == nil {
		w.judge(ctx, j)
	}

	err = w.publish(ctx, j)
	w.show(j)
	return err
}

// tellDamage says which files could not be read to their end, each once.
func (w *Watcher) tellDamage(j *job) {
	for _, why := range j.reader.Damaged() {
		if !slices.Contains(j.damaged, why) {
			j.damaged = append(j.damaged, why)
			w.o.Log.Warn("file is damaged: what could be read of it was read, the rest is left out", "job", j.Job, "error", why)
		}
	}
}

// over reports whether a job that is not followed has been silent for so long
// that it needn't be.
func (w *Watcher) over(ctx context.Context, name string, at feed.Stage) (bool, error) {
	if w.jobs[name] != nil || at == feed.Over {
		return false, nil
	}

	newest, err := w.o.Source.Newest(ctx, name)
	return err == nil && !newest.IsZero() && w.o.Now().Sub(newest) >= w.o.Forget, err
}

// open returns the job, from its saved state where there is one.
func (w *Watcher) open(ctx context.Context, name string) (*job, error) {
	if j := w.jobs[name]; j != nil {
		return j, nil
	}

	j := newJob(name, w.cfg)
	if w.lock != nil {
		saved, err := w.load(name)
		switch {
		case err == nil:
			j = saved
		case errors.Is(err, detect.ErrState):
			w.o.Log.Warn("state not usable: the job is read from its beginning, and the file replaced", "job", name, "error", err)
		case !errors.Is(err, fs.ErrNotExist):
			return nil, err
		}
	}

	if err := w.takeOver(ctx, j); err != nil {
		return nil, err
	}

	reader, err := w.o.Source.Follow(ctx, name, j.Cursor)
	if err != nil && j.Cursor != nil {
		w.o.Log.Warn("cannot go on where it stopped, the job is read from its beginning", "job", name, "error", err)
		// What was said of it stands in the table, wherever reading begins.
		said, taken := j.Stated, j.taken
		if j = newJob(name, w.cfg); w.o.Holder != nil {
			j.Stated, j.taken = said, taken
		}

		reader, err = w.o.Source.Follow(ctx, name, nil)
	}

	if err != nil {
		return nil, err
	}

	j.reader = reader
	w.jobs[name] = j
	return j, nil
}

// forget drops jobs that ended a while ago, and their metrics. Their state stays:
// a job that goes on is taken up where it was.
func (w *Watcher) forget() {
	now := w.o.Now()
	for name, j := range w.jobs {
		if now.Sub(j.Moved) < w.o.Forget {
			continue
		}

		w.o.Log.Info("job dropped: nothing new", "job", name, "since", j.Moved)
		w.letGo(name)
		w.count(func(s *Status) { s.Dropped++ })
	}
}
