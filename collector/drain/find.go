package drain

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/laggard-dev/laggard/collector/ring"
)

// Reasons why a folder is not held, as Stats.Refused counts them.
const (
	foreign    = "foreign-owner" // of a user who is not trusted, or not with that job
	notRing    = "not-a-ring"    // of another version, or damaged
	unreadable = "unreadable"    // of a trusted user, and not to be opened
	noRoom     = "no-room"       // it waits for its turn, within PerUser and Files
	notRemoved = "not-removed"   // drained, and not to be removed: there is nothing in it for us any more
	elsewhere  = "elsewhere"     // another agent drains it
)

const (
	// PerUser is how many folders of one user are held at once: far more than a machine
	// has ranks.
	PerUser = 128
	// manyFolders are looked through in a pass, when there was none to try: a pass is skipped for
	// each so many that there are. Ten thousand would take 5 % of a processor.
	manyFolders = 1000
	// commonRings is how many rings a folder is taken to have before it was opened.
	commonRings = 2
	// longestPause bounds the pause before a folder that is left alone is tried again. A
	// pause is as long as the folder has been left alone: tries get rarer.
	longestPause = time.Minute
	// tooLong is how long a folder may wait for its turn before Ready says so.
	tooLong = 15 * time.Second
)

// left is a folder that is there and not held.
type left struct {
	reason string
	uid    uint32
	cause  error
	needs  int       // descriptors
	found  time.Time // when it was seen first
	since  time.Time // left alone since
	until  time.Time // not tried again before
}

// find takes the folders that are ours to read and drained by nobody else, as many as
// there is room for; those of the user who has the fewest first. When there is no room
// the folders held longest make some: everybody's have their turn.
func (d *Drain) find(now time.Time) error {
	if d.skip > 0 {
		d.skip--
		return nil
	}

	names, err := ring.Names(d.o.RunDir)
	if err != nil {
		return err
	}

	queues, errs := d.candidates(names, now)
	if len(queues) == 0 {
		d.skip = len(names) / manyFolders
	}

	for len(queues) > 0 {
		uid := d.poorest(queues)
		name := queues[uid][0]
		l := d.left[name]
		errs = append(errs, d.makeRoom(l, now))
		if d.folders[uid] >= PerUser {
			delete(queues, uid)
			continue
		}

		if d.files+l.needs > d.o.Files {
			break
		}

		if queues[uid] = queues[uid][1:]; len(queues[uid]) == 0 {
			delete(queues, uid)
		}

		errs = append(errs, d.take(name, l, now))
	}

	return joinFirst(errs)
}

// makeRoom releases folders for one that has not enough room, as far as any may go. The
// caller looks whether it was enough: those released before it wasn't are found again in
// the next pass.
func (d *Drain) makeRoom(l *left, now time.Time) error {
	for d.files+l.needs > d.o.Files || d.folders[l.uid] >= PerUser {
		v := d.victim(l.uid, now)
		if v == nil {
			return nil
		}

		if err := d.release(v, v.granted, now); err != nil {
			return err
		}
	}

	return nil
}

// candidates notes what is new and what is gone, and returns the names to try by their
// owners, those that have waited longest first.
func (d *Drain) candidates(names []string, now time.Time) (queues map[uint32][]string, errs []error) {
	there := make(map[string]bool, len(names))
	queues = make(map[uint32][]string)
	for _, name := range names {
		there[name] = true
		if slices.ContainsFunc(d.processes, func(p *process) bool { return p.name == name }) {
			continue
		}

		l := d.left[name]
		if l == nil {
			uid, err := ring.OwnerOf(d.o.RunDir, name)
			if err != nil {
				continue // gone meanwhile
			}

			l = &left{reason: noRoom, uid: uid, found: now, since: now, needs: ring.Descriptors + commonRings + 1}
			d.left[name] = l
		}

		if now.Before(l.until) {
			continue
		}

		if jobs, all := d.o.Trust(l.uid); !all && len(jobs) == 0 {
			d.refuse(l, foreign, nil, now)
			d.say(l.uid, "", now)
			continue
		}

		if l.needs > d.o.Files {
			cause := fmt.Errorf("ring folder %s needs %d descriptors, of %d: raise the limit of open files (ulimit -n)", name, l.needs, d.o.Files)
			errs = append(errs, d.refuse(l, unreadable, cause, now))
			continue
		}

		queues[l.uid] = append(queues[l.uid], name)
	}

	maps.DeleteFunc(d.left, func(name string, _ *left) bool { return !there[name] })
	for _, q := range queues {
		slices.SortStableFunc(q, func(a, b string) int { return d.left[a].since.Compare(d.left[b].since) })
	}

	return queues, errs
}

