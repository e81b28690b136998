package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"

	"github.com/laggard-dev/laggard/collector/switchboard"
	"github.com/laggard-dev/laggard/collector/trace"
)

// serve answers HTTP and gRPC until ctx ends.
func (a *agent) serve(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	if a.o.metrics != "" {
		l, err := net.Listen("tcp", a.o.metrics)
		if err != nil {
			return fmt.Errorf("serve metrics: %w; name another address with --metrics, or \"\" for none", err)
		}
		s, err := spare(l)
		if err != nil {
			return fmt.Errorf("serve metrics: keep a descriptor in reserve: %w", err)
		}
		a.log.Info("serving metrics", "address", l.Addr().String())
		g.Go(func() error { return serveHTTP(ctx, s, a.handler()) })
	}
	for _, at := range a.o.listenAt {
		g.Go(func() error { return a.o.endpoint.Serve(ctx, at, a.log, a.switches.board.Register) })
	}
	if a.o.switchServer != "" {
		follower := &switchboard.Subscriber{
			Endpoint: &a.o.endpoint, Address: a.o.serverAt, Job: a.o.jobName, Set: a.switches.follow(a.switches.named),
			Recorders: func() []trace.Recorder { return a.switches.recorders(a.switches.named) },
			Node:      a.o.node, Logger: a.log,
		}
		g.Go(func() error { return follower.Run(ctx) })
	}
	if a.switches.file != nil {
		g.Go(func() error { return a.switches.file.Run(ctx) })
	}
	return g.Wait()
}

// serveHTTP serves until ctx ends, then lets what is being answered finish.
func serveHTTP(ctx context.Context, l net.Listener, h http.Handler) error {
	s := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: connectionIdle}
	stopped := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		late, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		stopped <- s.Shutdown(late)
	})
	err := s.Serve(l)
	if !stop() {
		err = errors.Join(<-stopped)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

func (a *agent) handler() http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(&agentMetrics{a})
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	r := a.readiness()
	mux.Handle("GET /readyz", r)
	for _, c := range r {
		mux.Handle("GET /readyz/"+c.name, readiness{c})
	}
	return mux
}
