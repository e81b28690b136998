package main

import (
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// connectionIdle is how long a connection to the health endpoints may be idle.
const connectionIdle = 5 * time.Second

// mostConnections bounds those connections, each of which is a descriptor that the rings
// and the store want: an eighth of what there are.
func mostConnections() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 8
	}
	return int(min(max(limit.Cur/8, 4), 512))
}

// spared is a listener that answers when there are no descriptors left: it holds one
// in reserve, to give it up for the next connection.
type spared struct {
	net.Listener
	slots  chan struct{} // a place for each connection
	closed chan struct{}
	close  sync.Once

	mu    sync.Mutex
	spare *os.File // guarded by mu; nil while a connection has it
}

func spare(l net.Listener) (*spared, error) {
	s := &spared{Listener: l, slots: make(chan struct{}, mostConnections()), closed: make(chan struct{})}
	return s, s.reserveLocked()
}

func (s *spared) reserveLocked() (err error) {
	if s.spare == nil {
		s.spare, err = os.Open(os.DevNull)
	}
	return err
}

// Accept implements net.Listener.
func (s *spared) Accept() (net.Conn, error) {
	select {
	case s.slots <- struct{}{}:
	case <-s.closed:
		return nil, net.ErrClosed
	}
	c, err := s.Listener.Accept()
	if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
		c, err = s.acceptWithSpare()
	}
	if err != nil {
		<-s.slots
		return nil, err
	}
	return &sparedConn{Conn: c, of: s}, nil
}

// Close implements net.Listener.
func (s *spared) Close() error {
	s.close.Do(func() { close(s.closed) })
	return s.Listener.Close()
}

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
	of   *spared
	once sync.Once
}

// Close implements net.Conn.
func (c *sparedConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() {
		c.of.mu.Lock()
		_ = c.of.reserveLocked() // else the next one does
		c.of.mu.Unlock()
		<-c.of.slots
	})
	return err
}
