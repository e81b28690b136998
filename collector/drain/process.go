package drain

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/laggard-dev/laggard/collector/ring"
	"github.com/laggard-dev/laggard/schemas/record"
)

// process is a ring folder that this agent holds.
type process struct {
	d    *Drain
	name string

	from    *left     // what it was before it was held
	heldAt  time.Time // this time
	granted int       // descriptors, its writer's included
	needs   int       // with all rings that it has made
	turnAt  time.Time // when its turn to write began, where it has it
	passed  bool      // it has had a pass, in which no other process of its rank had the turn to write
	records int       // taken in the last one
	err     error     // of it

	folder *ring.Folder

	status     ring.Status // as it was read last
	broken     bool        // the process file can't be read any more
	gone       bool        // nothing will be written any more
	aliveAt    time.Time   // when its process was seen last
	identity   uint32      // string id of the identity that meta is made of, 0 none
	meta       record.Meta // its identity, completed; Format is "" before the first look
	instructed string      // the job as which it was told what to record
	rings      []*ringState
	bad        map[uint32]bool   // ring files that can't be read, said once
	cut        map[uint32]uint64 // what the rings of such held, as records name these
	note       note

	w        Writer    // nil: who it is isn't known yet, or the last one could not be opened
	segment  string    // that w has open, of which Options.Rotated was told
	retryAt  time.Time // Open again, when w is nil
	unsaid   bool      // lines that Flush refused are still with w
	dirty    bool      // flushed and not synced
	syncedAt time.Time
	lossAt   time.Time // when losses were told last

	ops     []string // by string id: what record.BaseOp makes of it, "" not asked yet
	sign    int64    // when it was seen alive last, by its own records: ns since the Unix epoch
	full    bool     // a ring was more than a quarter full in the last pass, or more was there
	removed bool     // its folder is gone, or left alone because it can't be removed
}

// newProcess returns the process of a folder whose lock we have. It owns the folder.
func newProcess(d *Drain, name string, f *ring.Folder) (*process, error) {
	p := &process{d: d, name: name, folder: f, sign: f.Identity.StartedNs, bad: make(map[uint32]bool), cut: make(map[uint32]uint64)}
	if err := p.note.load(f); err != nil {
		return nil, err
	}

	return p, nil
}

// errNoRoom says that a process has more rings than there are descriptors for now.
var errNoRoom = errors.New("no descriptors are left for all of its rings")

// errForeign says that a process records for a job that its user may not write.
var errForeign = errors.New("its user may not write this job")

// pass drains what the rings hold now, at most passSlots.
func (p *process) pass(now time.Time) (records int, err error) {
	p.passed = true
	if ready, e := p.resume(now); !ready {
		return 0, e
	}

	err = p.instruct()
	if e := p.settle(); e != nil {
		return 0, errors.Join(err, e)
	}

	records, e := p.copy(now)
	if e == nil {
		e = p.tell(now)
	}

	if e == nil && p.gone && !p.full {
		e = p.finish(now)
	} else if e == nil {
		e = p.sync(now)
	}

	return records, errors.Join(err, e)
}

// resume looks at the process anew, and opens its Writer: then it is known how far its rings
// are in segments.
func (p *process) resume(now time.Time) (ready bool, err error) {
	p.refresh()
	p.gone = p.dead(now) // before the heads: what is there then is all
	return p.ready(now)
}

// instruct tells the recorder what its job is to record: once, also over restarts of
// the agent.
func (p *process) instruct() error {
	if p.d.o.Wanted == nil || p.gone || p.broken || p.instructed == p.meta.Job {
		return nil
	}

	bits, ok := p.d.o.Wanted(p.meta.Job)
	if !ok {
		return nil
	}

	for told := p.note.Told; told == nil || *told != bits; {
		s, err := p.folder.Status() // it may have been told since it was read
		if err == nil {
			err = p.folder.SetWanted(s, bits)
		}

		if err != nil {
			return err
		}

		// Who spoke while we wrote has told it before us.
		was := bits
		told = &was
		bits, _ = p.d.o.Wanted(p.meta.Job)
	}

	p.instructed = p.meta.Job
	p.note.Told, p.note.changed = &bits, true
	return nil
}

// dead reports whether nothing will be written into the folder any more. While the
// recorder's lock is held it most likely lives: the process table, which costs more
// than the pass itself when little has come, is looked at every lifeEvery then.
func (p *process) dead(now time.Time) bool {
	if since := now.Sub(p.aliveAt); since >= 0 && since < lifeEvery && p.folder.Held() {
		return false
	}

	if p.folder.Gone(p.status.State) {
		return true
	}

	p.aliveAt = now
	return false
}

// refresh reads the status and the strings anew. A process file that became too
// short leaves us with what we know; the rings may still be whole.
func (p *process) refresh() {
	s, err := p.folder.Status()
	if err == nil {
		p.status = s
		err = p.folder.ReadTexts(s)
	}

	if err != nil && !p.broken {
		p.broken = true
		p.d.stats.Damaged++
		p.d.o.Logger.Warn("drain: the process file can't be read; strings that it held are lost", "folder", p.name, "cause", err)
	}
}

