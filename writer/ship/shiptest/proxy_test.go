package shiptest_test

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// fault says what happens to a connection through the proxy. Zero is nothing.
type fault struct {
	name string
	// after so many bytes from the client (up) or from the server (down) it happens:
	up, down int64
	// the connection is cut, with a reset instead of an end;
	reset bool
	// or it is half open: nothing passes any more, and nobody is told;
	half bool
	// or what the server says is swallowed and the connection cut at the first such
	// word: an insert was carried out, and its acknowledgement is lost.
	mute bool
	// stall accepts and says nothing at all.
	stall bool
	// delay is added to each piece of bytes, both ways.
	delay time.Duration
}

// proxy is a TCP proxy before a server that breaks connections.
type proxy struct {
	t      *testing.T
	l      net.Listener
	server string
	plan   func(n int) fault // of the n-th connection
	wait   sync.WaitGroup
	stop   chan struct{}

	mu    sync.Mutex
	conns map[net.Conn]bool
	n     int
	met   map[string]int // faults that happened, by name
}

func newProxy(t *testing.T, server string, plan func(n int) fault) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	return proxyAt(t, l, server, plan)
}

// connections is how many connections there were.
func (p *proxy) connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.n
}

// proxyAt is newProxy on a listener of the test's own.
func proxyAt(t *testing.T, l net.Listener, server string, plan func(n int) fault) *proxy {
	p := &proxy{t: t, l: l, server: server, plan: plan, conns: map[net.Conn]bool{}, met: map[string]int{}, stop: make(chan struct{})}
	p.wait.Add(1)
	go p.accept()
	t.Cleanup(func() {
		l.Close()
		close(p.stop)
		p.mu.Lock()
		for c := range p.conns {
			c.Close()
		}

		p.mu.Unlock()
		p.wait.Wait()
	})
	return p
}

func (p *proxy) addr() string { return p.l.Addr().String() }

func (p *proxy) store(database string) string { return "clickhouse://" + p.addr() + "/" + database }

func (p *proxy) accept() {
	defer p.wait.Done()
	for {
		client, err := p.l.Accept()
		if err != nil {
			return
		}

		server, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", p.server)
		if err != nil {
			client.Close()
			continue
		}

		p.mu.Lock()
		f := p.plan(p.n)
		p.n++
		p.conns[client], p.conns[server] = true, true
		p.mu.Unlock()
		p.wait.Add(2)
		l := &link{fault: f, p: p, client: client, server: server}
		go p.copy(l.up, server, client)
		go p.copy(l.down, client, server)
	}
}

func (p *proxy) copy(f func(io.Writer, io.Reader), dst, src net.Conn) {
	defer p.wait.Done()
	f(dst, src)
	dst.Close()
	src.Close()
	p.mu.Lock()
	delete(p.conns, dst)
	delete(p.conns, src)
	p.mu.Unlock()
}

// link is one connection.
type link struct {
	fault
	p              *proxy
	client, server net.Conn

	mu         sync.Mutex
	sent, said int64 // bytes from the client, from the server
	met        bool
}

// happens notes that the fault is met.
func (l *link) happens() {
	l.mu.Lock()
	first := !l.met
	l.met = true
	l.mu.Unlock()
	if first {
		l.p.mu.Lock()
		l.p.met[l.name]++
		l.p.mu.Unlock()
	}
}

func (l *link) cut() {
	l.happens()
	if l.reset {
		for _, c := range []net.Conn{l.client, l.server} {
			if tcp, ok := c.(*net.TCPConn); ok {
				_ = tcp.SetLinger(0) // it is about to be closed in any case
			}
		}
	}

	l.client.Close()
	l.server.Close()
}

// silent swallows everything until the other side gives up.
func (l *link) silent(src io.Reader) {
	l.happens()
	_, _ = io.Copy(io.Discard, src) // ends with the connection
}

func (l *link) late() {
	if l.delay == 0 {
		return
	}

	l.happens()
	t := time.NewTimer(l.delay)
	defer t.Stop()
	select {
	case <-t.C:
	case <-l.p.stop:
	}
}

func (l *link) up(dst io.Writer, src io.Reader) {
	buf := make([]byte, 4096)
	for {
		n, err := src.Read(buf)
		if l.stall {
			l.silent(src)
			return
		}

		l.late()
		l.mu.Lock()
		pass := int64(n)
		limited := l.fault.up > 0 && !l.mute
		if limited {
			pass = min(pass, l.fault.up-l.sent)
		}

		l.sent += pass
		over := limited && l.sent >= l.fault.up
		l.mu.Unlock()
		if _, werr := dst.Write(buf[:pass]); werr != nil || err != nil {
			return
		}

		switch {
		case over && l.half:
			l.silent(src)
			return
		case over:
			l.cut()
			return
		}
	}
}

func (l *link) down(dst io.Writer, src io.Reader) {
	buf := make([]byte, 4096)
	for {
		n, err := src.Read(buf)
		l.late()
		l.mu.Lock()
		over := l.fault.up > 0 && l.sent >= l.fault.up
		pass := int64(n)
		if l.fault.down > 0 {
			pass = min(pass, l.fault.down-l.said)
		}

		l.said += pass
		cut := l.fault.down > 0 && l.said >= l.fault.down
		l.mu.Unlock()
		if n > 0 && over && l.mute {
			l.cut()
			return
		}

		if over && l.half || l.stall {
			pass = 0
		}

		if _, werr := dst.Write(buf[:pass]); werr != nil || err != nil {
			return
		}

		if cut {
			l.cut()
			return
		}
	}
}
