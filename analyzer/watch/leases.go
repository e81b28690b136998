package watch

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/laggard-dev/laggard/analyzer/health"
	"github.com/laggard-dev/laggard/schemas/record"
)

// Leases finds the other watchers by Leases of Kubernetes, one for each watcher and not for
// each job, so that the API server has the same to do for one job as for thousands. A Lease
// names in an annotation the watchers among whom its own divides the jobs (actsOn).
//
// Invariant: a job is followed by one watcher at a time. Each writes first among whom it
// divides, and then reads what the others have written; a job is its only where all of them
// give it to it. Of two who would take the same one, the later to write sees the other. Who
// can't renew its Lease goes on until that ends, by its own clock from before the last renewal
// was sent, and then follows nothing; others count from when they saw that renewal, so clocks
// need not agree.
//
// Mine and Leave are called by one goroutine, Held and Run by others, too.
type Leases struct {
	API       health.API
	Namespace string
	Name      string // of this watcher, different from all others'
	// Store is whose jobs are divided: the watchers of another one don't count.
	Store string
	Lease time.Duration // whole seconds
	Now   func() time.Time
	Log   *slog.Logger

	calls sync.Mutex // one exchange with the API server at a time; guards what follows
	id    string     // of this process: a name may be given twice
	own   health.Lease
	view  []string            // among whom this watcher divides, as its Lease says
	views [][]string          // what it and the others that were alive said when they last agreed
	seen  map[string]sighting // of others, by the Lease's name
	away  bool                // the API server did not answer the last time

	until atomic.Pointer[time.Time] // others may take the jobs from then on
}

// sighting is since when a Lease has been as it is.
type sighting struct {
	version string
	at      time.Time
}

const (
	shareLabel = "laggard.io/share"
	// Annotations: a watcher's name, and the names of those among whom it divides the jobs.
	watcherName = "laggard.io/watcher"
	actsOn      = "laggard.io/divides-among"
	// agreeRounds bounds how often a watcher looks anew because others have come or gone.
	agreeRounds = 4
)

// NewLeases returns the Leases of a watcher of this name. It calls nothing yet; Run renews.
func NewLeases(api health.API, namespace, name, store string, lease time.Duration, log *slog.Logger) *Leases {
	l := &Leases{API: api, Namespace: namespace, Name: name, Store: store, Lease: lease, Now: time.Now, Log: log, seen: map[string]sighting{}}
	l.id = name + "_" + rand.Text()[:8]
	l.hold(time.Time{})
	return l
}

// Mine implements Holder. While the API server is away the jobs stay whose they are, until
// the Lease ends.
func (l *Leases) Mine(ctx context.Context, jobs []string) ([]string, error) {
	l.calls.Lock()
	defer l.calls.Unlock()
	err := l.agree(ctx)
	switch {
	case err != nil && !l.Held():
		return nil, fmt.Errorf("no job is followed until this watcher has its Lease again: %w", err)
	case err != nil && !l.away:
		l.away = true
		l.Log.Warn("the API server is away: this watcher goes on with its jobs until its Lease ends", "until", l.ends(), "error", err)
	case err == nil && l.away:
		l.away = false
		l.Log.Info("the API server answers again")
	}

	return slices.DeleteFunc(slices.Clone(jobs), func(job string) bool {
		return owner(l.view, job) != l.Name || slices.ContainsFunc(l.views, func(v []string) bool { return owner(v, job) != l.Name })
	}), nil
}

// Held implements Holder.
func (l *Leases) Held() bool { return l.Now().Before(l.ends()) }

// ends is when others may take the jobs, the zero time where they may at once; hold sets it.
func (l *Leases) ends() time.Time      { return *l.until.Load() }
func (l *Leases) hold(until time.Time) { l.until.Store(&until) }

// Leave implements Holder.
func (l *Leases) Leave(ctx context.Context) error {
	l.calls.Lock()
	defer l.calls.Unlock()
	l.hold(time.Time{})
	if l.own.Metadata.ResourceVersion == "" {
		return nil
	}

	own := l.own
	l.own = health.Lease{}
	return l.API.DeleteLease(ctx, l.Namespace, &own)
}

// Run renews the Lease until ctx ends: a look may take longer than it.
func (l *Leases) Run(ctx context.Context) error {
	// Two renewals may fail before the Lease ends.
	t := time.NewTicker(l.Lease / 3)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
			if err := l.renew(ctx); err != nil && ctx.Err() == nil {
				l.Log.Debug("renew Lease", "error", err)
			}
		}
	}
}

// renew writes the Lease as it is: among whom jobs are divided changes between looks alone.
func (l *Leases) renew(ctx context.Context) error {
	l.calls.Lock()
	defer l.calls.Unlock()
	if l.own.Metadata.ResourceVersion == "" || !l.Held() {
		return nil // Mine makes it, and asks anew whose the jobs are
	}

	err := l.write(ctx, l.view)
	if !errors.Is(err, health.ErrConflict) {
		return err
	}

	_, err = l.read(ctx)
	if err == nil && l.own.Metadata.ResourceVersion != "" {
		err = l.write(ctx, l.view)
	}

	return err
}

