package depth

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/laggard-dev/laggard/schemas/keep"
)

// Waits between attempts at one agent.
const (
	firstWait = time.Second
	mostWait  = time.Minute
	idle      = 15 * time.Second
)

// Run switches what is wanted until ctx ends.
func (d *Depth) Run(ctx context.Context) error { return d.wake.Run(ctx, d.Sync) }

// Sync brings the agents to what is wanted now, all at once, and returns how long
// to wait for the next call.
func (d *Depth) Sync(ctx context.Context) time.Duration {
	due, wait := d.due()
	if len(due) == 0 {
		return wait
	}

	var g errgroup.Group
	for _, s := range due {
		g.Go(func() error {
			left, err := d.bring(ctx, s)
			d.note(s, left, err)
			return nil
		})
	}

	_ = g.Wait() // bring's errors are noted one by one
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.save(); err != nil {
		d.o.Log.Error("state of depth not saved", "error", err)
	}

	return firstWait
}

// due returns copies of what is not as wanted, after the file knows of it: an agent
// that was switched on and never answered must be switched off by the next process.
func (d *Depth) due() ([]switched, time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.o.Now()
	wait := idle
	var due []switched
	for _, at := range slices.SortedFunc(maps.Keys(d.on), place.compare) {
		s := d.on[at]
		if s.want && now.Sub(s.At) >= d.o.Longest { // nobody speaks of the job any more
			s.want, s.done, s.next = false, false, time.Time{}
		}

		switch {
		case s.done:
		case now.Before(s.next):
			wait = min(wait, s.next.Sub(now))
		default:
			due = append(due, *s)
		}
	}

	if len(due) == 0 {
		return nil, wait
	}

	if err := d.save(); err != nil {
		d.o.Log.Error("nothing switched: the state of depth can't be saved", "error", err)
		return nil, firstWait
	}

	return due, wait
}

// bring switches one node. left reports whether it needs a place under the cap no
// longer.
func (d *Depth) bring(ctx context.Context, s switched) (left bool, err error) {
	now, err := d.o.Switch.Get(ctx, s.Job, s.Node)
	if err != nil {
		return false, err
	}

	// What a person set counts before what is wanted, so it is asked first.
	words := "Communication on"
	switch {
	case s.want && slices.ContainsFunc(now, func(a Setting) bool { return !a.Light }):
		d.say(s, "left alone: somebody switched everything off")
		return false, nil
	case s.want && !slices.ContainsFunc(now, func(a Setting) bool { return !a.Communication }):
		return false, nil // a person's, or ours of before
	case !s.want && !slices.ContainsFunc(now, func(a Setting) bool { return a.Ours && a.Communication }):
		return true, nil // a person spoke since: theirs to switch back
	case !s.want:
		words = "Communication off"
	}

	if d.o.DryRun {
		d.say(s, "dry run: would switch "+words)
		return !s.want, nil
	}

	if err := d.o.Switch.Set(ctx, s.Job, s.Node, s.want); err != nil {
		return false, err
	}

	d.say(s, "switched: "+words)
	return !s.want, nil
}

// say logs what was done at a node of a job.
func (d *Depth) say(s switched, words string) {
	d.o.Log.Info(words, "job", s.Job, "node", s.Node)
}

// note takes down how it went. What was wanted otherwise meanwhile is still due.
func (d *Depth) note(was switched, left bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.on[was.place]
	if err != nil {
		d.fails++
		// The first failure in a row is said; the others are counted.
		if s.wait == 0 {
			d.o.Log.Warn("agent not switched, tried again", "job", s.Job, "node", s.Node, "error", err)
		}

		s.wait = min(max(2*s.wait, firstWait), mostWait)
		s.next = d.o.Now().Add(s.wait)
		if !s.want && d.o.Now().Sub(s.At) >= d.o.Longest+restFor {
			d.o.Log.Error("agent given up: it may still record Communication", "job", s.Job, "node", s.Node, "error", err)
			delete(d.on, s.place)
		}

		return
	}

	if s.want != was.want {
		return
	}

	s.done, s.wait = true, 0
	if left {
		delete(d.on, s.place)
	}
}

// load takes up what an earlier process left in depth: it is switched back unless a
// case wants it.
func (d *Depth) load() error {
	var list []switched
	if err := keep.LoadState(d.o.StateFile, &list); err != nil {
		return fmt.Errorf("load state of depth %s: %w; it says which agents were switched: `laggard trace status` there before you move it away", d.o.StateFile, err)
	}

	for _, s := range list {
		d.on[s.place] = &s
	}

	return nil
}

// save writes which nodes have a place under the cap.
func (d *Depth) save() error {
	if d.o.DryRun {
		return nil
	}

	list := make([]switched, 0, len(d.on))
	for _, s := range d.on {
		list = append(list, *s)
	}

	slices.SortFunc(list, func(a, b switched) int { return a.compare(b.place) })
	if err := keep.SaveState(d.o.StateFile, list); err != nil {
		return fmt.Errorf("save state of depth: %w", err)
	}

	return nil
}
