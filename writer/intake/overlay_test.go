package intake_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/intake"
)

// TestOtherSide follows a mount whose files another side writes: beneath an overlay,
// where, as on NFS, a change is never notified. Segments are begun, rotated and left
// there, the follower is started again, and every row is stored once. TestNFS is the
// like over real NFS, which needs another kernel.
func TestOtherSide(t *testing.T) {
	base := t.TempDir()
	path := func(name string) string { return filepath.Join(base, name) }
	for _, name := range []string{"lower", "upper", "work", "merged"} {
		if err := os.Mkdir(path(name), 0o755); err != nil {
			t.Fatal(err)
		}
	}

	options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", path("lower"), path("upper"), path("work"))
	if err := unix.Mount("overlay", path("merged"), "overlay", 0, options); errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENODEV) {
		t.Skipf("CAN'T RUN HERE: no overlay can be mounted: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := unix.Unmount(path("merged"), 0); err != nil {
			t.Error(err)
		}
	})
	target, state := t.TempDir(), t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	j := newJob(t, path("upper"), 2, 16<<10)
	for range 2 {
		o := all()
		o.State, o.Ship.Flush = state, 10*time.Millisecond
		follow(t, path("merged"), "parquet:"+target, o, func(fo *intake.Follower) {
			before := fo.Stats().Tables[row.StepsTable].Inserted
			j.steps(17)
			// Nobody tells the follower: its own look finds them.
			look := time.NewTicker(20 * time.Millisecond)
			defer look.Stop()
			for fo.Stats().Tables[row.StepsTable].Inserted < before+2*15 {
				select {
				case <-look.C:
				case <-ctx.Done():
					t.Fatalf("not found: %+v, %+v", fo.State(), fo.Stats())
				}
			}
		})
	}

	j.end()
	once(t, path("merged"), "parquet:"+target, all())
	plain := t.TempDir()
	once(t, path("upper"), "parquet:"+plain, all())
	same(t, dump(t, target), dump(t, plain))
}
