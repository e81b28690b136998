package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"golang.org/x/net/netutil"
	"golang.org/x/sys/unix"

	"github.com/laggard-dev/laggard/collector/ring"
)

// connectionIdle is how long a connection to the health endpoints may be idle.
const connectionIdle = 5 * time.Second

// mostConnections bounds those connections, each of which is a descriptor that the rings
// and the store want: an eighth of what there are. Further callers wait.
func mostConnections() int { return min(max(ring.OpenFiles()/8, 4), 512) }

// ServeProbes answers metrics and health until ctx ends, then lets what is being answered
// finish.
func ServeProbes(ctx context.Context, l net.Listener, h http.Handler) error {
	s := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: connectionIdle}
	stopped := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		late, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		stopped <- s.Shutdown(late)
	})
	err := s.Serve(l)
	if !stop() {
		err = errors.Join(<-stopped)
	}

	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}

	return err
}

// ListenProbes listens at the TCP address of metrics and health, and says so. It answers
// also when the process has no descriptor left, which is when it is asked.
func ListenProbes(address string, log *slog.Logger) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("serve metrics: %w; name another address with --metrics, or \"\" for none", err)
	}

	s := &spared{Listener: l}
	if err := s.reserveLocked(); err != nil {
		return nil, fmt.Errorf("serve metrics: keep a descriptor in reserve: %w", errors.Join(err, l.Close()))
	}

	log.Info("serving metrics", "address", l.Addr().String())
	return netutil.LimitListener(s, mostConnections()), nil
}

// spared is a listener that answers when there are no descriptors left: it holds one
// in reserve, to give it up for the next connection. What is accepted gives its
// descriptor back, and the reserve is filled again with it.
type spared struct {
	net.Listener

	mu    sync.Mutex
	spare *os.File // guarded by mu; nil while a connection has it
}

// reserveLocked takes a descriptor into reserve, unless one is there. s.mu is held, or nobody else
// has s yet.
func (s *spared) reserveLocked() (err error) {
	if s.spare == nil {
		s.spare, err = os.Open(os.DevNull)
	}

	return err
}

// Accept implements net.Listener.
func (s *spared) Accept() (net.Conn, error) {
	c, err := s.Listener.Accept()
	if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
		c, err = s.acceptWithSpare()
	}

	if err != nil {
		return nil, err
	}

	return &sparedConn{Conn: c, of: s}, nil
}

// acceptWithSpare gives the reserve up for the connection that found no descriptor.
func (s *spared) acceptWithSpare() (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.spare != nil {
		s.spare.Close()
		s.spare = nil
	}

	c, err := s.Listener.Accept() // one waits: it was refused a descriptor just now
	if err != nil {
		_ = s.reserveLocked()
	}

	return c, err
}

// sparedConn fills the reserve again with the descriptor that it gives back.
type sparedConn struct {
	net.Conn
	of *spared
}

// Close implements net.Conn.
func (c *sparedConn) Close() error {
	err := c.Conn.Close()
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	_ = c.of.reserveLocked() // else the next one does
	return err
}
