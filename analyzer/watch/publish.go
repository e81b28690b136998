package watch

import (
	"context"
	"fmt"
	"slices"

	"github.com/laggard-dev/laggard/schemas/keep"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// judge decides, notes what changed and saves.
func (w *Watcher) judge(ctx context.Context, j *job) {
	j.verdict = j.decide(w.MinImpact())
	changes, now := compare(j.Stated, j.verdict)
	j.Stated = now
	j.Changes += uint64(len(changes))
	for i := range changes {
		c := &changes[i]
		w.log(j, c)
		if w.o.Sink != nil {
			j.Unsent = append(j.Unsent, c.row(j.LastNs, j.verdict.Steps.Last))
		}
	}

	if over := len(j.Unsent) - maxUnsent; over > 0 {
		j.Unsent = slices.Delete(j.Unsent, 0, over)
		w.o.Log.Error("the store of verdicts has been failing for long: the oldest changes are dropped", "job", j.Job, "dropped", over)
	}

	for _, observe := range w.o.Observers {
		observe(ctx, j.verdict, changes)
	}
}

// log says a change: as a warning what somebody may want to act on.
func (w *Watcher) log(j *job, c *Change) {
	args := []any{"job", c.Job, "step", j.verdict.Steps.Last}
	for _, a := range [][2]string{{"node", c.Node}, {"group", c.Group}, {"finding", c.Finding}, {"state", c.State}, {"was", c.Was}, {"cause", c.Cause}, {"detail", c.Detail}} {
		if a[1] != "" {
			args = append(args, a[0], a[1])
		}
	}

	if verdict.Blamed(c.State) || c.State == StateUnhealthy {
		w.o.Log.Warn("verdict changed", append(args, "job_impact", c.Impact)...)
		return
	}

	w.o.Log.Info("verdict changed", args...)
}

// publish saves the job, then sends what was not sent, then saves that.
func (w *Watcher) publish(ctx context.Context, j *job) error {
	if err := w.save(j); err != nil {
		return err
	}

	if len(j.Unsent) == 0 || w.o.Sink == nil {
		return nil
	}

	if err := w.unrepeated(ctx, j); err != nil {
		return err
	}

	// What was asked before may have taken longer than a Lease lasts.
	if err := w.held(j.Job); err != nil {
		return err
	}

	if err := w.o.Sink(ctx, j.Unsent); err != nil {
		return err
	}

	j.Unsent = nil
	j.dirty = true
	return w.save(j)
}

// save writes what differs from the file. Without a directory of state nothing is to be saved.
func (w *Watcher) save(j *job) error {
	if w.lock == nil || !j.dirty {
		j.dirty = false
		return nil
	}

	j.Cursor = j.reader.Cursor()
	data, err := j.encode()
	if err == nil {
		err = keep.Write(w.stateFile(j.Job), 0o600, data)
	}

	if err != nil {
		return fmt.Errorf("save state: %w", err)
	}

	j.dirty = false
	return nil
}
