package intake

import (
	"encoding/json"
	"path/filepath"
	"time"

	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/writer/rollup"
	"github.com/laggard-dev/laggard/writer/segment"
	"github.com/laggard-dev/laggard/writer/ship"
	"github.com/laggard-dev/laggard/writer/tail"
)

// cursorPath returns the file in a state folder that keeps how far a store has
// acknowledged each rank: one a store, so that a change of --store begins anew.
func cursorPath(state, store string) string {
	return filepath.Join(state, "cursor-"+record.HashID(store).String()+".json")
}

// Open is what a follower has read of a rank, and a store has no row of yet.
type Open struct {
	Calls       uint64 // in open windows, of lines before From
	From, Until segment.Position
}

// ReadOpen returns what the follower of a state folder has open for a store, by rank.
// Without a cursor there is nothing.
func ReadOpen(state, store string) (map[record.RankID]Open, error) {
	cursor, _, err := tail.LoadCursor(cursorPath(state, store), store)
	if err != nil {
		return nil, err
	}

	open := make(map[record.RankID]Open, len(cursor))
	for key, p := range cursor {
		var st account
		if p.State == "" || json.Unmarshal([]byte(p.State), &st) != nil {
			continue
		}

		calls, until, err := rollup.OpenCalls(st.Roller)
		if err != nil {
			continue // of another version: it is not resumed from
		}

		open[key] = Open{Calls: calls, From: segment.Position{Segment: p.Segment, Offset: p.Offset}, Until: until}
	}

	return open, nil
}

// shard is that of the store that rows go to, "" where it has none.
func (f *Follower) shard() string {
	if s, ok := f.sink.(ship.Remote); ok {
		return s.Shard()
	}

	return ""
}

// acknowledge notes how far the store has a member's rows.
func (f *Follower) acknowledge(m *member) {
	acked, ok := m.out.Acked().(segment.Position)
	if !ok || acked.Segment == "" {
		return
	}

	key := m.stream.Dir.RankID
	if f.cursor[key] != acked {
		f.cursor[key], f.dirty = acked, true
	}

	first, _ := segment.Number(acked.Segment)
	at := m.stream.Position()
	if m.stream.Caught() && acked.Segment == at.Segment && acked.Offset == at.Offset && m.out.Pending() == 0 {
		first++ // all of it
	}

	f.mu.Lock()
	f.shipped[m.stream.Dir.Path] = first
	f.mu.Unlock()
}

// save notes what is acknowledged and writes the cursor, each when it is time, or now.
func (f *Follower) save(force bool) {
	if !force && time.Since(f.noted) < noteEvery {
		return
	}

	f.noted = time.Now()
	for _, m := range f.e.members {
		f.acknowledge(m)
	}

	f.note()
	if f.o.State == "" || !f.dirty || !force && time.Since(f.saved) < saveEvery {
		return
	}

	f.saved = time.Now()
	if err := tail.SaveCursor(cursorPath(f.o.State, f.store), f.store, f.shard(), f.cursor); err != nil {
		// It is a cache: the next save may go well, and the store knows what it has.
		f.o.Logger.Warn("cursor not saved", "err", err)
		return
	}

	f.dirty = false
}
