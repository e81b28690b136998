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
	Followed    State     `json:"followed"`    // what it acts on now
	FollowedAt  int64     `json:"followed_at"` // since when, ns since the Unix epoch
}

// Follows reports whether the recorder acts on what is wanted. One that records
// nothing at the moment sees the switch at its next range.
func (r Recorder) Follows() bool { return r.Wanted == r.Followed }

// Recorders lists the living recorders under a run directory. The error joins
// what was wrong with single folders.
func Recorders(runDir string) ([]Recorder, error) {
	var out []Recorder
	err := each(runDir, func(f *ring.Folder, s ring.Status) error {
		r := Recorder{
			Incarnation: f.Identity.Incarnation, PID: f.Identity.PID,
			Wanted: FromBits(s.Wanted), Followed: FromBits(s.Followed), FollowedAt: s.FollowedAt,
		}
		if err := f.ReadTexts(s); err != nil {
			return err
		}
		if text, ok := f.Text(uint16(min(s.Identity, math.MaxUint16))); ok && text != "" {
			var m record.Meta
			if json.Unmarshal([]byte(text), &m) == nil {
				r.Job, r.Rank = m.Job, m.Rank
			}
		}
		out = append(out, r)
		return nil
	})
	return out, err
}

// Apply tells every living recorder under a run directory what to record. The
// error joins what was wrong with single folders; the others were told.
func Apply(runDir string, s State) error {
	return each(runDir, func(f *ring.Folder, st ring.Status) error {
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

// Switch is the state that an agent wants its recorders in. Its methods may be
// called from any goroutine.
type Switch struct {
	RunDir string

	mu    sync.Mutex
	state State
	set   bool
}

// Set wants s from now on and tells every recorder under RunDir.
func (s *Switch) Set(state State) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state, s.set = state, true
	if err := Apply(s.RunDir, state); err != nil {
		return fmt.Errorf("switch to %s: %w", state, err)
	}
	return nil
}

// State returns what is wanted; false: nobody said yet, each recorder goes by
// its own LAGGARD_TRACE.
func (s *Switch) State() (State, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state, s.set
}

// Wanted is State as the bits of a switch word: what drain.Options.Wanted wants,
// for the recorders that come later.
func (s *Switch) Wanted() (uint32, bool) {
	state, ok := s.State()
	return state.Bits(), ok
}
