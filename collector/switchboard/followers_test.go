package switchboard

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/laggard-dev/laggard/collector/internal/ringtest"
	"github.com/laggard-dev/laggard/collector/trace"
)

// TestFollowers: the recorders here and those that other agents tell of are listed
// by rank with their nodes, the last word of a node counts, and a node that has
// said nothing for long is left out.
func TestFollowers(t *testing.T) {
	run := ringtest.Shared(t)
	begin(t, run, "j1", trace.On)
	recorders, err := trace.Recorders(run)
	if err != nil || len(recorders) != 1 {
		t.Fatalf("recorders %v, %v", recorders, err)
	}

	here := recorders[0]
	here.Node = "node-0"
	b := New(Options{RunDir: run, Node: here.Node})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	s := grpc.NewServer()
	b.Register(s)
	go s.Serve(l)
	t.Cleanup(s.Stop)
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { conn.Close() })
	ctx := timeout(t)
	tell := func(text string) error {
		return conn.Invoke(ctx, tellMethod, wrapperspb.Bytes([]byte(text)), &wrapperspb.BytesValue{})
	}
	list := func(job string, want ...trace.Recorder) {
		t.Helper()
		got, err := Followers(ctx, conn, job)
		if err != nil {
			t.Fatal(err)
		}

		if d := cmp.Diff(append([]trace.Recorder{}, want...), got); d != "" {
			t.Fatalf("followers of %s (-want +got):\n%s", job, d)
		}
	}
	list("ns/j1", here)
	list("ns/j2")
	there := trace.Recorder{Rank: -1, PID: 7, Job: "j1", Node: "node-9", Wanted: trace.On}
	const told = `{"job":"ns/j1","node":"node-9","recorders":[{"incarnation":"0000000000000000","pid":7,"job":"j1","rank":-1,"wanted":{"default":true,"communication":true},"followed":{"default":%v,"communication":%v}}]}`
	for _, followed := range []bool{false, true} {
		if err := tell(fmt.Sprintf(told, followed, followed)); err != nil {
			t.Fatal(err)
		}

		there.Followed = trace.State{Light: followed, Communication: followed}
		list("ns/j1", there, here)
	}

	if err := tell("{"); err == nil {
		t.Error("half a JSON text was taken")
	}

	if err := b.tell(followers{Job: "unknown", Node: "node-9"}); err == nil || b.jobs["unknown"] != nil {
		t.Errorf("followers of an unknown job are remembered: %v", err)
	}

	b.mu.Lock()
	old := b.jobs["j1"].followers["node-9"]
	old.told = time.Now().Add(-2 * forgetAfter)
	b.jobs["j1"].followers["node-9"] = old
	b.mu.Unlock()
	list("ns/j1", here)
	many := New(Options{RunDir: ringtest.Shared(t), Job: "j3"})
	for i := range maxNodes {
		if err := many.tell(followers{Job: "j3", Node: fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
	}

	if err := many.tell(followers{Job: "j3", Node: "one more"}); err == nil {
		t.Error("a server remembers any number of nodes")
	}

	if _, err := Followers(context.Background(), conn, ""); err != nil {
		t.Errorf("no job: %v", err)
	}
}
