package watch

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/row"
)

// A watcher that shares jobs writes a row of the table of verdicts at each look: no job, its
// name as the node, this finding, and one of these states. schemas/FORMAT.md has the bytes.
const (
	FindingWatcher = "watcher"
	StateAlive     = "alive"
	StateGone      = "gone"
)

// DefaultLease is for how long a watcher that says nothing keeps its jobs: several looks.
const DefaultLease = time.Minute

// Table reads the table of verdicts that the watchers of one store share.
type Table interface {
	// Watchers returns the newest row of each watcher that wrote one since then.
	Watchers(ctx context.Context, since int64) ([]row.Verdict, error)
	// Verdicts returns the newest row of each node, group and finding of a job.
	Verdicts(ctx context.Context, job string) ([]row.Verdict, error)
}

// Share divides the jobs of a store among the watchers that are alive: each job is its
// whose hash with the job is the highest. So nobody hands jobs out, a watcher that comes or
// goes moves its share alone, and who reads the same rows decides alike.
//
// Caveat: watchers go by their own clocks, which must agree within a fraction of the lease;
// while one does not yet know of another both may follow a job, and say a change twice.
type Share struct {
	Name  string // of this watcher, different from all others'
	Sink  Sink
	Table Table
	Lease time.Duration    // DefaultLease
	Now   func() time.Time // nil is time.Now
	Log   *slog.Logger

	alive []string
}

// mine says that this watcher is alive, and returns those of jobs that are its now. After
// an error nothing is: others may have it by now.
func (s *Share) mine(ctx context.Context, jobs []string) ([]string, error) {
	now := s.now()
	if err := s.say(ctx, now, StateAlive); err != nil {
		return nil, err
	}

	rows, err := s.Table.Watchers(ctx, now.Add(-s.lease()).UnixNano())
	if err != nil {
		return nil, fmt.Errorf("ask for watchers: %w", err)
	}

	alive := []string{s.Name}
	for _, r := range rows {
		if r.State == StateAlive && r.Node != s.Name {
			alive = append(alive, r.Node)
		}
	}

	slices.Sort(alive)
	if !slices.Equal(alive, s.alive) && s.Log != nil {
		s.Log.Info("jobs are shared", "watchers", alive)
	}

	s.alive = alive
	return slices.DeleteFunc(slices.Clone(jobs), func(job string) bool { return owner(alive, job) != s.Name }), nil
}

// leave gives the jobs to the others at once.
func (s *Share) leave(ctx context.Context) error { return s.say(ctx, s.now(), StateGone) }

func (s *Share) say(ctx context.Context, now time.Time, state string) error {
	at := row.Verdict{AtNs: now.UnixNano(), Node: s.Name, Finding: FindingWatcher, State: state}
	if err := s.Sink.Verdicts(ctx, []row.Verdict{at}); err != nil {
		return fmt.Errorf("say that watcher %s is %s: %w", s.Name, state, err)
	}

	return nil
}

func (s *Share) now() time.Time {
	if s.Now != nil {
		return s.Now()
	}

	return time.Now()
}

func (s *Share) lease() time.Duration {
	if s.Lease > 0 {
		return s.Lease
	}

	return DefaultLease
}

// share returns the jobs that are this watcher's, and lets go of those that are no more:
// whose they are now goes on from what the table says.
func (w *Watcher) share(ctx context.Context, names []string) ([]string, error) {
	if w.o.Share == nil {
		return names, nil
	}

	mine, err := w.o.Share.mine(ctx, names)
	if err != nil {
		return nil, err
	}

	for name, j := range w.jobs {
		if slices.Contains(mine, name) || !slices.Contains(names, name) {
			continue
		}

		if err := j.reader.Close(); err != nil {
			w.o.Log.Warn("close job", "job", name, "error", err)
		}

		delete(w.jobs, name)
		w.mu.Lock()
		delete(w.status.Jobs, name)
		w.mu.Unlock()
	}

	return mine, nil
}

// takeOver begins a job with what was said of it: by another watcher, or by this one.
func (w *Watcher) takeOver(ctx context.Context, j *job) error {
	if w.o.Share == nil {
		return nil
	}

	said, err := w.o.Share.said(ctx, j.Job)
	if err != nil {
		return err
	}

	if j.Stated, j.taken = said, len(said) > 0; j.taken {
		w.mu.Lock()
		w.status.Taken++
		w.mu.Unlock()
	}

	return nil
}

// unrepeated leaves out of the first changes of a job that was taken over what the watcher
// before has stored meanwhile, and counts it.
func (w *Watcher) unrepeated(ctx context.Context, j *job) error {
	if !j.taken || len(j.Unsent) == 0 {
		return nil
	}

	rows, n, err := w.o.Share.repeated(ctx, j.Job, j.Unsent)
	if err != nil {
		return err
	}

	j.Unsent, j.taken = rows, false
	w.mu.Lock()
	defer w.mu.Unlock()
	w.status.Repeated += uint64(n)
	return nil
}

// owner returns the watcher that a job belongs to.
func owner(alive []string, job string) string {
	best, most := "", uint64(0)
	for _, name := range alive {
		if h := record.HashID(name, job).Mixed(); best == "" || h > most {
			best, most = name, h
		}
	}

	return best
}

// said returns what the table says of a job: what this watcher need not say again.
func (s *Share) said(ctx context.Context, job string) ([]statement, error) {
	rows, err := s.Table.Verdicts(ctx, job)
	if err != nil {
		return nil, fmt.Errorf("ask what was said of job %s: %w", job, err)
	}

	var all []statement
	for _, r := range rows {
		if r.State != StateEnded {
			all = append(all, statementOf(&r))
		}
	}

	return all, nil
}

// statementOf is the statement that a row holds. The body of a node's and of a link's has the
// first step of its episode.
func statementOf(r *row.Verdict) statement {
	episode := struct {
		Since int64 `json:"since_step"`
	}{int64(r.Step)}
	if json.Unmarshal([]byte(r.Body), &episode) != nil { // no row of ours
		episode.Since = int64(r.Step)
	}

	return statement{Node: r.Node, Group: r.Group, Finding: r.Finding, State: r.State, Cause: r.Cause, Impact: float64(r.ImpactPPM) / 1e6, Since: episode.Since}
}

// repeated takes those of rows out that another watcher has stored since said was read: of
// a job that was taken over, before anything is stored of it.
func (s *Share) repeated(ctx context.Context, job string, rows []row.Verdict) ([]row.Verdict, int, error) {
	said, err := s.said(ctx, job)
	if err != nil {
		return rows, 0, err
	}

	n := len(rows)
	rows = slices.DeleteFunc(rows, func(r row.Verdict) bool {
		now := statementOf(&r)
		return slices.ContainsFunc(said, func(was statement) bool { return was.subject() == now.subject() && now.repeats(was) })
	})
	return rows, n - len(rows), nil
}
