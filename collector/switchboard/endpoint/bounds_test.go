package endpoint

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/laggard-dev/laggard/schemas/tracepb"
)

// fromPeers is a listener whose connections come from ever other addresses, each address
// having as many as one may.
type fromPeers struct {
	*bufconn.Listener
	n atomic.Uint32
}

// Accept implements net.Listener.
func (l *fromPeers) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}

	i := (l.n.Add(1) - 1) / maxPeerConns
	return &fromPeer{c, &net.TCPAddr{IP: net.IPv4(10, 0, byte(i>>8), byte(i)), Port: 1}}, nil
}

type fromPeer struct {
	net.Conn
	at net.Addr
}

// RemoteAddr implements net.Conn.
func (c *fromPeer) RemoteAddr() net.Addr { return c.at }

// TestConnectionsInAll: of all peers together so many connections are open at once, and
// not one more than a quarter of the descriptors; where one is closed there is room again.
func TestConnectionsInAll(t *testing.T) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}

	most := int(min(4096, limit.Cur/4))
	said := &lines{news: make(chan struct{}, 1)}
	l := &fromPeers{Listener: bufconn.Listen(1)}
	g := (&Options{}).guard(l, slog.New(slog.NewTextHandler(said, nil)))
	accepted := make(chan net.Conn)
	done := make(chan error, 1)
	go func() {
		for {
			c, err := g.Accept()
			if err != nil {
				done <- err
				return
			}

			accepted <- c
		}
	}()
	dial := func() net.Conn {
		t.Helper()
		c, err := l.Dial()
		if err != nil {
			t.Fatal(err)
		}

		return c
	}
	var open []net.Conn
	for range most {
		dial()
		open = append(open, <-accepted)
	}

	refused := dial()
	if _, err := refused.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("one connection too many: %v", err)
	}

	if text := said.until(t, "connections to the switch refused"); !strings.Contains(text, "connections are open") {
		t.Errorf("said %s", text)
	}

	open[7].Close()
	open[7].Close() // counted once
	dial()
	<-accepted
	refused = dial()
	if _, err := refused.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("one connection too many after one was closed: %v", err)
	}

	l.Close()
	<-done
}

// TestIdleConnection: a connection is closed a minute after its last call, and stays while
// calls come more often.
func TestIdleConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &fromPeers{Listener: bufconn.Listen(1 << 16)}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- (&Options{}).serve(ctx, l, "memory", nil, slog.New(slog.DiscardHandler), func(s grpc.ServiceRegistrar) { tracepb.RegisterTrainingDataTraceServer(s, board{}) })
		}()
		conn, err := grpc.NewClient("passthrough:///memory", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
		if err != nil {
			t.Fatal(err)
		}

		var last time.Time
		for range 5 {
			if _, err := tracepb.NewTrainingDataTraceClient(conn).GetTrainingDataTraceSwitch(ctx, &tracepb.DataStatusReq{}); err != nil {
				t.Fatal(err)
			}

			last = time.Now()
			time.Sleep(50 * time.Second) // of the bubble's clock
		}

		if n := l.n.Load(); n != 1 {
			t.Errorf("%d connections for calls every 50 s", n)
		}

		for state := conn.GetState(); state != connectivity.Idle; state = conn.GetState() {
			if !conn.WaitForStateChange(ctx, state) {
				t.Fatal("never closed")
			}
		}

		if after := time.Since(last); after < time.Minute || after > 70*time.Second {
			t.Errorf("closed %v after the last call, want a minute", after)
		}

		conn.Close()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}

		l.Close()
	})
}
