package taskd_test

import (
	"bytes"
	"net"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/laggard-dev/laggard/collector/switchboard/endpoint/endpointtest"
)

// noUUID stands where a message has its uuid.
const noUUID = "00000000-0000-4000-8000-000000000000"

var uuids = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

// got is a message that came, its uuid replaced.
type got struct {
	method string
	bytes  []byte
}

// rawManager is a manager that answers an empty Ack to every call and gives all that came on,
// by calls and on the worker's stream; what it is given goes down that stream.
func rawManager(t *testing.T) (address string, calls, acks chan got, down chan []byte) {
	t.Helper()
	calls, acks, down = make(chan got, 64), make(chan got, 64), make(chan []byte)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	s := grpc.NewServer(grpc.ForceServerCodec(endpointtest.Raw{}), grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
		method, _ := grpc.MethodFromServerStream(s)
		receive := func(came chan<- got) error {
			var b []byte
			err := s.RecvMsg(&b)
			if err == nil {
				came <- got{method, uuids.ReplaceAll(b, []byte(noUUID))}
			}

			return err
		}
		if !strings.HasSuffix(method, "/InitServerDownStream") {
			if err := receive(calls); err != nil {
				return err
			}

			return s.SendMsg(&[]byte{})
		}

		go func() {
			for receive(acks) == nil {
			}
		}()
		for {
			select {
			case b := <-down:
				if err := s.SendMsg(&b); err != nil {
					return err
				}
			case <-s.Context().Done():
				return nil
			}
		}
	}))
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		<-done
	})
	return l.Addr().String(), calls, acks, down
}

// TestWorkerBytes: what our worker sends to TaskD's manager is, byte by byte, what TaskD's
// network carries, and it obeys the manager's bytes.
func TestWorkerBytes(t *testing.T) {
	messages := endpointtest.ReadMessages(t, "testdata/tasknet.txt")
	address, calls, acks, down := rawManager(t)
	w := start(t, "LAGGARD_TASKD_PROXY="+address)
	comes := func(came <-chan got, method, name string) {
		t.Helper()
		select {
		case g := <-came:
			if g.method != "/TaskNet/"+method || !bytes.Equal(g.bytes, messages[name]) {
				t.Fatalf("%s %x, want %s %s %x", g.method, g.bytes, method, name, messages[name])
			}
		case <-time.After(patience):
			t.Fatalf("no %s", name)
		}
	}
	comes(calls, "Register", "register")
	comes(calls, "PathDiscovery", "path")
	comes(calls, "TransferMessage", "message-register")
	for _, c := range []struct{ action, status string }{
		{"action-711", "message-status-1411"}, {"action-710", "message-status-1410"}, {"action-700", "message-status-1400"},
	} {
		down <- messages[c.action]
		comes(acks, "InitServerDownStream", "ack")
		comes(calls, "TransferMessage", c.status)
	}

	w.end(t)
}
