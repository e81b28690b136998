package clickhouse

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/ClickHouse/ch-go/compress"
	"github.com/ClickHouse/ch-go/proto"
	"github.com/ClickHouse/clickhouse-go/v2"

	ddl "github.com/laggard-dev/laggard/schemas/clickhouse"
)

const (
	// linkRevision is the newest protocol that a link speaks: enough for every type
	// and setting that an insert needs, and without what later ones send unasked
	// (profile events). Servers speak the older one of the two sides.
	linkRevision = int(proto.FeatureDistributedDepth)
	// firstRevision is the oldest: 18.16 speaks a later one.
	firstRevision = int(proto.FeatureVersionPatch)
	// frame is how much of a block is compressed at once.
	frame      = 256 << 10
	linkClient = "laggard"
)

// link is a connection to a server over which blocks are inserted. clickhouse-go
// sends rows or columns that it builds itself, at twice the cost of the server's
// own work; a link sends a block that is made already.
//
// Caveat: after any error, an exception of the server's too, what is under way on
// the connection is not known: it must be closed.
type link struct {
	conn     net.Conn
	reader   *proto.Reader
	buffer   proto.Buffer
	revision int
	packer   *compress.Writer // nil sends blocks as they are
	header   []heading
	used     bool // an insert was carried out on it
	spoilt   bool // its context ended
}

// dialLink connects and introduces itself.
func dialLink(ctx context.Context, a ddl.Address, password string, config *tls.Config) (*link, error) {
	d := net.Dialer{Timeout: dialTimeout}
	var conn net.Conn
	var err error
	if config != nil {
		conn, err = (&tls.Dialer{NetDialer: &d, Config: config}).DialContext(ctx, "tcp", a.Host)
	} else {
		conn, err = d.DialContext(ctx, "tcp", a.Host)
	}

	if err != nil {
		return nil, err
	}

	l := &link{conn: conn, reader: proto.NewReader(conn), revision: linkRevision}
	if !a.Plain {
		l.packer = compress.NewWriter(compress.LevelZero, compress.LZ4)
	}

	stop, err := l.watch(ctx)
	if err == nil {
		err = l.hello(a, password)
		stop()
	}

	if err != nil {
		return nil, errors.Join(endOf(ctx, err), l.close())
	}

	return l, nil
}

func (l *link) close() error {
	if err := l.conn.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("close connection: %w", err)
	}

	return nil
}

// watch makes reads and writes fail when ctx ends, until stop is called. A link on
// which ctx ended meanwhile is of no more use.
func (l *link) watch(ctx context.Context) (stop func(), err error) {
	deadline, _ := ctx.Deadline() // zero is none
	if err := l.conn.SetDeadline(deadline); err != nil {
		return nil, fmt.Errorf("set deadline: %w", err)
	}

	ended := context.AfterFunc(ctx, func() { _ = l.conn.SetDeadline(time.Unix(1, 0)) }) // a closed connection fails anyway
	return func() { l.spoilt = !ended() }, nil
}

// endOf names the end of ctx as the cause of an error that it brought about.
func endOf(ctx context.Context, err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		if cause := ctx.Err(); cause != nil {
			return fmt.Errorf("%w: %w", cause, err)
		}
	}

	return err
}

func (l *link) flush() error {
	_, err := l.conn.Write(l.buffer.Buf)
	l.buffer.Reset()
	return err
}

func (l *link) hello(a ddl.Address, password string) error {
	hello := proto.ClientHello{
		Name: linkClient, Major: 1, ProtocolVersion: linkRevision, Database: a.Database, User: a.User, Password: password,
	}
	hello.Encode(&l.buffer)
	err := l.flush()
	clear(l.buffer.Buf[:cap(l.buffer.Buf)]) // it held the password
	if err != nil {
		return fmt.Errorf("send hello: %w", err)
	}

	code, err := l.reader.ReadByte()
	if err != nil {
		return fmt.Errorf("read hello: %w", err)
	}

	switch proto.ServerCode(code) {
	case proto.ServerCodeException:
		return l.exception()
	case proto.ServerCodeHello:
	default:
		return fmt.Errorf("read hello: packet %d is none; is this the port of the native protocol?", code)
	}

	var server proto.ServerHello
	if err := server.DecodeAware(l.reader, linkRevision); err != nil {
		return fmt.Errorf("read hello: %w", err)
	}

	if server.Revision < firstRevision {
		return fmt.Errorf("the server speaks revision %d of the native protocol, want %d (18.14) or newer", server.Revision, firstRevision)
	}

	l.revision = min(l.revision, server.Revision)
	return nil
}

// setting is one setting of a query. A number: old servers take it in binary.
type setting struct {
	name   string
	text   string
	number uint64 // where text is ""
}

// begin sends an INSERT and reads the header that the server answers with.
func (l *link) begin(query, id string, settings []setting) error {
	compression := proto.CompressionDisabled
	if l.packer != nil {
		compression = proto.CompressionEnabled
	}

	b := &l.buffer
	proto.ClientCodeQuery.Encode(b)
	b.PutString(id)
	host, _ := os.Hostname() // for system.processes alone
	info := proto.ClientInfo{
		ProtocolVersion: linkRevision, Major: 1, Interface: proto.InterfaceTCP, Query: proto.ClientQueryInitial,
		InitialAddress: l.conn.LocalAddr().String(), ClientHostname: host, ClientName: linkClient,
	}
	info.EncodeAware(b, l.revision)
	for _, s := range settings {
		s.encode(b, l.revision)
	}

	b.PutString("") // end of settings
	if proto.FeatureInterServerSecret.In(l.revision) {
		b.PutString("")
	}

	proto.StageComplete.Encode(b)
	compression.Encode(b)
	b.PutString(query)
	if err := l.data(nil); err != nil { // no external tables
		return fmt.Errorf("send query: %w", err)
	}

	if err := l.answer(true); err != nil {
		return fmt.Errorf("read header: %w", err)
	}

	return nil
}

