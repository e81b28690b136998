package endpoint

import (
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/laggard-dev/laggard/collector/ring"
)

const (
	// maxConns bounds the connections of a switch (a quarter of what descriptors there are,
	// if that is less), maxPeerConns those of one user (Unix) or address (TCP): each agent
	// of a job's nodes holds one.
	maxConns     = 4096
	maxPeerConns = 64
	// sayEvery bounds the log lines about connections that were refused.
	sayEvery = time.Minute
)

// guard closes the connections of strangers, and of whom there are too many, before a
// byte of them is read: the gRPC server behind it parses nothing of who may not call.
type guard struct {
	net.Listener
	o   *Options
	log *slog.Logger
	max int

	mu      sync.Mutex     // guards what follows: connections are closed in other goroutines
	open    map[string]int // by peer
	total   int
	refused int       // since they were said
	said    time.Time // when refused connections were logged last
}

// guard stands before a gRPC server, which has no bound of its own on connections.
func (o *Options) guard(l net.Listener, log *slog.Logger) *guard {
	return &guard{Listener: l, o: o, log: log, max: min(maxConns, ring.OpenFiles()/4), open: map[string]int{}}
}

// Accept implements net.Listener.
func (g *guard) Accept() (net.Conn, error) {
	for {
		c, err := g.Listener.Accept()
		if err != nil {
			return nil, err
		}

		who, err := g.who(c)
		if err == nil {
			if err = g.take(who); err == nil {
				return &counted{Conn: c, leave: sync.OnceFunc(func() { g.leave(who) })}, nil
			}
		}

		c.Close()
		g.refuse(err)
	}
}

// who names the other end; an error: it may not call.
func (g *guard) who(c net.Conn) (string, error) {
	if at, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		return at.IP.String(), nil
	}

	uid, err := peer(c)
	if err == nil && !g.o.trusts(uid) {
		err = fmt.Errorf("uid %d is neither this user nor root: --trust-uid %d lets it", uid, uid)
	}

	return fmt.Sprint("uid ", uid), err
}

// take counts a connection of a peer; an error: there are too many.
func (g *guard) take(who string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.total >= g.max:
		return fmt.Errorf("%d connections are open", g.total)
	case g.open[who] >= maxPeerConns:
		return fmt.Errorf("%s has %d connections open", who, g.open[who])
	}

	g.open[who]++
	g.total++
	return nil
}

// leave takes a connection of a peer out of the count.
func (g *guard) leave(who string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.total--
	if g.open[who]--; g.open[who] == 0 {
		delete(g.open, who)
	}
}

// refuse counts a refused connection, and says so once a minute.
func (g *guard) refuse(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refused++
	if time.Since(g.said) < sayEvery {
		return
	}

	g.said = time.Now()
	g.log.Warn("connections to the switch refused", "count", g.refused, "last", err.Error())
	g.refused = 0
}

// counted is a connection that is counted until it is closed.
type counted struct {
	net.Conn
	leave func()
}

// Close implements net.Conn.
func (c *counted) Close() error {
	defer c.leave()
	return c.Conn.Close()
}
