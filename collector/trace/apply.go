package trace

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"sync"

	"github.com/laggard-dev/laggard/collector/ring"
	"github.com/laggard-dev/laggard/schemas/record"
)

// Recorder is one recorder under a run directory and how it follows the switch.
type Recorder struct {
	Incarnation record.ID `json:"incarnation"`
	PID         int       `json:"pid"`
	Job         string    `json:"job"`
	Rank        int       `json:"rank"`
	Node        string    `json:"node,omitempty"` // "" on this machine
	Wanted      State     `json:"wanted"`
	Followed    State     `json:"followed"`    // what it acts on now; what is wanted, from its next range on
	FollowedAt  int64     `json:"followed_at"` // since when, ns since the Unix epoch
}

// Recorders lists the living recorders under a run directory. The error joins
// what was wrong with single folders.
func Recorders(runDir string) ([]Recorder, error) {
	var out []Recorder
	err := each(runDir, func(f *ring.Folder, s ring.Status) error {
		r, err := recorderOf(f, s)
		if err == nil {
			out = append(out, r)
		}

		return err
	})
	return out, err
}

// recorderOf reads who a folder's recorder is and what it does.
func recorderOf(f *ring.Folder, s ring.Status) (Recorder, error) {
	r := Recorder{
		Incarnation: f.Identity.Incarnation, PID: f.Identity.PID,
		Wanted: FromBits(s.Wanted), Followed: FromBits(s.Followed), FollowedAt: s.FollowedAt,
	}
	if err := f.ReadTexts(s); err != nil {
		return r, err
	}

	if text, ok := f.Text(uint16(min(s.Identity, math.MaxUint16))); ok && text != "" {
		var m record.Meta
		if json.Unmarshal([]byte(text), &m) == nil {
			r.Job, r.Rank = m.Job, m.Rank
		}
	}

	return r, nil
}

// Apply tells the living recorders under a run directory what to record: those of
// the jobs that of says yes to. The error joins what was wrong with single folders;
// the others were told.
func Apply(runDir string, s State, of func(job string) bool) error {
	return each(runDir, func(f *ring.Folder, st ring.Status) error {
		r, err := recorderOf(f, st)
		if err != nil || !of(r.Job) {
			return err
		}

		return f.SetWanted(st, s.Bits())
	})
}

// each calls do for the folder of each living process.
func each(runDir string, do func(*ring.Folder, ring.Status) error) error {
	names, err := ring.Names(runDir)
	if err != nil {
		return err
	}

	var errs []error
	for _, name := range names {
		// Foreign folders are the drain's to report.
		if err := one(runDir, name, do); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, ring.ErrNotRing) {
			errs = append(errs, err)
		}
	}

	return errors.Join(errs...)
}

func one(runDir, name string, do func(*ring.Folder, ring.Status) error) error {
	f, err := ring.OpenFolder(runDir, name)
	if err != nil {
		return err
	}
	defer f.Close()
	s, err := f.Status()
	if err != nil || f.Gone(s.State) {
		return err
	}

	return do(f, s)
}

// Switch is what an agent wants its recorders to record, by job. Who spoke last
// wins, others than the agent too (TaskD's manager writes the same word): so a word
// goes to the recorders once, when it is spoken, and to a recorder that comes later
// once, by the drain. Its methods may be called from any goroutine.
type Switch struct {
	RunDir string
	// Name is what callers call a recorder's job; nil: by its own name.
	Name func(job string) string

	mu   sync.Mutex
	all  *State           // for every job without a word of its own
	jobs map[string]State // by Name
}

// Set wants s of a job from now on, of every job when that is "", and tells the
// recorders under RunDir.
func (s *Switch) Set(job string, state State) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.setLocked(job, state)
}

func (s *Switch) setLocked(job string, state State) error {
	s.keepLocked(job, state)
	if err := Apply(s.RunDir, state, func(own string) bool { return job == "" || s.name(own) == job }); err != nil {
		return fmt.Errorf("switch to %s: %w", state, err)
	}

	return nil
}

// Follow takes a word of a source that spoke before the agent began, a switch file or
// another agent: as Set does, but the first word is not news. It goes to the recorders
// that have not had it from an agent, by the drain.
func (s *Switch) Follow(job string, state State) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, told := s.stateLocked(job); told {
		return s.setLocked(job, state)
	}

	s.keepLocked(job, state)
	return nil
}

func (s *Switch) keepLocked(job string, state State) {
	if job == "" {
		s.all, s.jobs = &state, nil
		return
	}

	if s.jobs == nil {
		s.jobs = map[string]State{}
	}

	s.jobs[job] = state
}

func (s *Switch) name(job string) string {
	if s.Name == nil {
		return job
	}

	return s.Name(job)
}

// State returns what is wanted of a job, as callers call it; false: nobody said yet,
// each recorder goes by its own LAGGARD_TRACE.
func (s *Switch) State(job string) (State, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stateLocked(job)
}

func (s *Switch) stateLocked(job string) (State, bool) {
	if state, ok := s.jobs[job]; ok {
		return state, true
	}

	if s.all != nil {
		return *s.all, true
	}

	return State{}, false
}

// Wanted is State of a recorder's job as the bits of a switch word: what
// drain.Options.Wanted wants, for the recorders that come later.
func (s *Switch) Wanted(job string) (uint32, bool) {
	state, ok := s.State(s.name(job))
	return state.Bits(), ok
}
