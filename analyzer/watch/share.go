package watch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/row"
)

// DefaultLease is for how long a watcher that says nothing keeps its jobs: several looks.
const DefaultLease = time.Minute

// Holder says which jobs are this watcher's: each is its whose hash with the job is the
// highest among the watchers that are alive, so that nobody hands jobs out, and one that comes
// or goes moves its share alone. Rows finds the others in a store, Leases in a Kubernetes
// cluster.
type Holder interface {
	// Mine says that this watcher is alive, and returns those of jobs that are its, as long
	// as Held is true and until it is called again.
	Mine(ctx context.Context, jobs []string) ([]string, error)
	// Held reports whether no other watcher can have taken them.
	Held() bool
	// Leave gives them to the others at once.
	Leave(ctx context.Context) error
}

// Table reads the table of verdicts that the watchers of one store share: the newest row of each
// node, group and finding of a job, as far as it is newer than since. The watchers' own are of no job.
type Table func(ctx context.Context, job string, since int64) ([]row.Verdict, error)

// errLost is that others may follow what this watcher was about to judge or to store.
var errLost = errors.New("another watcher may have it by now: left to it")

// held returns errLost where a job is not this watcher's any more.
func (w *Watcher) held(name string) error {
	if w.o.Holder != nil && !w.o.Holder.Held() {
		return fmt.Errorf("job %s: %w", name, errLost)
	}

	return nil
}

// share returns the jobs that are this watcher's, and lets go of those that are no more:
// whose they are now goes on from what the table says.
func (w *Watcher) share(ctx context.Context, names []string) ([]string, error) {
	if w.o.Holder == nil {
		return names, nil
	}

	if !w.o.Holder.Held() { // others may have said something of each meanwhile
		for name := range w.jobs {
			w.letGo(name)
		}
	}

	mine, err := w.o.Holder.Mine(ctx, names)
	if err != nil {
		return nil, err
	}

	for name := range w.jobs {
		// A job that the source does not list just now stays: forget drops it in its time.
		if !slices.Contains(mine, name) && slices.Contains(names, name) {
			w.letGo(name)
		}
	}

	return mine, nil
}

// letGo follows a job no more.
func (w *Watcher) letGo(name string) {
	delete(w.jobs, name)
	w.count(func(s *Status) { delete(s.Jobs, name) })
}

// takeOver begins a job with what was said of it: by another watcher, or by this one.
func (w *Watcher) takeOver(ctx context.Context, j *job) error {
	if w.o.Holder == nil {
		return nil
	}

	if err := w.o.Sink(ctx, nil); err != nil { // it makes the table that is read next
		return err
	}

	said, err := w.said(ctx, j.Job)
	if err != nil {
		return err
	}

	if j.Stated, j.taken = said, len(said) > 0; j.taken {
		w.count(func(s *Status) { s.Taken++ })
	}

	return nil
}

// unrepeated leaves out of the first changes of a job that was taken over what the watcher
// before has stored meanwhile, and counts it.
func (w *Watcher) unrepeated(ctx context.Context, j *job) error {
	if !j.taken || len(j.Unsent) == 0 {
		return nil
	}

	said, err := w.said(ctx, j.Job)
	if err != nil {
		return err
	}

	n := len(j.Unsent)
	j.Unsent = slices.DeleteFunc(j.Unsent, func(r row.Verdict) bool {
		now := statementOf(&r)
		return slices.ContainsFunc(said, func(was statement) bool { return was.subject() == now.subject() && now.repeats(was) })
	})
	j.taken = false
	w.count(func(s *Status) { s.Repeated += uint64(n - len(j.Unsent)) })
	return nil
}

// owner returns the watcher that a job belongs to.
func owner(alive []string, job string) string {
	best, most := "", uint64(0)
	for _, name := range alive {
		// Rendezvous hashing (Thaler and Ravishankar, 1996): no table of owners, and each watcher computes
		// the same.
		if h := record.HashID(name, job).Mixed(); best == "" || h > most {
			best, most = name, h
		}
	}

	return best
}

// said returns what the table says of a job: what this watcher need not say again.
func (w *Watcher) said(ctx context.Context, job string) ([]statement, error) {
	rows, err := w.o.Table(ctx, job, 0)
	if err != nil {
		return nil, fmt.Errorf("ask what was said of job %s: %w", job, err)
	}

	var all []statement
	for _, r := range rows {
		// What has ended is not said any more: to know it would mean to end it again.
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
