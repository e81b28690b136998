package intake_test

import (
	"os"
	"path/filepath"
	"testing"

	"laggard/writer/intake"
	"laggard/writer/segment"
)

// TestFollowerOverRestarts follows a growing job through restarts, with and
// without its state, and stores what one pass over the whole would.
func TestFollowerOverRestarts(t *testing.T) {
	dir, target, state := t.TempDir(), t.TempDir(), t.TempDir()
	j := newJob(t, dir, 2, 16<<10)
	for round := range 5 {
		o := all()
		o.State = state
		follow(t, dir, "parquet:"+target, o, func(fo *intake.Follower) {
			for range 2 {
				j.steps(17)
				syncAll(t, fo)
			}
			if round == 4 {
				j.end()
				syncAll(t, fo)
			}
			st := fo.State()
			if st.Ranks != 2 || st.Backlog != 0 || st.Unacknowledged != 0 {
				t.Fatalf("State() = %+v", st)
			}
			infos, err := segment.List(filepath.Join(dir, "j1", "0"))
			if err != nil {
				t.Fatal(err)
			}
			if len(infos) > 2 && !fo.Shipped(filepath.Join(dir, "j1", "0"), infos[0].Name) {
				t.Fatal("the oldest segment is not shipped")
			}
			if round < 4 && fo.Shipped(filepath.Join(dir, "j1", "0"), infos[len(infos)-1].Name) {
				t.Fatal("the newest segment, with a step open in it, is shipped")
			}
		})
		if round == 2 { // the state directory is a cache
			if err := os.RemoveAll(state); err != nil {
				t.Fatal(err)
			}
		}
	}
	plain := t.TempDir()
	once(t, dir, "parquet:"+plain, all())
	same(t, dump(t, target), dump(t, plain))
	if r := once(t, dir, "parquet:"+target, all()); r.Stored() != 0 {
		t.Fatalf("a pass after the follower: %s", r)
	}
}