func (s setting) encode(b *proto.Buffer, revision int) {
	if !proto.FeatureSettingsSerializedAsStrings.In(revision) {
		b.PutString(s.name)
		if s.text != "" {
			b.PutString(s.text)
		} else {
			b.PutUVarInt(s.number)
		}

		return
	}

	value := s.text
	if value == "" {
		value = strconv.FormatUint(s.number, 10)
	}

	proto.Setting{Key: s.name, Value: value, Important: true}.Encode(b)
}

// send sends a block and the empty one behind it, and waits until the server says
// that the insert is done.
func (l *link) send(b *block) error {
	err := l.data(b)
	if err == nil {
		err = l.data(nil)
	}

	if err != nil {
		// A server that refuses says why before it closes.
		var why *clickhouse.Exception
		if errors.As(l.answer(false), &why) {
			return why
		}

		return fmt.Errorf("send block: %w", err)
	}

	if err := l.answer(false); err != nil {
		return fmt.Errorf("read answer: %w", err)
	}

	l.used = true
	return nil
}

// data sends one packet of data, nil the empty block, and all that waits before it.
func (l *link) data(b *block) error {
	proto.ClientCodeData.Encode(&l.buffer)
	l.buffer.PutString("") // no temporary table
	if b == nil {
		b = &block{}
	}

	if l.packer == nil {
		if err := b.encode(l.revision, l.put); err != nil {
			return err
		}

		return l.flush()
	}

	if err := l.flush(); err != nil {
		return err
	}

	if err := b.encode(l.revision, l.put); err != nil {
		return err
	}

	return l.pack()
}

// put adds bytes of a block and sends what is full.
func (l *link) put(p []byte) error {
	for len(p) > 0 {
		n := min(len(p), frame-len(l.buffer.Buf))
		l.buffer.Buf = append(l.buffer.Buf, p[:n]...)
		if p = p[n:]; len(l.buffer.Buf) < frame {
			return nil
		}

		if err := l.pack(); err != nil {
			return err
		}
	}

	return nil
}

// pack sends what waits as one frame.
func (l *link) pack() error {
	if l.packer == nil || len(l.buffer.Buf) == 0 {
		return l.flush()
	}

	if err := l.packer.Compress(l.buffer.Buf); err != nil {
		return fmt.Errorf("compress block: %w", err)
	}

	l.buffer.Reset()
	_, err := l.conn.Write(l.packer.Data)
	return err
}

// answer reads packets until the header of an insert, or until its end.
func (l *link) answer(header bool) error {
	for {
		code, err := l.reader.ReadByte()
		if err != nil {
			return err
		}

		switch proto.ServerCode(code) {
		case proto.ServerCodeException:
			return l.exception()
		case proto.ServerCodeEndOfStream:
			if header {
				return errors.New("the server ends the insert before it began")
			}

			return nil
		case proto.ServerCodeData:
			if err := l.readHeader(); err != nil {
				return err
			}

			if header {
				return nil
			}
		case proto.ServerCodeProgress:
			err = new(proto.Progress).DecodeAware(l.reader, l.revision)
		case proto.ServerCodeProfile:
			err = new(proto.Profile).DecodeAware(l.reader, l.revision)
		case proto.ServerCodeTableColumns:
			err = new(proto.TableColumns).DecodeAware(l.reader, l.revision)
		default:
			err = fmt.Errorf("packet %d is none that an insert is answered with", code)
		}

		if err != nil {
			return err
		}
	}
}

// readHeader reads a block without rows.
func (l *link) readHeader() error {
	if _, err := l.reader.Str(); err != nil { // temporary table
		return fmt.Errorf("read block: %w", err)
	}

	if l.packer != nil {
		l.reader.EnableCompression()
		defer l.reader.DisableCompression()
	}

	var head proto.Block
	if err := head.Info.Decode(l.reader); err != nil {
		return fmt.Errorf("read block: %w", err)
	}

	columns, err := l.reader.Int()
	if err != nil {
		return fmt.Errorf("read block: %w", err)
	}

	rows, err := l.reader.Int()
	if err != nil {
		return fmt.Errorf("read block: %w", err)
	}

	if columns < 0 || columns > 4096 || rows != 0 {
		return fmt.Errorf("read block: %d columns of %d rows are no header", columns, rows)
	}

	l.header = l.header[:0]
	for range columns {
		var h heading
		if h.name, err = l.reader.Str(); err == nil {
			h.typ, err = l.reader.Str()
		}

		if err != nil {
			return fmt.Errorf("read block: %w", err)
		}

		l.header = append(l.header, h)
	}

	return nil
}

// exception reads what the server refuses with, as clickhouse-go gives it.
func (l *link) exception() error {
	var e proto.Exception
	if err := e.DecodeAware(l.reader, l.revision); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = io.EOF
		}

		return fmt.Errorf("read exception: %w", err)
	}

	return &clickhouse.Exception{Code: int32(e.Code), Name: e.Name, Message: e.Message}
}
