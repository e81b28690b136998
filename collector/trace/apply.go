package trace

import (
	"errors"
	"io/fs"

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
	err := each(runDir, func(_ *ring.Folder, _ ring.Status, r Recorder) error {
		out = append(out, r)
		return nil
	})
	return out, err
}

// Apply tells the living recorders under a run directory what to record: those of
// the jobs that of says yes to. The error joins what was wrong with single folders;
// the others were told.
func Apply(runDir string, s State, of func(job string) bool) error {
	return each(runDir, func(f *ring.Folder, st ring.Status, r Recorder) error {
		if !of(r.Job) {
			return nil
		}

		return f.SetWanted(st, s.Bits())
	})
}

// each calls do for the folder of each living process. A recorder that has not said who it is
// yet is of no job ("") and rank 0.
func each(runDir string, do func(*ring.Folder, ring.Status, Recorder) error) error {
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

// one calls do for a folder, unless its process is gone. It takes no lock: an agent may
// drain the folder meanwhile.
func one(runDir, name string, do func(*ring.Folder, ring.Status, Recorder) error) error {
	f, err := ring.OpenFolder(runDir, name)
	if err != nil {
		return err
	}
	defer f.Close()
	s, err := f.Status()
	if err != nil || f.Gone(s.State) {
		return err
	}

	if err := f.ReadTexts(s); err != nil {
		return err
	}

	m, _ := f.Meta(s)
	return do(f, s, Recorder{
		Incarnation: f.Identity.Incarnation, PID: f.Identity.PID, Job: m.Job, Rank: m.Rank,
		Wanted: FromBits(s.Wanted), Followed: FromBits(s.Followed), FollowedAt: s.FollowedAt,
	})
}
