//go:build nfs

package intake_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/intake"
)

// nfs is a job whose ranks write where the server has its files, while the mount of
// the same is followed.
type nfs struct {
	*job
	t             *testing.T
	server, mount string
	kept          string // copies of what is removed, and of the rest at the end
	fo            *intake.Follower
	made          int // steps of each rank since the follower began
}

// TestNFS is R19: a follower reads the files through a real NFS mount, of this
// machine's own server. Nothing notifies it, what it sees of sizes and names is some
// seconds old, the server stays away for LAGGARD_NFS_PAUSE (and loses the connection),
// files that it has open are removed on its side, which leaves .nfs names, and on the
// server's, which makes handles stale. Every row is stored once, and the same as by a
// plain pass over copies of all files. make soak-nfs runs it.
func TestNFS(t *testing.T) {
	pause, err := time.ParseDuration(os.Getenv("LAGGARD_NFS_PAUSE"))
	if err != nil {
		t.Fatal(err)
	}
	n := &nfs{t: t, server: os.Getenv("LAGGARD_NFS_SERVER"), mount: os.Getenv("LAGGARD_NFS_MOUNT"), kept: t.TempDir()}
	n.job = newJob(t, n.server, 2, 16<<10)
	target, state := t.TempDir(), t.TempDir()
	for _, part := range []func(){
		func() { n.make(40) },
		func() { n.away(pause, func() { n.make(40) }); n.make(17) },
		func() { n.sillyName(); n.make(17) },
		func() { n.stale(pause); n.make(17) },
	} {
		o := all()
		o.State, o.Ship.Flush = state, 10*time.Millisecond
		follow(t, n.mount, "parquet:"+target, o, func(fo *intake.Follower) { n.fo, n.made = fo, 0; part(); n.found() })
	}
	n.end()
	n.keep()
	o := all()
	o.State = state
	once(t, n.mount, "parquet:"+target, o)
	plain := t.TempDir()
	once(t, n.kept, "parquet:"+plain, all())
	got, want := dump(t, target), dump(t, plain)
	// An account names the segment at whose end a row was finished: one that the last
	// pass can't read any more moves rows of the step that was open to its neighbour.
	delete(got, row.LedgerTable)
	delete(want, row.LedgerTable)
	same(t, got, want)
}

func (n *nfs) make(steps int) {
	n.steps(steps)
	n.made += steps
}

// found waits until all steps but those that may still change are stored.
func (n *nfs) found() {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), 5*time.Minute)
	defer cancel()
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	began, due := time.Now(), 2*max(0, n.made-2) // the last steps' window is open
	stored := func() int { return int(n.fo.Stats().Tables[row.StepsTable].Inserted) }
	for stored() < due {
		select {
		case <-look.C:
		case <-ctx.Done():
			n.t.Fatalf("%d of %d steps found: %+v", stored(), due, n.fo.State())
		}
	}
	n.t.Logf("%d steps of each rank found after %s", n.made, time.Since(began).Round(10*time.Millisecond))
}

// away takes the network from the server and gives it back.
func (n *nfs) away(pause time.Duration, meanwhile func()) {
	n.t.Helper()
	link := func(state string) {
		if out, err := exec.Command("ip", "link", "set", "lo", state).CombinedOutput(); err != nil {
			n.t.Fatalf("ip link set lo %s: %v\n%s", state, err, out)
		}
	}
	link("down")
	meanwhile()
	time.Sleep(pause) // the fault itself: the server is away for so long
	link("up")
}

// sillyName removes, on the client's side, a file that is open there: the client keeps
// it under a name of its own in the rank's folder.
func (n *nfs) sillyName() {
	n.t.Helper()
	n.found()
	n.keep()
	oldest := n.segments(n.mount, 0)[0]
	f, err := os.Open(oldest)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { f.Close() })
	if err := os.Remove(oldest); err != nil {
		n.t.Fatal(err)
	}
	names, err := filepath.Glob(filepath.Join(n.mount, "j1", "0", ".nfs*"))
	if err != nil || len(names) != 1 {
		n.t.Fatalf("%v, %v: want one .nfs name", names, err)
	}
}

// stale removes, on the server's side and while the follower can't see it, the file
// that the follower has open: the rank's process was killed and another one goes on.
func (n *nfs) stale(pause time.Duration) {
	n.t.Helper()
	n.found()
	n.keep()
	n.away(pause, func() {
		var open []string
		for r := range n.ranks {
			names := n.segments(n.server, r)
			open = append(open, names[len(names)-1])
		}
		n.restart(1, 0)
		for _, name := range open {
			if err := os.Remove(name); err != nil {
				n.t.Fatal(err)
			}
		}
	})
}

func (n *nfs) segments(side string, rank int) []string {
	n.t.Helper()
	names, err := filepath.Glob(filepath.Join(side, "j1", string(rune('0'+rank)), "1*"))
	if err != nil || len(names) == 0 {
		n.t.Fatalf("no segments of rank %d: %v", rank, err)
	}
	slices.Sort(names)
	return names
}

// keep copies the segments as they are on the server.
func (n *nfs) keep() {
	n.t.Helper()
	for r := range n.ranks {
		for _, name := range n.segments(n.server, r) {
			b, err := os.ReadFile(name)
			if err != nil {
				n.t.Fatal(err)
			}
			to := filepath.Join(n.kept, strings.TrimPrefix(name, n.server))
			if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
				n.t.Fatal(err)
			}
			if err := os.WriteFile(to, b, 0o644); err != nil {
				n.t.Fatal(err)
			}
		}
	}
}
