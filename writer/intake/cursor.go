package intake

import (
	"encoding/json"
	"path/filepath"

	"laggard/schemas/record"
	"laggard/writer/rollup"
	"laggard/writer/tail"
)

// cursorPath returns the file in a state folder that keeps how far a store has
// acknowledged each rank.
func cursorPath(state, store string) string {
	return filepath.Join(state, "cursor-"+record.HashID(store).String()+".json")
}

// Open is what a follower has read of a rank, and a store has no row of yet.
type Open struct {
	Calls       uint64 // in open windows, of lines before From
	From, Until rollup.Position
}

// ReadOpen returns what the follower of a state folder has open for a store, by rank.
// Without a cursor there is nothing.
func ReadOpen(state, store string) (map[tail.Key]Open, error) {
	cursor, err := tail.LoadCursor(cursorPath(state, store), store)
	if err != nil {
		return nil, err
	}
	open := make(map[tail.Key]Open, len(cursor))
	for key, p := range cursor {
		var st memberState
		if p.State == "" || json.Unmarshal([]byte(p.State), &st) != nil {
			continue
		}
		calls, until, err := rollup.OpenCalls(st.Roller)
		if err != nil {
			continue // of another version: it is not resumed from
		}
		open[key] = Open{Calls: calls, From: rollup.Position{Segment: p.Segment, Offset: p.Offset}, Until: until}
	}
	return open, nil
}