// poorest returns the user with candidates who holds the fewest folders, of two the one
// with the smaller uid: who makes many folders holds up nobody but himself.
func (d *Drain) poorest(queues map[uint32][]string) uint32 {
	best, found := uint32(0), false
	for uid := range queues {
		if !found || d.folders[uid] < d.folders[best] || d.folders[uid] == d.folders[best] && uid < best {
			best, found = uid, true
		}
	}

	return best
}

// victim returns the folder that makes room for one of a user: of the folders that
// have had their turn, a pass or a while, the one held longest, of the user's own or of somebody's who has
// more.
func (d *Drain) victim(uid uint32, now time.Time) (v *process) {
	own := d.folders[uid] >= PerUser
	for _, p := range d.processes {
		owner, busy := p.folder.Owner, p.records > 0 && now.Sub(p.heldAt) < turnTime && !d.leaving
		if busy || !p.passed || p.unsaid || owner != uid && (own || d.folders[owner] <= d.folders[uid]) {
			continue
		}

		if v == nil || p.heldAt.Before(v.heldAt) || p.heldAt.Equal(v.heldAt) && p.name < v.name {
			v = p
		}
	}

	return v
}

// release gives a folder up until its next turn, for which it needs so many descriptors:
// what was taken of it is on disk.
func (d *Drain) release(p *process, needs int, now time.Time) error {
	if p.dirty {
		p.syncedAt = time.Time{}
		if err := p.sync(now); err != nil {
			return fmt.Errorf("give up %s for a while: %w", p.name, err)
		}
	}

	p.from.reason, p.from.cause, p.from.needs, p.from.since, p.from.until = noRoom, nil, needs, now, time.Time{}
	d.leaveAlone(p)
	return nil
}

// leaveAlone gives up a process whose folder stays.
func (d *Drain) leaveAlone(p *process) {
	d.left[p.name] = p.from
	d.forget(p)
}

// take opens a folder and its lock, where they are to be had. A folder that is just being
// removed, or that another agent drains, is left alone in silence.
func (d *Drain) take(name string, l *left, now time.Time) error {
	f, err := ring.OpenFolder(d.o.RunDir, name)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}

	ok := false
	if err == nil {
		ok, err = d.hold(name, f, l, now)
	}

	switch {
	case ok:
		return nil
	case errors.Is(err, ring.ErrNotRing):
		return d.refuse(l, notRing, err, now)
	case errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOMEM):
		return d.refuse(l, noRoom, err, now)
	case err != nil:
		return d.refuse(l, unreadable, err, now)
	}

	return d.refuse(l, elsewhere, nil, now)
}

// hold makes the process of a folder that was opened, unless another agent has it.
func (d *Drain) hold(name string, f *ring.Folder, l *left, now time.Time) (bool, error) {
	ok, err := f.Lock()
	if err != nil || !ok {
		f.Close()
		return false, err
	}

	p, err := newProcess(d, name, f)
	if err != nil {
		f.Close()
		return false, err
	}

	p.from, p.heldAt, p.granted = l, now, l.needs
	d.stats.seen = true
	delete(d.left, name)
	d.processes = append(d.processes, p)
	d.files += p.granted
	d.folders[f.Owner]++
	return true, nil
}

// grant lets a process that is held open n descriptors in all. False: there is no room for
// more than it has.
func (d *Drain) grant(p *process, n int) bool {
	if d.files-p.granted+n > d.o.Files {
		return false
	}

	d.files += n - p.granted
	p.granted = n
	return true
}

// refuse leaves a folder alone for a while: as long as it has been left alone. It returns
// the cause when that is news.
func (d *Drain) refuse(l *left, reason string, cause error, now time.Time) error {
	news := l.reason != reason
	if news {
		l.since = now
	}

	l.reason, l.cause = reason, cause
	l.until = now.Add(min(now.Sub(l.since), longestPause))
	if !news || reason == noRoom || reason == elsewhere {
		return nil
	}

	d.stats.Refused[reason]++
	return cause
}

// letGo gives up a process whose job its user may not write.
func (d *Drain) letGo(p *process, now time.Time) {
	d.refuse(p.from, foreign, nil, now)
	d.say(p.folder.Owner, p.meta.Job, now)
	d.leaveAlone(p)
}
