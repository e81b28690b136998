package agent

import (
	"context"
	"net/http"

	"golang.org/x/sync/errgroup"

	"github.com/laggard-dev/laggard/collector/switchboard"
	"github.com/laggard-dev/laggard/collector/trace"
)

// serve answers HTTP and gRPC until ctx ends.
func (a *agent) serve(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	if a.o.Metrics != "" {
		probes, err := ListenProbes(a.o.Metrics, a.o.Logger)
		if err != nil {
			return err
		}

		g.Go(func() error { return probes.Serve(ctx, a.handler()) })
	}

	// A TCP port that is taken ends the agent; a Unix socket is tried again (endpoint.Serve).
	for _, at := range a.o.Listen {
		g.Go(func() error { return a.o.Endpoint.Serve(ctx, at, a.o.Logger, a.board.Register) })
	}

	if a.o.SwitchServer != "" {
		follower := &switchboard.Subscriber{Board: a.board, Endpoint: &a.o.Endpoint, Address: a.o.SwitchServer, Job: a.o.JobName, Logger: a.o.Logger}
		g.Go(func() error { return follower.Run(ctx) })
	}

	if a.o.SwitchFile != "" {
		everyJob := func(s trace.State) error { return a.board.Follow("", s) }
		file := &trace.Follower{Path: a.o.SwitchFile, Set: everyJob, Logger: a.o.Logger}
		g.Go(func() error { return file.Run(ctx) })
	}

	return g.Wait()
}

// handler answers /readyz, which says what keeps the agent from its work: in all, and of each part under its
// name.
func (a *agent) handler() http.Handler {
	checks := a.checks()
	mux := Handler(a.metrics, ready(checks...))
	for _, c := range checks {
		mux.Handle("GET /readyz/"+c.name, ready(c))
	}

	return mux
}
