package native

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/ClickHouse/ch-go/compress"
	"github.com/ClickHouse/ch-go/proto"
	"github.com/ClickHouse/clickhouse-go/v2"

	ddl "github.com/laggard-dev/laggard/schemas/clickhouse"
)

// dialTimeout bounds connecting: a fleet's server answers in milliseconds, and a person waits
// for the error.
const dialTimeout = 10 * time.Second

// Options are those of connections to the address's host, with the password and the
// certificates as they are now. A call may last for timeout.
func Options(a ddl.Address, timeout time.Duration) (*clickhouse.Options, error) {
	password, err := a.Password()
	if err != nil {
		return nil, err
	}

	config, err := a.TLS()
	if err != nil {
		return nil, err
	}

	o := &clickhouse.Options{
		Protocol:    clickhouse.Native,
		Addr:        []string{a.Host},
		Auth:        clickhouse.Auth{Database: a.Database, Username: a.User, Password: password},
		TLS:         config,
		Compression: &clickhouse.Compression{Method: clickhouse.CompressionLZ4},
		DialTimeout: min(dialTimeout, timeout),
		ReadTimeout: timeout,
		// What a shard that is down holds is missing: an error, not a smaller job.
		Settings: clickhouse.Settings{"skip_unavailable_shards": 0},
	}
	if a.Plain {
		o.Compression.Method = clickhouse.CompressionNone
	}

	if a.HTTP {
		o.Protocol = clickhouse.HTTP
	}

	return o, nil
}

// Dial connects to the first address of the options and introduces itself.
func Dial(ctx context.Context, o *clickhouse.Options) (*Conn, error) {
	d := net.Dialer{Timeout: o.DialTimeout}
	var conn net.Conn
	var err error
	if o.TLS != nil {
		conn, err = (&tls.Dialer{NetDialer: &d, Config: o.TLS}).DialContext(ctx, "tcp", o.Addr[0])
	} else {
		conn, err = d.DialContext(ctx, "tcp", o.Addr[0])
	}

	if err != nil {
		return nil, err
	}

	c := &Conn{conn: conn, reader: proto.NewReader(conn), version: Revision}
	if o.Compression != nil && o.Compression.Method != clickhouse.CompressionNone {
		c.packer = compress.NewWriter(compress.LevelZero, compress.LZ4)
	}

	if err := c.until(ctx, func() error { return c.hello(o.Auth) }); err != nil {
		return nil, errors.Join(err, c.Close())
	}

	return c, nil
}

// Close closes the connection, whatever is under way on it.
func (c *Conn) Close() error {
	if err := c.conn.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("close connection: %w", err)
	}

	return nil
}

// until has do read and write until ctx ends, and names that as the cause of the error that it
// brings about. A connection on which ctx ended is of no more use.
func (c *Conn) until(ctx context.Context, do func() error) error {
	deadline, _ := ctx.Deadline() // zero is none
	if err := c.conn.SetDeadline(deadline); err != nil {
		return fmt.Errorf("set deadline: %w", err)
	}

	stop := context.AfterFunc(ctx, func() { _ = c.conn.SetDeadline(time.Unix(1, 0)) }) // a closed connection fails anyway
	err := do()
	c.Spoilt = !stop()
	if cause := ctx.Err(); cause != nil && errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("%w: %w", cause, err)
	}

	return err
}

// hello exchanges names, the login and the protocol's revision: both sides then speak the older one.
func (c *Conn) hello(a clickhouse.Auth) error {
	hello := proto.ClientHello{
		Name: client, Major: 1, ProtocolVersion: Revision, Database: a.Database, User: a.Username, Password: a.Password,
	}
	hello.Encode(&c.buffer)
	err := c.flush()
	clear(c.buffer.Buf[:cap(c.buffer.Buf)]) // it held the password
	if err != nil {
		return fmt.Errorf("send hello: %w", err)
	}

	code, err := c.reader.ReadByte()
	if err != nil {
		return fmt.Errorf("read hello: %w", err)
	}

	switch proto.ServerCode(code) {
	case proto.ServerCodeException:
		return c.exception()
	case proto.ServerCodeHello:
	default:
		return fmt.Errorf("read hello: packet %d is none; is this the port of the native protocol?", code)
	}

	var server proto.ServerHello
	if err := server.DecodeAware(c.reader, Revision); err != nil {
		return fmt.Errorf("read hello: %w", err)
	}

	if server.Revision < firstRevision {
		return fmt.Errorf("the server speaks revision %d of the native protocol, want %d (18.14) or newer", server.Revision, firstRevision)
	}

	c.version = min(c.version, server.Revision)
	return nil
}
