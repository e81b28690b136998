package main

import (
	"log/slog"

	"github.com/laggard-dev/laggard/collector/switchboard"
	"github.com/laggard-dev/laggard/collector/trace"
)

// switches is what the agent's recorders are told to record. There is one state
// for a run directory; who spoke last wins: the switch file, or a caller.
type switches struct {
	state *trace.Switch
	board *switchboard.Board
	file  *trace.Follower // nil without a switch file
}

// newSwitches returns the switch of the recorders under runDir. known tells
// whether a job has recorders here.
func newSwitches(runDir, file, node string, log *slog.Logger, known func(job string) bool) *switches {
	s := &switches{state: &trace.Switch{RunDir: runDir}}
	s.board = switchboard.New(switchboard.Options{
		Apply: func(job string, st trace.State) error {
			if !known(job) {
				return switchboard.ErrNoJob
			}
			return s.state.Set(st)
		},
		State: func(job string) (trace.State, bool) {
			if !known(job) {
				return trace.State{}, false
			}
			if st, told := s.state.State(); told {
				return st, true
			}
			return recorded(runDir), true
		},
		Recorders: func(job string) []trace.Recorder {
			if !known(job) {
				return nil
			}
			recorders := s.recorders()
			for i := range recorders {
				recorders[i].Node = node
			}
			return recorders
		},
	})
	if file != "" {
		s.file = &trace.Follower{Path: file, Set: s.set, Logger: log}
	}
	return s
}

// set is the switch file or another agent speaking: what a caller said before no
// longer holds.
func (s *switches) set(st trace.State) error {
	defer s.board.Told()
	return s.state.Set(st)
}

// recorders lists the recorders here; a folder that can't be read is the drain's
// to report.
func (s *switches) recorders() []trace.Recorder {
	recorders, _ := trace.Recorders(s.state.RunDir)
	return recorders
}

// recorded is what the recorders of a run directory do while nobody has told them
// anything: what each took from LAGGARD_TRACE, the same for all of one job.
func recorded(runDir string) trace.State {
	recorders, _ := trace.Recorders(runDir)
	if len(recorders) == 0 {
		return trace.On
	}
	return recorders[0].Followed
}
