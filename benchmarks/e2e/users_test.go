package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// The users of these tests: an agent as in the sidecar overlays, a trainer's image, and
// somebody else.
const (
	agentUser   = 65532
	trainerUser = 1000
	stranger    = 65534
)

// users run programs as other users of this machine.
type users struct {
	t   *testing.T
	dir string // everybody may look into it
}

func newUsers(t *testing.T) *users {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("NOT ROOT: no process can be another user's here, so nothing of this is shown")
	}

	dir, err := os.MkdirTemp("", "laggard-users-")
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}

	return &users{t, dir}
}

// of is a command of a user and a group, without any capability.
func (u *users) of(ctx context.Context, uid, gid int, program string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "setpriv", append([]string{"--reuid", fmt.Sprint(uid), "--regid", fmt.Sprint(gid), "--clear-groups",
		"--no-new-privs", "--inh-caps=-all", "--bounding-set=-all", program}, args...)...)
}

// as is laggard as a user.
func (u *users) as(ctx context.Context, uid int, args ...string) *exec.Cmd {
	c := u.of(ctx, uid, uid, program, args...)
	c.Env = append(os.Environ(), "NO_COLOR=1")
	return c
}

// run runs laggard as a user.
func (u *users) run(uid int, args ...string) laggardResult {
	u.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return resultOf(u.t, u.as(ctx, uid, args...))
}
