package watch

import (
	"maps"
	"time"

	"github.com/laggard-dev/laggard/schemas/verdict"
)

// Status is how the watcher does, for metrics.
type Status struct {
	Looks, Failed uint64
	LastLook      time.Time // the last that succeeded
	LastError     string    // of the last look, "" when it succeeded
	BadThresholds string    // why the thresholds file is not in use, "" when it is
	Dropped       uint64    // jobs that ended
	// Taken are jobs of which something was said before this watcher followed them, Repeated
	// changes that it found and another one stored; see Holder.
	Taken, Repeated uint64
	Jobs            map[string]JobStatus
}

// JobStatus is one job's.
type JobStatus struct {
	Verdict *verdict.Verdict // shared: don't write to it; nil before the first
	Steps   uint64           // columns judged
	Late    uint64           // rows that came after their step was judged
	Pending int              // steps that wait for ranks
	Changes uint64
	Unsent  int
	Newest  int64  // start of the newest row, ns since the Unix epoch
	Judged  int64  // start of the newest step that was judged
	Damaged int    // compressed files that could not be read to their end
	Failing string // why the job can't be read, "" when it can
}

// Status returns a copy that the caller may keep.
func (w *Watcher) Status() Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.status
	s.Jobs = maps.Clone(w.status.Jobs)
	return s
}

// count changes the status.
func (w *Watcher) count(change func(s *Status)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(&w.status)
}

// show brings the status of a job up to date. The verdict is shared with it: each look makes a new one.
func (w *Watcher) show(j *job) {
	f := j.Feed
	now := JobStatus{Verdict: j.verdict, Steps: f.Columns, Late: f.Late, Pending: len(f.Pending), Changes: j.Changes, Unsent: len(j.Unsent),
		Newest: j.Newest, Judged: j.LastNs, Damaged: len(j.damaged), Failing: j.failing}
	w.count(func(s *Status) { s.Jobs[j.Job] = now })
}

// note counts a look, and what became of it.
func (w *Watcher) note(err error) {
	w.count(func(s *Status) {
		s.Looks++
		if err != nil {
			s.Failed++
			s.LastError = err.Error()
			return
		}

		s.LastError, s.LastLook = "", w.o.Now()
	})
}
