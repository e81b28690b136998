package shiptest_test

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
)

// fault says when a connection through the proxy is cut. Zero is never.
type fault struct {
	// up cuts after so many bytes from the client.
	up int64
	// mute swallows everything that the server says once the client has sent so
	// many bytes, and cuts at the first such answer: the insert was carried out and
	// its acknowledgement is lost.
	mute int64
}

// proxy is a TCP proxy before a server that breaks connections.
type proxy struct {
	t      *testing.T
	l      net.Listener
	server string
	plan   func(n int) fault // of the n-th connection
	wait   sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]bool
	n     int
}

func newProxy(t *testing.T, server string, plan func(n int) fault) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{t: t, l: l, server: server, plan: plan, conns: map[net.Conn]bool{}}
	p.wait.Add(1)
	go p.accept()
	t.Cleanup(func() {
		l.Close()
		p.mu.Lock()
		for c := range p.conns {
			c.Close()
		}
		p.mu.Unlock()
		p.wait.Wait()
	})
	return p
}

func (p *proxy) store(database string) string {
	return "clickhouse://" + p.l.Addr().String() + "/" + database
}

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
		l := &link{fault: f, cut: func() { client.Close(); server.Close() }}
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
	cut  func()
	mu   sync.Mutex
	sent int64
}

func (l *link) up(dst io.Writer, src io.Reader) {
	buf := make([]byte, 4096)
	for {
		n, err := src.Read(buf)
		l.mu.Lock()
		pass := int64(n)
		if l.fault.up > 0 {
			pass = min(pass, l.fault.up-l.sent)
		}
		l.sent += pass
		l.mu.Unlock()
		if _, werr := dst.Write(buf[:pass]); werr != nil || err != nil {
			return
		}
		if l.fault.up > 0 && l.sent >= l.fault.up {
			l.cut()
			return
		}
	}
}

func (l *link) down(dst io.Writer, src io.Reader) {
	buf := make([]byte, 4096)
	for {
		n, err := src.Read(buf)
		l.mu.Lock()
		muted := l.mute > 0 && l.sent >= l.mute
		l.mu.Unlock()
		if muted && n > 0 {
			l.cut()
			return
		}
		if _, werr := dst.Write(buf[:n]); werr != nil || err != nil {
			return
		}
	}
}
