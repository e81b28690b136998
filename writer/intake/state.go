package intake

import (
	"maps"

	"github.com/laggard-dev/laggard/writer/segment"
	"github.com/laggard-dev/laggard/writer/ship"
)

// State is a look at a follower.
type State struct {
	Ranks   int   // rank directories shipped by this process
	Foreign int   // those that another process ships
	Backlog int64 // bytes on disk that were seen and not read yet
	Losses  map[string]LossSum
	Altered map[string]uint64 // records stored otherwise than they came, by reason
	Problem string            // what the last look could not read, "" when it went well
}

// Shipped reports whether every row of a segment is acknowledged by the store, so
// that ageing takes it first and loses nothing with it.
func (f *Follower) Shipped(rankDir, name string) bool {
	number, ok := segment.Number(name)
	if !ok {
		return false
	}

	f.mu.Lock()
	defer f.mu.Unlock()
	return number < f.shipped[rankDir]
}

// State returns a look at the follower.
func (f *Follower) State() State {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state
}

// Stats returns the shipper's counters.
func (f *Follower) Stats() ship.Stats { return f.e.shipper.Stats() }

// Lines returns how many lines were read from segments.
func (f *Follower) Lines() uint64 {
	lines, _ := f.e.tree.Counts()
	return lines
}

// note refreshes the state that others see.
func (f *Follower) note() {
	s := State{Ranks: len(f.e.members), Foreign: len(f.waiting), Losses: maps.Clone(f.e.losses), Altered: maps.Clone(f.e.altered), Problem: f.problem}
	for _, m := range f.e.members {
		s.Backlog += m.stream.Backlog()
	}

	f.mu.Lock()
	defer f.mu.Unlock()
	if s.Problem != "" && s.Problem != f.state.Problem {
		f.o.Logger.Warn("scan", "err", s.Problem)
	}

	f.state = s
}