// agree brings the Lease up to date with those of the others: it has been written as it is
// before they were read.
func (l *Leases) agree(ctx context.Context) error {
	for range agreeRounds {
		list, err := l.read(ctx)
		if err != nil {
			return err
		}

		view, views, err := l.others(ctx, list)
		if err != nil {
			return err
		}

		// Written as it should be before the others were read, and fresh for half of its time: agreed.
		if l.own.Metadata.ResourceVersion != "" && slices.Equal(view, l.view) && l.ends().Sub(l.Now()) > l.Lease/2 {
			l.views = append(views, view)
			return nil
		}

		if !slices.Equal(view, l.view) {
			l.Log.Info("jobs are shared", "watchers", view)
		}

		if err := l.write(ctx, view); err != nil && !errors.Is(err, health.ErrConflict) {
			return err
		}
	}

	return fmt.Errorf("agree with other watchers: they came and went %d times meanwhile", agreeRounds)
}

// read returns the Leases as they are, and adopts this watcher's.
func (l *Leases) read(ctx context.Context) ([]health.Lease, error) {
	list, err := l.API.Leases(ctx, l.Namespace, l.label())
	if err == nil {
		err = l.adopt(list)
	}

	return list, err
}

// adopt takes this watcher's Lease as the server has it: after a write that was not answered
// it may be another one than was read. Where it is somebody else's, or gone, the jobs are lost.
func (l *Leases) adopt(list []health.Lease) error {
	i := slices.IndexFunc(list, func(x health.Lease) bool { return x.Metadata.Name == l.lease() })
	if i >= 0 && list[i].Spec.Holder == l.id {
		l.own = list[i]
		return json.Unmarshal([]byte(l.own.Metadata.Annotations[actsOn]), &l.view)
	}

	lost := l.own.Metadata.ResourceVersion != ""
	if lost {
		l.hold(time.Time{})
		l.own, l.view = health.Lease{}, nil
	}

	switch {
	case i < 0 && lost:
		return fmt.Errorf("hold Lease %s/%s: it was deleted, and others may have had the jobs of %s", l.Namespace, l.lease(), l.Name)
	case i < 0:
		return nil
	}

	if x := &list[i]; l.alive(x) {
		return fmt.Errorf("hold Lease %s/%s of watcher %s: it is held by %s: give each watcher its own --share, or wait until that one has been silent for %d s",
			l.Namespace, x.Metadata.Name, l.Name, x.Spec.Holder, x.Spec.Seconds)
	}

	l.own = list[i] // of an earlier process of this name
	l.own.Spec.Transfers++
	return nil
}

// others returns among whom the jobs are to be divided, and among whom those that are alive
// divide them now. Leases of the dead are taken away.
func (l *Leases) others(ctx context.Context, list []health.Lease) (view []string, views [][]string, err error) {
	view = []string{l.Name}
	for i := range list {
		x := &list[i]
		if x.Metadata.Name == l.lease() {
			continue
		}

		if !l.alive(x) {
			if err := l.API.DeleteLease(ctx, l.Namespace, x); err != nil {
				return nil, nil, err
			}

			continue
		}

		var names []string
		if err := json.Unmarshal([]byte(x.Metadata.Annotations[actsOn]), &names); err != nil {
			return nil, nil, fmt.Errorf("read annotation %s of Lease %s/%s: %w: delete the Lease, its watcher makes it anew", actsOn, l.Namespace, x.Metadata.Name, err)
		}

		view, views = append(view, x.Metadata.Annotations[watcherName]), append(views, names)
	}

	slices.Sort(view)
	return view, views, nil
}

// alive reports whether a Lease has changed within its time.
func (l *Leases) alive(x *health.Lease) bool {
	now, was := l.Now(), l.seen[x.Metadata.Name]
	if was.version != x.Metadata.ResourceVersion {
		was = sighting{x.Metadata.ResourceVersion, now}
		l.seen[x.Metadata.Name] = was
	}

	return now.Sub(was.at) < time.Duration(x.Spec.Seconds)*time.Second
}

// write makes or renews the Lease.
func (l *Leases) write(ctx context.Context, view []string) error {
	names, err := json.Marshal(view)
	if err != nil {
		panic("BUG: marshal names: " + err.Error())
	}

	// Before the call: others count from when they see it written, which is later.
	next, now := l.own, l.Now()
	next.Metadata.Name = l.lease()
	next.Metadata.Labels = map[string]string{shareLabel: l.group()}
	next.Metadata.Annotations = map[string]string{watcherName: l.Name, actsOn: string(names)}
	next.Spec.Seconds, next.Spec.Renewed = int(l.Lease/time.Second), now.UTC().Format(health.MicroTime)
	if next.Spec.Holder != l.id {
		next.Spec.Holder, next.Spec.Acquired = l.id, next.Spec.Renewed
	}

	if err := l.API.SetLease(ctx, l.Namespace, &next); err != nil {
		return err
	}

	l.own, l.view = next, view
	l.hold(now.Add(l.Lease))
	return nil
}

// group tells the watchers of one store from those of others, lease names this one's Lease.
func (l *Leases) group() string { return record.HashID(l.Store).String() }
func (l *Leases) lease() string { return "laggard-watch-" + record.HashID(l.Store, l.Name).String() }
func (l *Leases) label() string { return shareLabel + "=" + l.group() }
