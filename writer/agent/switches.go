package agent

import (
	"regexp"
	"strings"
	"sync"

	"github.com/laggard-dev/laggard/collector/switchboard"
	"github.com/laggard-dev/laggard/collector/trace"
)

// switches is what the agent's recorders are told to record, by job. Who spoke last
// wins: the switch file, a caller, another agent, or TaskD's manager, which writes the
// recorders' words itself.
type switches struct {
	state *trace.Switch
	board *switchboard.Board
	known func(job string) bool // recorders of the job were seen here

	named string // the job of --job-name; "" none

	mu  sync.Mutex
	uid string // guarded by mu: what recorders call the named job, see wanted
}

// newSwitches returns the switch of an agent's recorders.
func newSwitches(a *agent) *switches {
	s := &switches{known: a.hasJob, named: a.o.JobName[strings.IndexByte(a.o.JobName, '/')+1:]}
	s.state = &trace.Switch{RunDir: a.o.RingDir, Name: func(job string) string {
		if job == "" {
			job = a.drain.Unnamed()
		}

		return s.job(job)
	}}
	s.board = switchboard.New(switchboard.Options{
		Name: s.job,
		Apply: func(job string, st trace.State) error {
			if !s.knows(job) {
				return switchboard.ErrNoJob
			}

			return s.state.Set(job, st)
		},
		State: s.told,
		Recorders: func(job string) []trace.Recorder {
			recorders := s.recorders(job)
			for i := range recorders {
				recorders[i].Node = a.o.Node
			}

			return recorders
		},
	})
	return s
}

// uids are what Kubernetes gives a job, and MINDX_TASK_ID holds.
var uids = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// job returns what the switch calls a job: --job-name's, where that is it. Recorders
// call theirs by a uid (MINDX_TASK_ID), or default_task_id_<seconds> where nothing
// names it.
func (s *switches) job(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.named != "" && (name == s.uid || strings.HasPrefix(name, "default_task_id_")) {
		return s.named
	}

	return name
}

// wanted tells the drain what a recorder is to record. The first uid that it sees is
// that of --job-name's job: the pod's.
func (s *switches) wanted(job string) (uint32, bool) {
	s.mu.Lock()
	if s.uid == "" && uids.MatchString(job) {
		s.uid = job
	}

	s.mu.Unlock()
	return s.state.Wanted(job)
}

// follow returns what takes the words of a source that goes on speaking: what a caller
// said before no longer holds.
func (s *switches) follow(job string) func(trace.State) error {
	return func(st trace.State) error {
		defer s.board.Told(job)
		return s.state.Follow(job, st)
	}
}

// knows tells whether there is such a job: the one that the agent was started for, or
// that of a recorder.
func (s *switches) knows(job string) bool {
	return job != "" && (job == s.named || s.known(job) || len(s.recorders(job)) > 0)
}

// told returns what the recorders of a job are told, as their rings say; where there is
// none yet, what they will be told.
func (s *switches) told(job string) (trace.State, bool) {
	if recorders := s.recorders(job); len(recorders) > 0 {
		return recorders[0].Wanted, true
	}

	if !s.knows(job) {
		return trace.State{}, false
	}

	if st, ok := s.state.State(job); ok {
		return st, true
	}

	return trace.On, true
}

// recorders lists the recorders of a job here; a folder that can't be read is the
// drain's to report.
func (s *switches) recorders(job string) []trace.Recorder {
	all, _ := trace.Recorders(s.state.RunDir)
	var of []trace.Recorder
	for _, r := range all {
		if s.state.Name(r.Job) == job {
			of = append(of, r)
		}
	}

	return of
}
