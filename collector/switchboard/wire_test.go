package switchboard

import (
	"bytes"
	"context"
	"testing"

	"google.golang.org/grpc"

	"github.com/laggard-dev/laggard/collector/internal/ringtest"
	"github.com/laggard-dev/laggard/collector/switchboard/endpoint/endpointtest"
	"github.com/laggard-dev/laggard/collector/trace"
)

// TestUpstreamBytes: the bytes that FaultDiag-online and TaskD's manager send to ClusterD do
// here what they do there, and what they are told is the bytes that they expect.
func TestUpstreamBytes(t *testing.T) {
	messages := endpointtest.ReadMessages(t, "testdata/trainingdatatrace.txt")
	const uid = "6f3a0c1e-5d0b-4b8e-9a55-0123456789ab"
	run := ringtest.Shared(t)
	begin(t, run, uid, trace.State{})
	b := New(Options{RunDir: run, Job: "j1"})
	b.Wanted(uid) // the drain tells whose ring it is
	conn := connect(t, b, grpc.WithDefaultCallOptions(grpc.ForceCodec(endpointtest.Raw{})))
	ctx := timeout(t)
	follows, err := subscribeRaw(ctx, conn, messages["subscribe"])
	if err != nil {
		t.Fatal(err)
	}

	holds := func(what string, got []byte, parts ...string) {
		t.Helper()
		for _, p := range parts {
			if !bytes.Contains(got, messages[p]) {
				t.Errorf("%s: %x, without %s %x", what, got, p, messages[p])
			}
		}
	}
	var told []byte
	if err := follows.RecvMsg(&told); err != nil {
		t.Fatal(err)
	}

	holds("subscribed", told, "told-off")
	for _, call := range []struct{ send, told string }{
		{"modify-on", "told-on"}, {"modify-heavy-off", "told-heavy-off"}, {"modify-off", "told-off"},
	} {
		send := messages[call.send]
		var answer, status []byte
		if err := conn.Invoke(ctx, "/TrainingDataTrace/ModifyTrainingDataTraceSwitch", &send, &answer); err != nil {
			t.Fatalf("%s: %v", call.send, err)
		}

		if !bytes.HasSuffix(answer, messages["modified-code"]) {
			t.Errorf("%s: answered %x", call.send, answer)
		}

		if err := follows.RecvMsg(&told); err != nil {
			t.Fatal(err)
		}

		holds(call.send, told, call.told)
		get := messages["get"]
		if err := conn.Invoke(ctx, "/TrainingDataTrace/GetTrainingDataTraceSwitch", &get, &status); err != nil {
			t.Fatal(err)
		}

		holds("get after "+call.send, status, call.told, "status-code")
	}
}

// subscribeRaw opens the stream of a subscriber.
func subscribeRaw(ctx context.Context, conn *grpc.ClientConn, who []byte) (grpc.ClientStream, error) {
	s, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/TrainingDataTrace/SubscribeDataTraceSwitch")
	if err == nil {
		err = s.SendMsg(&who)
	}

	if err == nil {
		err = s.CloseSend()
	}

	return s, err
}