// ready makes sure of an identity and a Writer. A process that has not said who
// it is keeps its ranges in its rings for a while.
func (p *process) ready(now time.Time) (bool, error) {
	news := p.readIdentity()
	if p.w != nil && news {
		if err := p.renew(); err != nil {
			return false, err
		}
	}

	if p.w != nil {
		return true, nil
	}

	if p.identity == 0 && !p.gone && now.Sub(p.from.found) < anonymous || now.Before(p.retryAt) {
		return false, nil
	}

	// A new writer goes on where the last one was, though the identity may have changed
	// since: renew ends the incarnation there, and the next pass opens one elsewhere.
	meta := p.meta
	if h := p.note.Home; h != nil {
		meta.Job, meta.Rank = h.Job, h.Rank
	}

	if jobs, all := p.d.o.Trust(p.folder.Owner); !all && !slices.Contains(jobs, meta.Job) {
		return false, errForeign
	}

	w, err := p.d.o.Open(meta)
	if err != nil {
		p.retryAt = now.Add(reopen)
		return false, fmt.Errorf("open writer: %w", err)
	}

	p.w, p.syncedAt = w, now
	crashPoint("opened")
	p.note.resolve(w, meta)
	p.note.Home, p.note.changed = &record.RankID{Job: meta.Job, Rank: meta.Rank}, true
	p.remember()
	if w.Ended() {
		// Its end is on disk: the agent before was killed before it had removed the folder.
		if !p.gone {
			p.dropWriter()
			p.retryAt = now.Add(time.Minute)
			return false, fmt.Errorf("incarnation %s has ended already, but its process lives: its ranges stay where they are", p.name)
		}

		return false, p.remove(now)
	}

	err = p.renew()
	return p.w != nil, err
}

// renew passes a changed identity on. One that names another job or rank goes on
// in another directory.
func (p *process) renew() error {
	if err := p.settle(); err != nil {
		return err
	}

	if h := p.note.Home; h.Job != p.meta.Job || h.Rank != p.meta.Rank {
		return p.move()
	}

	if err := p.w.SetMeta(p.meta); err != nil {
		return fmt.Errorf("set identity: %w", err)
	}

	p.unsaid = true
	return nil
}

// move ends the incarnation in the directory of its first identity; the next
// pass opens a Writer in that of the new one.
func (p *process) move() error {
	if !p.w.Ended() { // else only its sync failed before
		if err := p.end(record.End{At: p.sign, How: "closed"}); err != nil {
			return err
		}
	}

	if err := p.endWriter(); err != nil {
		return err
	}

	p.note.Home, p.note.changed = nil, true
	p.remember()
	return nil
}

// dropWriter closes the Writer; the next pass opens one.
func (p *process) dropWriter() error {
	err := p.w.Close()
	p.w, p.segment, p.unsaid = nil, "", false
	return err
}

// tellRotation tells when the Writer has begun another segment: nobody need wait for the
// next look at the directory.
func (p *process) tellRotation() {
	if name := p.w.Name(); name != p.segment {
		p.segment = name
		p.d.o.Rotated()
	}
}

// settle flushes what the Writer holds and then moves the tails.
func (p *process) settle() error {
	if p.w == nil {
		return nil
	}

	if p.unsaid {
		err := p.w.Flush()
		p.tellRotation()
		if err != nil {
			p.d.stats.WriteErrors++
			return fmt.Errorf("write: %w", err)
		}

		p.unsaid, p.dirty, p.d.flushed = false, true, true
		crashPoint("flushed")
	}

	p.note.commit()
	var errs []error
	for _, r := range p.rings {
		errs = append(errs, r.advance())
	}

	crashPoint("settled")
	return errors.Join(errs...)
}

// sync makes the flushed lines durable every Options.Sync.
func (p *process) sync(now time.Time) error {
	if !p.dirty || now.Sub(p.syncedAt) < p.d.o.Sync {
		return nil
	}

	p.syncedAt = now
	if err := p.w.Sync(); err != nil {
		p.d.stats.WriteErrors++
		p.unsaid = true // a Writer may have moved on to another file
		return fmt.Errorf("sync: %w", err)
	}

	p.dirty = false
	return nil
}

// remove deletes the folder. One that can't be deleted is left for a while, and said so.
func (p *process) remove(now time.Time) error {
	p.removed = true
	crashPoint("removing")
	err := p.folder.Remove()
	if err != nil {
		p.d.left[p.name] = p.from
		p.from.reason, p.from.cause, p.from.since, p.from.until = notRemoved, err, now, now.Add(retryRemove)
	}

	return err
}

// close closes files; the folder stays.
func (p *process) close() {
	if p.w != nil {
		p.w.Close()
		p.w = nil
	}

	for _, r := range p.rings {
		r.reader.Close()
	}

	p.rings = nil
	p.folder.Close()
}
