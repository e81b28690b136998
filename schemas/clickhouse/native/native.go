// Package native speaks ClickHouse's native protocol over one connection, in blocks of
// columns, with any server from 18.14 on. clickhouse-go builds rows and values one by one, at
// a multiple of the server's own work; here a block goes out as it was made (Begin, Send),
// and comes in as columns (Select).
package native

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"slices"

	"github.com/ClickHouse/ch-go/compress"
	"github.com/ClickHouse/ch-go/proto"
	"github.com/ClickHouse/clickhouse-go/v2"

	ddl "github.com/laggard-dev/laggard/schemas/clickhouse"
)

const (
	// Revision is the newest protocol that a Conn speaks: enough for every type
	// and setting that we need, and without what later ones send unasked
	// (profile events). Servers speak the older one of the two sides.
	Revision = int(proto.FeatureDistributedDepth)
	// firstRevision is the oldest: 18.16 speaks a later one.
	firstRevision = int(proto.FeatureVersionPatch)
	// frame is how much of a block is compressed at once.
	frame  = 256 << 10
	client = "laggard"
)

// Conn is a connection to a server. It is used by one goroutine.
//
// Caveat: after any error, an exception of the server's too, what is under way on
// the connection is not known: it must be closed.
type Conn struct {
	Header  []ddl.Column // of the insert that was begun
	Spoilt  bool         // its context ended
	conn    net.Conn
	reader  *proto.Reader
	buffer  proto.Buffer
	version int              // of the protocol, as both sides speak it
	packer  *compress.Writer // nil sends blocks as they are
}

// flush sends what waits as it is.
func (c *Conn) flush() error {
	_, err := c.conn.Write(c.buffer.Buf)
	c.buffer.Reset()
	return err
}

// Begin sends an INSERT and reads the Header that the server answers with. Settings are numbers
// (int) or texts; a server refuses one that it does not know.
func (c *Conn) Begin(ctx context.Context, query, id string, settings clickhouse.Settings) error {
	return c.until(ctx, func() error {
		if err := c.query(query, id, settings); err != nil {
			return err
		}

		if err := c.answer(true); err != nil {
			return fmt.Errorf("read header: %w", err)
		}

		return nil
	})
}

// query sends a query.
func (c *Conn) query(query, id string, settings clickhouse.Settings) error {
	compression := proto.CompressionDisabled
	if c.packer != nil {
		compression = proto.CompressionEnabled
	}

	b := &c.buffer
	proto.ClientCodeQuery.Encode(b)
	b.PutString(id)
	host, _ := os.Hostname() // for system.processes alone
	info := proto.ClientInfo{
		ProtocolVersion: Revision, Major: 1, Interface: proto.InterfaceTCP, Query: proto.ClientQueryInitial,
		InitialAddress: c.conn.LocalAddr().String(), ClientHostname: host, ClientName: client,
	}
	info.EncodeAware(b, c.version)
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		putSetting(b, c.version, name, settings[name])
	}

	b.PutString("") // end of settings
	if proto.FeatureInterServerSecret.In(c.version) {
		b.PutString("")
	}

	proto.StageComplete.Encode(b)
	compression.Encode(b)
	b.PutString(query)
	if err := c.data(nil); err != nil { // no external tables
		return fmt.Errorf("send query: %w", err)
	}

	return nil
}

// putSetting appends a setting. An old server takes a number in binary, and knows itself which of
// its settings are numbers.
func putSetting(b *proto.Buffer, revision int, name string, value any) {
	number, isNumber := value.(int)
	switch {
	case proto.FeatureSettingsSerializedAsStrings.In(revision):
		proto.Setting{Key: name, Value: fmt.Sprint(value), Important: true}.Encode(b)
	case isNumber:
		b.PutString(name)
		b.PutUVarInt(uint64(number))
	default:
		b.PutString(name)
		b.PutString(fmt.Sprint(value))
	}
}

// Send sends a block and the empty one behind it, and waits until the server says
// that the insert is done. block calls put with its bytes, in order, which put does not keep;
// version is the protocol's.
func (c *Conn) Send(ctx context.Context, block func(version int, put func([]byte) error) error) error {
	return c.until(ctx, func() error {
		err := c.data(block)
		if err == nil {
			err = c.data(nil)
		}

		if err != nil {
			// A server that refuses says why before it closes.
			var why *clickhouse.Exception
			if errors.As(c.answer(false), &why) {
				return why
			}

			return fmt.Errorf("send block: %w", err)
		}

		if err := c.answer(false); err != nil {
			return fmt.Errorf("read answer: %w", err)
		}

		return nil
	})
}

