package intake_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/intake"
	"github.com/laggard-dev/laggard/writer/segment"
	"github.com/laggard-dev/laggard/writer/tail"
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
			if st.Ranks != 2 || st.Rest != 0 || fo.Stats().PendingRows != 0 {
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

// TestFollowerSaysWhatItCouldNotRead ends a follower that can't take one of two ranks'
// directories: the other rank is shipped, and the end is an error that names the one.
func TestFollowerSaysWhatItCouldNotRead(t *testing.T) {
	dir, _ := written(t, 2, 5, 1<<20)
	barred := filepath.Join(dir, "j1", "1")
	if err := os.Mkdir(filepath.Join(barred, ".lease"), 0o755); err != nil { // where its lease would be
		t.Fatal(err)
	}

	target := t.TempDir()
	fo, err := intake.NewFollower(dir, store(t, "parquet:"+target), all())
	if err != nil {
		t.Fatal(err)
	}

	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- fo.Run(ctx) }()
	syncAll(t, fo)
	stop()
	if err := <-done; err == nil || !strings.Contains(err.Error(), barred) {
		t.Errorf("Run: %v; want an error that names %s", err, barred)
	}

	if n := len(dump(t, target)[row.StepsTable]); n != 5 {
		t.Errorf("%d steps of the other rank are stored, want 5", n)
	}
}

// TestFollowerOfFewRanks: a rank beyond those that may be held is named, not taken for
// shipped, and taken when another goes to its own agent.
func TestFollowerOfFewRanks(t *testing.T) {
	dir, _ := written(t, 2, 5, 1<<20)
	target, plain := t.TempDir(), t.TempDir()
	once(t, dir, "parquet:"+plain, all())
	o := all()
	o.Ranks = 1
	var agent *tail.Lease
	follow(t, dir, "parquet:"+target, o, func(f *intake.Follower) {
		if err := f.Sync(t.Context()); err == nil && len(f.State().Problems) == 0 {
			t.Error("a rank that waits for room is not named")
		}

		s := f.State()
		if s.Ranks != 1 || !strings.Contains(strings.Join(s.Problems, ""), filepath.Join(dir, "j1")) {
			t.Errorf("State() = %+v; want one rank, and the other named", s)
		}

		held := "0"
		if strings.Contains(strings.Join(s.Problems, ""), filepath.Join(dir, "j1", "0")) {
			held = "1"
		}

		var err error
		if agent, err = tail.TakeLease(filepath.Join(dir, "j1", held), true); !errors.Is(err, tail.ErrLeased) {
			t.Fatal(err)
		}

		syncAll(t, f)
		if err = agent.Retry(); err != nil {
			t.Fatal(err)
		}

		syncAll(t, f)
		if n := len(dump(t, target)[row.StepsTable]); n != 10 {
			t.Errorf("%d steps are stored, want those of both ranks", n)
		}
	})
	if err := agent.Close(); err != nil {
		t.Fatal(err)
	}

	once(t, dir, "parquet:"+target, all())
	same(t, dump(t, target), dump(t, plain))
}
