package watch

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/laggard-dev/laggard/schemas/row"
)

// A watcher that shares jobs writes a row of the table of verdicts at each look: no job, its
// name as the node, this finding, and one of these states. schemas/FORMAT.md has the bytes.
const (
	findingWatcher = "watcher"
	stateAlive     = "alive"
	stateGone      = "gone"
)

// Rows finds the other watchers by rows of the table of verdicts: who reads the same rows
// decides alike.
//
// Caveat: watchers go by their own clocks, which must agree within a fraction of the lease;
// while one does not yet know of another both may follow a job, and say a change twice.
type Rows struct {
	Name  string                                              // of this watcher, different from all others'
	Sink  func(ctx context.Context, rows []row.Verdict) error // as Options.Sink
	Table Table
	Lease time.Duration // the same for all of them
	Now   func() time.Time
	Log   *slog.Logger

	alive []string
}

// Mine implements Holder. After an error nothing is mine: others may have it by now.
func (s *Rows) Mine(ctx context.Context, jobs []string) ([]string, error) {
	now := s.Now()
	if err := s.say(ctx, now, stateAlive); err != nil {
		return nil, err
	}

	rows, err := s.Table(ctx, "", now.Add(-s.Lease).UnixNano())
	if err != nil {
		return nil, fmt.Errorf("ask for watchers: %w", err)
	}

	alive := []string{s.Name}
	for _, r := range rows {
		// Who has left says so, and needn't be waited for.
		if r.State == stateAlive && r.Node != s.Name {
			alive = append(alive, r.Node)
		}
	}

	slices.Sort(alive)
	if !slices.Equal(alive, s.alive) {
		s.Log.Info("jobs are shared", "watchers", alive)
	}

	s.alive = alive
	return slices.DeleteFunc(slices.Clone(jobs), func(job string) bool { return owner(alive, job) != s.Name }), nil
}

// Held implements Holder: between two looks nothing says otherwise.
func (s *Rows) Held() bool { return true }

// Leave implements Holder.
func (s *Rows) Leave(ctx context.Context) error { return s.say(ctx, s.Now(), stateGone) }

// say writes this watcher's row: its name stands where a node's does, and of no job.
func (s *Rows) say(ctx context.Context, now time.Time, state string) error {
	at := row.Verdict{AtNs: now.UnixNano(), Node: s.Name, Finding: findingWatcher, State: state}
	if err := s.Sink(ctx, []row.Verdict{at}); err != nil {
		return fmt.Errorf("say that watcher %s is %s: %w", s.Name, state, err)
	}

	return nil
}