// data sends one packet of data, nil the empty block, and all that waits before it. Only what
// follows the packet's head is compressed, in frames of its own.
func (c *Conn) data(block func(version int, put func([]byte) error) error) error {
	proto.ClientCodeData.Encode(&c.buffer)
	c.buffer.PutString("") // no temporary table
	if block == nil {
		block = nothing
	}

	if c.packer != nil { // the head is not compressed
		if err := c.flush(); err != nil {
			return err
		}
	}

	if err := block(c.version, c.put); err != nil {
		return err
	}

	return c.pack()
}

// nothing is the empty block.
func nothing(version int, put func([]byte) error) error {
	var b proto.Buffer
	proto.Block{Info: proto.BlockInfo{BucketNum: -1}}.EncodeAware(&b, version)
	return put(b.Buf)
}

// put adds bytes of a block and sends what is full.
func (c *Conn) put(p []byte) error {
	for len(p) > 0 {
		n := min(len(p), frame-len(c.buffer.Buf))
		c.buffer.Buf = append(c.buffer.Buf, p[:n]...)
		if p = p[n:]; len(c.buffer.Buf) < frame {
			return nil
		}

		if err := c.pack(); err != nil {
			return err
		}
	}

	return nil
}

// pack sends what waits as one frame.
func (c *Conn) pack() error {
	if c.packer == nil || len(c.buffer.Buf) == 0 {
		return c.flush()
	}

	if err := c.packer.Compress(c.buffer.Buf); err != nil {
		return fmt.Errorf("compress block: %w", err)
	}

	c.buffer.Reset()
	_, err := c.conn.Write(c.packer.Data)
	return err
}

// answer reads packets until the header of an insert, or until its end.
func (c *Conn) answer(header bool) error {
	ended, err := c.packets("an insert", func() (bool, error) { return header, c.readHeader() })
	if ended && header {
		return errors.New("the server ends the insert before it began")
	}

	return err
}

// packets reads what a query is answered with until it has ended, or until data, which reads a
// block, says that this is enough.
func (c *Conn) packets(query string, data func() (enough bool, err error)) (ended bool, err error) {
	for {
		code, err := c.reader.ReadByte()
		if err != nil {
			return false, err
		}

		enough := false
		switch proto.ServerCode(code) {
		case proto.ServerCodeException:
			return false, c.exception()
		case proto.ServerCodeEndOfStream:
			return true, nil
		case proto.ServerCodeData:
			if _, err = c.reader.Str(); err != nil { // temporary table
				break
			}

			if c.packer != nil {
				c.reader.EnableCompression()
			}

			enough, err = data()
			c.reader.DisableCompression()
		case proto.ServerCodeProgress:
			err = new(proto.Progress).DecodeAware(c.reader, c.version)
		case proto.ServerCodeProfile:
			err = new(proto.Profile).DecodeAware(c.reader, c.version)
		case proto.ServerCodeTableColumns:
			err = new(proto.TableColumns).DecodeAware(c.reader, c.version)
		default:
			err = fmt.Errorf("packet %d is none that %s is answered with", code, query)
		}

		if err != nil || enough {
			return false, err
		}
	}
}

// readHeader reads a block without rows: the names and types of the table's columns, by which the
// insert's block is made.
func (c *Conn) readHeader() error {
	var head proto.Block
	if err := head.Info.Decode(c.reader); err != nil {
		return fmt.Errorf("read block: %w", err)
	}

	columns, err := c.reader.Int()
	if err != nil {
		return fmt.Errorf("read block: %w", err)
	}

	rows, err := c.reader.Int()
	if err != nil {
		return fmt.Errorf("read block: %w", err)
	}

	// Rows would mean that the two ends disagree on where in the protocol they are.
	if columns < 0 || columns > 4096 || rows != 0 {
		return fmt.Errorf("read block: %d columns of %d rows are no header", columns, rows)
	}

	c.Header = c.Header[:0]
	for range columns {
		var h ddl.Column
		if h.Name, err = c.reader.Str(); err == nil {
			h.Type, err = c.reader.Str()
		}

		if err != nil {
			return fmt.Errorf("read block: %w", err)
		}

		c.Header = append(c.Header, h)
	}

	return nil
}

// exception reads what the server refuses with, as clickhouse-go gives it.
func (c *Conn) exception() error {
	var e proto.Exception
	if err := e.DecodeAware(c.reader, c.version); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = io.EOF
		}

		return fmt.Errorf("read exception: %w", err)
	}

	return &clickhouse.Exception{Code: int32(e.Code), Name: e.Name, Message: e.Message}
}
