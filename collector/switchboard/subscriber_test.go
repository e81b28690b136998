package switchboard

import (
	"context"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/laggard-dev/laggard/collector/internal/ringtest"
	"github.com/laggard-dev/laggard/collector/switchboard/endpoint"
	"github.com/laggard-dev/laggard/collector/trace"
)

// TestSubscriberFollows: it takes the state at once, each change, and the one that
// it missed while the server was away.
func TestSubscriberFollows(t *testing.T) {
	run := ringtest.Shared(t)
	begin(t, run, "j1", trace.On)
	board := New(Options{RunDir: run})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	address := l.Addr().String()
	up := func(l net.Listener) (down func()) {
		s := grpc.NewServer()
		board.Register(s)
		done := make(chan error, 1)
		go func() { done <- s.Serve(l) }()
		return func() {
			s.Stop()
			<-done
		}
	}
	down := up(l)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	follows := New(Options{RunDir: ringtest.Shared(t), Job: "j1"})
	sub := &Subscriber{Board: follows, Endpoint: &endpoint.Options{}, Address: address, Job: "ns/j1"}
	go func() { ended <- sub.Run(ctx) }()
	want := func(s trace.State) {
		t.Helper()
		deadline := time.After(time.Minute)
		for {
			_, changed, _ := follows.last("j1")
			if bits, ok := follows.Wanted("j1"); ok && trace.FromBits(bits) == s {
				return
			}

			select {
			case <-changed:
			case <-deadline:
				t.Fatalf("never told %v", s)
			}
		}
	}
	want(trace.On)
	light := trace.State{Light: true}
	if err := board.set("j1", light, ""); err != nil {
		t.Fatal(err)
	}

	want(light)
	down()
	if err := board.set("j1", trace.State{}, ""); err != nil {
		t.Fatal(err)
	}

	if l, err = net.Listen("tcp", address); err != nil {
		t.Fatal(err)
	}

	down = up(l)
	want(trace.State{})
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}

	down()
}
