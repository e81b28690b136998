package endpoint

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
)

const (
	// A connection that says nothing is closed after handshakeTimeout before its first
	// call, after idleTimeout between two; a stream's other end is asked every alive
	// whether it is there.
	handshakeTimeout = 10 * time.Second
	idleTimeout      = time.Minute
	alive            = 30 * time.Second
	aliveTimeout     = 20 * time.Second
	// maxStreams bounds the calls at once of one connection: an agent has a subscription and
	// a report under way.
	maxStreams = 64
	// again is the pause after a socket could not be made.
	again = 5 * time.Second
)

// Serve serves at an address until ctx ends. A Unix socket that can't be made is said
// and tried again: the file of a stranger must not end an agent.
func (o *Options) Serve(ctx context.Context, at string, log *slog.Logger, register func(grpc.ServiceRegistrar)) error {
	path, socket := strings.CutPrefix(at, unixScheme)
	if !socket {
		l, options, err := o.listenTCP(at)
		if err != nil {
			return fmt.Errorf("serve the switch at %s: %w", at, err)
		}

		return o.serve(ctx, l, l.Addr().String(), options, log, register)
	}

	var said time.Time
	for {
		l, remove, err := o.listenUnix(path)
		if err == nil {
			defer remove()
			return o.serve(ctx, l, at, nil, log, register)
		}

		if time.Since(said) >= sayEvery {
			said = time.Now()
			log.Error("switch not served, tried again", "address", at, "cause", err)
		}

		select {
		case <-ctx.Done():
			return nil
		case <-time.After(again):
		}
	}
}

// listenTCP opens the port and says how its callers are authenticated: by certificates or a token. On
// loopback, and where Insecure says that the network guards the port, nobody is asked.
func (o *Options) listenTCP(at string) (net.Listener, []grpc.ServerOption, error) {
	token, err := o.token()
	if err == nil {
		err = o.mayServe(at, token)
	}

	if err != nil {
		return nil, nil, err
	}

	c, err := o.listening()
	if err != nil {
		return nil, nil, err
	}

	options := []grpc.ServerOption{grpc.Creds(c)}
	if token != "" {
		options = append(options, asks(token))
	}

	l, err := net.Listen("tcp", at)
	if err != nil {
		return nil, nil, fmt.Errorf("%w; name another address with --listen, or \"\" for none", err)
	}

	return l, options, nil
}

// serve answers calls on a listener until ctx ends. Streams are cut off then: their other
// ends come again.
func (o *Options) serve(ctx context.Context, l net.Listener, address string, options []grpc.ServerOption, log *slog.Logger, register func(grpc.ServiceRegistrar)) error {
	s := grpc.NewServer(append(options,
		grpc.ConnectionTimeout(handshakeTimeout), grpc.MaxConcurrentStreams(maxStreams),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: idleTimeout, Time: alive, Timeout: aliveTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: alive / 2}))...)
	register(s)
	log.Info("serving the switch", "address", address)
	defer context.AfterFunc(ctx, s.Stop)()
	if err := s.Serve(o.guard(l, log)); ctx.Err() == nil {
		return err
	}

	return nil
}

// Dial makes a connection to a switch; it connects with the first call, and again after it
// broke. Who may not be called is told here, who is not there by the call.
func (o *Options) Dial(at string) (*grpc.ClientConn, error) {
	stay := grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: alive, Timeout: aliveTimeout})
	if path, socket := strings.CutPrefix(at, unixScheme); socket {
		// passthrough: no resolver is asked, the dialer knows where. HTTP/2 wants an authority.
		return grpc.NewClient("passthrough:///switch", stay, grpc.WithAuthority("localhost"), grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return o.dialUnix(ctx, path) }))
	}

	if err := o.mayCall(at); err != nil {
		return nil, err
	}

	c, err := o.calling()
	if err != nil {
		return nil, err
	}

	token, err := o.token()
	if err != nil {
		return nil, err
	}

	options := []grpc.DialOption{stay, grpc.WithTransportCredentials(c)}
	if token != "" {
		options = append(options, grpc.WithPerRPCCredentials(bearer(token)))
	}

	return grpc.NewClient(at, options...)
}
