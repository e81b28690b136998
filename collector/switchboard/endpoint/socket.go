package endpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/laggard-dev/laggard/collector/ring"
)

// socketMode lets every user connect: who may switch is looked at then.
const socketMode = 0o666

// listenUnix makes a socket, and returns what takes its file away when it is closed. Its directory must
// belong to who may switch, and a file that is there must be a socket of ours that nobody serves any more.
func (o *Options) listenUnix(path string) (_ net.Listener, remove func(), err error) {
	dir, err := ring.OpenRunDir(filepath.Dir(path))
	if err != nil {
		return nil, nil, err
	}

	defer func() {
		if err != nil {
			unix.Close(dir)
		}
	}()
	var st unix.Stat_t
	if err := unix.Fstat(dir, &st); err != nil {
		return nil, nil, fmt.Errorf("stat %s: %w", filepath.Dir(path), err)
	}

	if !o.trusts(st.Uid) {
		return nil, nil, fmt.Errorf("directory %s belongs to uid %d, who could take the socket away: name one of ours, or trust it with --trust-uid %d", filepath.Dir(path), st.Uid, st.Uid)
	}

	name := filepath.Base(path)
	if err := removeStale(dir, name, path); err != nil {
		return nil, nil, err
	}

	// Through the directory that was looked at, and however long its path is.
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: within(dir, name), Net: "unix"})
	if err != nil {
		return nil, nil, err
	}

	l.SetUnlinkOnClose(false) // remove looks whose file it is by then
	err = unix.Fchmodat(dir, name, socketMode, 0)
	if err == nil {
		err = unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	}

	if err != nil {
		l.Close()
		return nil, nil, fmt.Errorf("set mode of %s: %w", path, err)
	}

	return l, func() {
		// A file that took the place of ours stays.
		var now unix.Stat_t
		if unix.Fstatat(dir, name, &now, unix.AT_SYMLINK_NOFOLLOW) == nil && now.Ino == st.Ino {
			unix.Unlinkat(dir, name, 0)
		}

		unix.Close(dir)
	}, nil
}

// within is a name in an open directory as a path that fits a socket's address.
func within(dir int, name string) string {
	return "/proc/self/fd/" + strconv.Itoa(dir) + "/" + name
}

// removeStale removes a socket that an agent of ours left behind: one that nobody accepts
// connections on. Between the look and the removal another agent may have replaced it; its
// inode is another one then.
func removeStale(dir int, name, path string) error {
	var st unix.Stat_t
	err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil
	case err != nil:
		return fmt.Errorf("stat %s: %w", path, err)
	case st.Mode&unix.S_IFMT != unix.S_IFSOCK:
		return fmt.Errorf("%s is there and no socket: remove it", path)
	case st.Uid != uint32(unix.Geteuid()):
		return fmt.Errorf("%s was made by uid %d: remove it, an agent of uid %d replaces only its own", path, st.Uid, unix.Geteuid())
	}

	c, err := net.Dial("unix", within(dir, name))
	if err == nil {
		c.Close()
		return fmt.Errorf("%s is served by another agent: one agent a ring directory", path)
	}

	if !errors.Is(err, unix.ECONNREFUSED) {
		return fmt.Errorf("try %s: %w", path, err)
	}

	var now unix.Stat_t
	if err := unix.Fstatat(dir, name, &now, unix.AT_SYMLINK_NOFOLLOW); err != nil || now.Ino != st.Ino {
		return fmt.Errorf("%s is being replaced by another agent", path)
	}

	if err := unix.Unlinkat(dir, name, 0); err != nil {
		return fmt.Errorf("replace %s: %w", path, err)
	}

	return nil
}

// dialUnix connects to the socket at path when it, and who listens on it, belong to
// somebody who is believed.
func (o *Options) dialUnix(ctx context.Context, path string) (net.Conn, error) {
	dir, err := unix.Open(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, noSwitch(path, err)
	}
	defer unix.Close(dir)
	// The file that is looked at is the one that is called, whatever its name points to by
	// then: a descriptor stands for it (O_PATH).
	file, err := unix.Openat(dir, filepath.Base(path), unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, noSwitch(path, err)
	}
	defer unix.Close(file)
	var st unix.Stat_t
	if err := unix.Fstat(file, &st); err != nil {
		return nil, noSwitch(path, err)
	}

	if st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return nil, fmt.Errorf("%s is no socket", path)
	}

	if !o.trusts(st.Uid) {
		return nil, o.strange(path, "was made by", st.Uid)
	}

	c, err := (&net.Dialer{}).DialContext(ctx, "unix", "/proc/self/fd/"+strconv.Itoa(file))
	if err != nil {
		return nil, noSwitch(path, errors.Unwrap(err))
	}

	uid, err := peer(c)
	if err == nil && !o.trusts(uid) {
		err = o.strange(path, "is served by", uid)
	}

	if err != nil {
		c.Close()
		return nil, err
	}

	return &called{Conn: c, path: path}, nil
}

// called is a connection to a switch. An agent that doesn't serve us hangs up without a
// word: its first error says why that may be.
type called struct {
	net.Conn
	path  string
	heard atomic.Bool
}

// Read implements net.Conn.
func (c *called) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.heard.Store(true)
	}

	return n, c.explain(err)
}

// Write implements net.Conn.
func (c *called) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	return n, c.explain(err)
}

// explain adds to the error of a connection that was cut off before a word why that may be.
func (c *called) explain(err error) error {
	if err == nil || c.heard.Load() || !errors.Is(err, io.EOF) && !errors.Is(err, unix.EPIPE) && !errors.Is(err, unix.ECONNRESET) {
		return err
	}

	return fmt.Errorf("the agent at %s hung up (%w): it serves its own user, root and those of its --trust-uid, and we are uid %d; or too many connections are open, as its log would say", c.path, err, os.Geteuid())
}

// strange is the error for a socket whose maker or server is not believed.
func (o *Options) strange(path, does string, uid uint32) error {
	return fmt.Errorf("%s %s uid %d, who is neither this user nor root: not called; --trust-uid %d believes it", path, does, uid, uid)
}

// noSwitch is the error for a socket that is not there or not served.
func noSwitch(path string, err error) error {
	return fmt.Errorf("no agent listens at %s (%w): name its ring directory with --ring-dir (LAGGARD_RUN), or its address", path, err)
}

// peer returns the user at the other end of a Unix socket, as the kernel noted it when the
// other side connected, or listened (SO_PEERCRED, unix(7)).
func peer(c net.Conn) (uid uint32, err error) {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return 0, fmt.Errorf("%T is no Unix socket", c)
	}

	raw, err := u.SyscallConn()
	if err != nil {
		return 0, err
	}

	var cred *unix.Ucred
	failed := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err = errors.Join(failed, err); err != nil {
		return 0, fmt.Errorf("ask for the peer's user: %w", err)
	}

	return cred.Uid, nil
}
