package switchboard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/laggard-dev/laggard/collector/switchboard/endpoint"
	"github.com/laggard-dev/laggard/collector/trace"
	"github.com/laggard-dev/laggard/schemas/tracepb"
)

// Subscriber follows the switch of a job at another agent's board: there is one
// server a job, rank 0's agent.
type Subscriber struct {
	Board    *Board            // of this node, which follows; the server is told of its recorders
	Endpoint *endpoint.Options // how the server is called
	Address  string            // of the server
	Job      string            // <namespace>/<job>, or the job alone
	Logger   *slog.Logger      // nil is silent

	heard *trace.State // last: what is heard again after a broken connection is not news
}

// Pauses between attempts to reach the server: doubled each time, half of it by
// chance so that a thousand agents don't come back together. The last is how long a
// switch may come late after the server is back.
const (
	firstPause = 200 * time.Millisecond
	lastPause  = 15 * time.Second
	// sayEvery bounds the log lines about a server that is away.
	sayEvery = 30 * time.Second
)

// Run follows until ctx ends; it returns nil then. A server that is away keeps the
// state as it is.
func (s *Subscriber) Run(ctx context.Context) error {
	log := cmp.Or(s.Logger, slog.New(slog.DiscardHandler))
	conn, err := s.Endpoint.Dial(s.Address)
	if err != nil {
		return fmt.Errorf("follow the switch at %s: %w", s.Address, err)
	}
	defer conn.Close()
	client := tracepb.NewTrainingDataTraceClient(conn)
	reporting := make(chan struct{})
	go func() {
		defer close(reporting)
		s.report(ctx, conn)
	}()
	defer func() { <-reporting }()
	pause := firstPause
	var said time.Time
	for ctx.Err() == nil {
		heard, err := s.listen(ctx, client)
		if ctx.Err() != nil {
			return nil
		}

		if heard { // it was there a moment ago, and may only have been started again
			pause = firstPause
		}

		if time.Since(said) > sayEvery {
			said = time.Now()
			log.Warn("the switch's server is away; what is recorded stays as it is", "address", s.Address, "err", err)
		}

		select {
		case <-ctx.Done():
		case <-time.After(pause/2 + time.Duration(rand.Int64N(int64(pause/2)))):
		}

		pause = min(2*pause, lastPause)
	}

	return nil
}

// listen takes states until the stream breaks, and tells whether one came: then the server
// was there, and the next attempt need not wait long.
func (s *Subscriber) listen(ctx context.Context, client tracepb.TrainingDataTraceClient) (heard bool, err error) {
	stream, err := client.SubscribeDataTraceSwitch(ctx, &tracepb.ProfilingClientInfo{JobId: s.Job, Role: "laggard-agent"})
	if err != nil {
		return false, err
	}

	for {
		r, err := stream.Recv()
		if err != nil {
			return heard, err
		}

		if r.GetCode() != OK || r.GetProfilingSwitch() == nil {
			return heard, fmt.Errorf("code %d: %s", r.GetCode(), r.GetMessage())
		}

		state, err := wordsOf(r.GetProfilingSwitch()).State()
		if err == nil && (s.heard == nil || *s.heard != state) {
			if err = s.Board.Follow(s.Board.ofCaller(s.Job), state); err == nil {
				s.heard = &state
			}
		}

		if err != nil {
			return heard, errors.Join(errors.New("the server's switch was not followed"), err)
		}

		heard = true
	}
}
