package intake

import (
	"maps"
	"slices"

	"github.com/laggard-dev/laggard/writer/segment"
	"github.com/laggard-dev/laggard/writer/ship"
)

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

// State returns a look at the follower, not a second old: the rank directories that it and others ship, what
// it has read, and what the last look could not read. What is stored is in Stats.
func (f *Follower) State() Report {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state
}

// Stats returns the shipper's counters.
func (f *Follower) Stats() ship.Stats { return f.e.shipper.Stats() }

// note refreshes the state that others see.
func (f *Follower) note() {
	s := *f.e.report
	s.Ranks, s.Leased = len(f.e.members), slices.Sorted(maps.Keys(f.waiting))
	s.Losses, s.Altered = maps.Clone(s.Losses), maps.Clone(s.Altered)
	s.Lines, s.Bytes = f.e.tree.Counts()
	for _, m := range f.e.members {
		s.Rest += m.stream.Backlog()
	}

	if f.problem != "" {
		s.Problems = []string{f.problem}
	}

	f.mu.Lock()
	defer f.mu.Unlock()
	if f.problem != "" && !slices.Equal(s.Problems, f.state.Problems) {
		f.o.Logger.Warn("scan", "err", f.problem)
	}

	f.state = s
}
