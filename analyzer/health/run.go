package health

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// Run writes what is wanted until ctx ends.
func (c *Cluster) Run(ctx context.Context) error { return c.wake.Run(ctx, c.sync) }

const (
	// idle is how long sync lets pass when nothing is due: holds and heartbeats are
	// minutes.
	idle = 15 * time.Second
	// strangerWait is how long a node that the cluster does not know is left alone.
	strangerWait = time.Hour
)

// sync writes what is due now and returns how long to wait for the next call.
func (c *Cluster) sync(ctx context.Context) time.Duration {
	c.mu.Lock()
	now := c.o.Now()
	if wait := c.back.until.Sub(now); wait > 0 {
		c.mu.Unlock()
		return wait
	}

	calls := c.plan(now)
	c.mu.Unlock()
	for _, j := range calls {
		wait, _ := c.perform(ctx, j)
		// The server's trouble is that of every call: the rest of the plan is made anew.
		if wait > 0 || ctx.Err() != nil {
			return max(wait, firstWait)
		}
	}

	if len(calls) > 0 {
		return 0 // an act follows its condition
	}

	return min(idle, c.o.Hold)
}

// perform makes a call, in a dry run says what it would do, and notes how it went. It returns how long to
// wait before any other, and the error that this is for.
func (c *Cluster) perform(ctx context.Context, j call) (time.Duration, error) {
	var err error
	if c.o.DryRun && !j.dry {
		c.o.Log.Info("dry run: would write", "what", j.words)
	} else if err = j.do(ctx, c.o.API); err != nil {
		err = fmt.Errorf("%s: %w", j.words, err)
	} else if !j.reads {
		c.o.Log.Info("written to the cluster", "what", j.words)
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.o.Now()
	// A node that the cluster does not know, or refuses a write to, waits by itself; any other failure is the
	// server's and holds up all of them.
	switch {
	case err == nil:
		c.back.reset(c.o.Log)
		delete(c.later, j.node)
		j.done()
	case j.node != "" && answered(err, http.StatusNotFound):
		c.later[j.node] = &backoff{until: now.Add(strangerWait)}
		c.node(j.node).Acted = false
		c.o.Log.Error("the cluster has no such node: set LAGGARD_NODE to the node's name in the pod", "node", j.node)
	case j.node != "" && refused(err):
		if c.later[j.node] == nil {
			c.later[j.node] = &backoff{}
		}

		c.later[j.node].fail(err, now, c.o.Log)
		return 0, err
	default:
		return c.back.fail(err, now, c.o.Log), err
	}

	if err := c.save(); err != nil {
		c.o.Log.Error("state of the cluster not saved", "error", err)
	}

	return 0, nil
}

// refused reports whether the answer was about this request and not about the
// server's state.
func refused(err error) bool {
	var e *apiError
	return errors.As(err, &e) && e.code/100 == 4 && !answered(err, http.StatusUnauthorized, http.StatusRequestTimeout, http.StatusTooManyRequests)
}

// insistFor bounds how long one call is tried for somebody who waits: a server that
// restarts, or that says to come later.
const insistFor = time.Minute

// insist makes a call until it is answered, waiting in between as the server says.
func (c *Cluster) insist(ctx context.Context, j call) error {
	for begun := c.o.Now(); ; {
		wait, err := c.perform(ctx, j)
		if err == nil {
			return nil
		}

		if refused(err) || c.o.Now().Sub(begun) >= insistFor {
			return err
		}

		select {
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-time.After(wait):
		}
	}
}

// Once writes everything that is due and returns: for somebody who comes back in an
// hour, so that nothing waits for Hold. The error says what could not be written.
func (c *Cluster) Once(ctx context.Context) error {
	c.mu.Lock()
	c.o.Hold = 0
	c.mu.Unlock()
	var errs []error
	for {
		c.mu.Lock()
		calls := c.plan(c.o.Now())
		c.mu.Unlock()
		if len(calls) == 0 {
			return errors.Join(errs...)
		}

		for _, j := range calls {
			err := c.insist(ctx, j)
			if err == nil {
				continue
			}

			errs = append(errs, err)
			if !refused(err) || j.node == "" {
				return errors.Join(errs...)
			}
		}
	}
}
