package e2e

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/laggard-dev/laggard/collector/trace"
)

const switchSocket = "switch.sock"

// shared makes the site's ring directory as recorders do: anybody may make rings in it.
func (s *site) shared() {
	s.t.Helper()
	if err := os.Chmod(s.rings, 0o777|os.ModeSticky); err != nil {
		s.t.Fatal(err)
	}
}

// TestSwitchUsers: which user may switch, and whose agent is believed.
func TestSwitchUsers(t *testing.T) {
	t.Parallel()
	u := newUsers(t)
	s := newSite(t, "")
	s.shared()
	agent := s.agent("--listen", "unix")
	agent.says(`serving the switch" address=(unix:\S+)`)
	trainer := s.emitterOf("a", 0, 1, 1<<30)
	s.recorded(map[string]trace.State{"a/0": trace.On})
	trace1 := func(uid, code int, words string, args ...string) {
		t.Helper()
		r := u.run(uid, append([]string{"trace", "off", "--job", "a", "--ring-dir", s.rings}, args...)...)
		if r.code != code || !strings.Contains(r.err, words) {
			t.Errorf("as %d: %+v, want exit code %d and %q", uid, r, code, words)
		}
	}
	trace1(stranger, 1, "call agent unix:"+s.rings)
	trace1(stranger, 1, "call agent", "--trust-uid", "0", "--agent", filepath.Join(s.rings, switchSocket))
	agent.says(`(connections to the switch refused.*uid 65534)`)
	s.recorded(map[string]trace.State{"a/0": trace.On})
	trace1(0, 0, "")
	s.recorded(map[string]trace.State{"a/0": {}})
	// A kill leaves the socket behind: the next agent replaces it. One that trusts stranger's
	// uid lets it switch.
	agent.command.Process.Kill()
	<-agent.done
	if _, err := os.Lstat(filepath.Join(s.rings, switchSocket)); err != nil {
		t.Fatalf("no stale socket to replace: %v", err)
	}

	agent = s.agent("--listen", "unix", "--trust-uid", fmt.Sprint(stranger))
	agent.says(`serving the switch" address=(unix:\S+)`)
	if r := u.run(stranger, "trace", "on", "--job", "a", "--ring-dir", s.rings); r.code != 0 {
		t.Errorf("a trusted user: %+v", r)
	}

	s.recorded(map[string]trace.State{"a/0": trace.On})
	trainer.command.Process.Kill()
	<-trainer.done
}

// TestSwitchOfAnotherUser: an agent that runs as another user is believed when it is
// trusted, root may call it, and it serves only where its directory is its own, root's or
// that of somebody it trusts.
func TestSwitchOfAnotherUser(t *testing.T) {
	t.Parallel()
	u := newUsers(t)
	s := newSite(t, "")
	s.shared()
	dir := filepath.Join(u.dir, "profiling")
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}

	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}

	start := func(args ...string) *running {
		c := u.as(context.Background(), agentUser, append([]string{"agent", "--ring-dir", s.rings, "--dir", dir, "--metrics", "", "--job-name", "ns/a", "--node", "n"}, args...)...)
		return s.running(c)
	}
	agent := start()
	agent.says(`serving the switch" address=(unix:\S+)`)
	for _, tt := range []struct {
		uid, code int
		words     string
		args      []string
	}{
		{agentUser, 0, "", nil},
		{stranger, 1, "65532, who is neither this user nor root", nil},
		{stranger, 1, "hung up", []string{"--trust-uid", "65532"}}, // the agent doesn't trust it
		{0, 1, "65532, who is neither this user nor root", nil},
		{0, 0, "", []string{"--trust-uid", "65532"}},
	} {
		r := u.run(tt.uid, append([]string{"trace", "off", "--job", "a", "--ring-dir", s.rings}, tt.args...)...)
		if r.code != tt.code || !strings.Contains(r.err, tt.words) {
			t.Errorf("as %d %v: %+v, want exit code %d and %q", tt.uid, tt.args, r, tt.code, tt.words)
		}
	}

	agent.command.Process.Signal(syscall.SIGTERM)
	agent.wait()
	if err := os.Chown(s.rings, stranger, stranger); err != nil {
		t.Fatal(err)
	}

	agent = start()
	agent.says(`(switch not served.*belongs to uid 65534)`)
	agent.command.Process.Signal(syscall.SIGTERM)
	agent.wait()
	agent = start("--trust-uid", "65534")
	agent.says(`serving the switch" address=(unix:\S+)`)
}

// TestSwitchImpostor: a stranger's socket at the switch's place is neither replaced nor
// called, and does not keep the agent from its other work; once it is gone the switch is
// served.
func TestSwitchImpostor(t *testing.T) {
	t.Parallel()
	u := newUsers(t)
	s := newSite(t, "")
	s.shared()
	path := filepath.Join(s.rings, switchSocket)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}

	l.SetUnlinkOnClose(false)
	defer l.Close()
	accepted := make(chan struct{}, 16)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}

			c.Close()
			accepted <- struct{}{}
		}
	}()
	if err := os.Chown(path, stranger, stranger); err != nil {
		t.Fatal(err)
	}

	agent := s.agent("--listen", "unix", "--until-idle", "100ms")
	agent.says(`(switch not served.*was made by uid 65534: remove it)`)
	if r := laggard(t, "trace", "off", "--job", "a", "--ring-dir", s.rings); r.code != 1 || !strings.Contains(r.err, "was made by uid 65534") {
		t.Errorf("called: %+v", r)
	}

	select {
	case <-accepted:
		t.Error("a stranger's socket was connected to")
	default:
	}

	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}

	agent.says(`serving the switch" address=(unix:\S+)`)
	s.emitter(0, 1, 50).wait()
	agent.wait() // it drained and shipped all the same

	// A socket of ours, served by a stranger.
	listener := u.as(context.Background(), stranger)
	listener.Args = []string{"setpriv", "--reuid", fmt.Sprint(stranger), "--clear-groups", "/usr/bin/python3", "-c", `
import os, socket, sys, time
s = socket.socket(socket.AF_UNIX)
s.bind(sys.argv[1]); s.listen(); os.chmod(sys.argv[1], 0o666)
print("listening", file=sys.stderr, flush=True)
s.accept()[0].recv(1)`, path}
	stranger := s.running(listener)
	stranger.says(`(listening)`)
	if err := os.Chown(path, 0, 0); err != nil {
		t.Fatal(err)
	}

	if r := laggard(t, "trace", "off", "--job", "a", "--ring-dir", s.rings); r.code != 1 || !strings.Contains(r.err, "is served by uid 65534") {
		t.Errorf("called: %+v", r)
	}

	select {
	case <-stranger.done:
	case <-time.After(patience):
		t.Error("the stranger's connection was not closed")
	}
}
