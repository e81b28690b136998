package drain

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/laggard-dev/laggard/collector/ring"
)

// stalled is how long a pass may take before Ready says that it hangs: a disk that syncs
// slowly takes seconds, a mount whose server is away takes for ever.
const stalled = 30 * time.Second

// lastTurns bounds the time in which everybody has his last turns before the end.
const lastTurns = 5 * time.Second

// Ready tells why rings are not drained as they should be, nil when they are. What
// users do who are not trusted is no reason.
func (d *Drain) Ready() error {
	s := d.public.Load()
	switch since := d.o.Now().Sub(s.passedAt); {
	case s.Passes == 0:
		return errors.New("no pass over the rings yet")
	case since > stalled:
		return fmt.Errorf("the last pass over the rings ended %s ago", since.Round(time.Second))
	}

	return s.trouble
}

// look notes, after a pass, what is left alone and what of it Ready has to say.
func (d *Drain) look(now time.Time) {
	// One line a user, however many folders he has.
	type about struct {
		waiting, unreadable int
		longest             time.Duration
		cause               error
	}
	users := make(map[uint32]*about)
	waiting := 0
	for _, l := range d.left {
		if l.reason != noRoom && l.reason != unreadable {
			continue
		}

		u := users[l.uid]
		if u == nil {
			u = &about{}
			users[l.uid] = u
		}

		if l.cause != nil {
			u.cause = l.cause
		}

		if l.reason == unreadable {
			u.unreadable++
			continue
		}

		waiting++
		u.waiting++
		u.longest = max(u.longest, now.Sub(l.since))
	}

	var errs []error
	for _, uid := range slices.Sorted(maps.Keys(users)) {
		u := users[uid]
		if u.waiting > 0 && (u.longest > tooLong || u.cause != nil) {
			err := fmt.Errorf("%d ring folders of uid %d wait to be drained, one for %s: %d of a user are held at once, and what the limit of %d open files allows", u.waiting, uid, u.longest.Round(time.Second), PerUser, ring.OpenFiles())
			errs = append(errs, withCause(err, u.cause))
		}

		if u.unreadable > 0 {
			errs = append(errs, withCause(fmt.Errorf("%d ring folders of uid %d can't be read", u.unreadable, uid), u.cause))
		}
	}

	d.stats.passedAt, d.stats.trouble = now, joinFirst(errs)
	d.stats.Ignored, d.stats.Waiting = len(d.left)-waiting, waiting
}

// withCause adds a cause to an error where there is one.
func withCause(err, cause error) error {
	if cause == nil {
		return err
	}

	return fmt.Errorf("%w: %w", err, cause)
}

// leave drains everything once more before the end, in turns where that takes more than one
// pass, and says what is left in the rings of trusted users.
func (d *Drain) leave() error {
	d.leaving = true
	began := d.o.Now()
	full, err := d.Pass()
	for d.o.Now().Sub(began) < lastTurns && (full || d.missed(began, noRoom) > 0) {
		full, err = d.Pass()
	}

	if err != nil {
		d.o.Logger.Warn("drain", "cause", err)
	}

	var errs []error
	for _, p := range d.processes {
		if n := p.undrained(); n > 0 || p.err != nil {
			errs = append(errs, withCause(fmt.Errorf("ring folder %s has %d records more", p.name, n), p.err))
		}
	}

	if n := d.missed(began, noRoom) + d.missed(d.o.Now(), unreadable); n > 0 {
		errs = append(errs, withCause(fmt.Errorf("%d ring folders could not be read", n), d.stats.trouble))
	}

	if err := joinFirst(errs); err != nil {
		return fmt.Errorf("leave rings in %s undrained, for the next agent: %w", d.o.RunDir, err)
	}

	return nil
}

// missed counts the folders that have been left alone for a reason since before a time.
func (d *Drain) missed(since time.Time, reason string) (n int) {
	for _, l := range d.left {
		if l.reason == reason && !l.since.After(since) {
			n++
		}
	}

	return n
}

// undrained returns how many records the process's rings held at the last look that are
// not in a segment.
func (p *process) undrained() (n uint64) {
	if p.w == nil {
		_ = p.findRings() // what can't be read is not counted
	}

	for _, r := range p.rings {
		if c, err := r.reader.Counters(); err == nil && !r.resumed { // no writer yet
			r.lanes[ring.Light].head, r.lanes[ring.Bulk].head = c.Head[ring.Light], c.Head[ring.Bulk]
			r.lanes[ring.Light].tail, r.lanes[ring.Bulk].tail = c.Tail[ring.Light], c.Tail[ring.Bulk]
		}

		for i := range r.lanes {
			if l := &r.lanes[i]; l.head > l.tail {
				n += l.head - l.tail
			}
		}
	}

	return n
}
