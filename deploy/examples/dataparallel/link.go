package dataparallel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// Link is a wire between two workers that can be made slow while they train: a relay
// that passes bytes on both ways, at full speed until it is limited. It serves one
// connection, as each pair of neighbours of the ring has one.
type Link struct {
	Listener net.Listener // the worker before connects here
	Target   string       // address of the worker behind
	rate     atomic.Int64 // bytes per second each way, 0 for no limit
}

// linkChunk is what the relay passes on at a time, in bytes: small against a chunk of
// the all-reduce, so that a limit is felt as a rate and not as a burst.
const linkChunk = 8 << 10

// Limit sets the bytes per second that pass each way from now on.
func (l *Link) Limit(bytesPerSecond int64) { l.rate.Store(bytesPerSecond) }

// Run relays until both ends have closed or the context ends.
func (l *Link) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { l.Listener.Close() })
	defer stop()
	before, err := l.Listener.Accept()
	if err != nil {
		return fmt.Errorf("link to %s: wait for the worker before it: %w", l.Target, err)
	}
	defer before.Close()
	behind, err := net.DialTimeout("tcp", l.Target, joinTimeout)
	if err != nil {
		return fmt.Errorf("link to %s: %w", l.Target, err)
	}
	defer behind.Close()
	cut := context.AfterFunc(ctx, func() { before.Close(); behind.Close() })
	defer cut()
	both := func(to, from net.Conn) error {
		err := l.pass(to, from)
		if err != nil { // a worker is gone: its neighbour must hear of it
			before.Close()
			behind.Close()
		}

		return err
	}
	var g errgroup.Group
	g.Go(func() error { return both(behind, before) })
	g.Go(func() error { return both(before, behind) })
	if err := g.Wait(); err != nil && ctx.Err() == nil {
		return fmt.Errorf("link to %s: %w", l.Target, err)
	}

	return nil
}

// pass copies one way, no faster than the limit, and hands the end of the stream on.
func (l *Link) pass(to, from net.Conn) error {
	buf := make([]byte, linkChunk)
	free := time.Now() // when the wire has carried what it was given
	for {
		n, err := from.Read(buf)
		if rate := l.rate.Load(); rate > 0 && n > 0 {
			if now := time.Now(); free.Before(now) {
				free = now
			}

			free = free.Add(time.Duration(int64(n) * int64(time.Second) / rate))
			time.Sleep(time.Until(free))
		}

		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return err
			}
		}

		switch {
		case errors.Is(err, io.EOF):
			return to.(*net.TCPConn).CloseWrite()
		case err != nil:
			return err
		}
	}
}
