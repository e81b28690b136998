package clickhouse

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/ClickHouse/clickhouse-go/v2"

	ddl "github.com/laggard-dev/laggard/schemas/clickhouse"
	"github.com/laggard-dev/laggard/writer/ship"
)

// Insert implements ship.Sink.
func (s *Sink) Insert(ctx context.Context, b *ship.Batch) error {
	conn, err := s.connect()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	sent, err := s.insert(ctx, conn, b)
	if err == nil {
		return nil
	}
	e := s.classify(fmt.Sprintf("insert %d rows into %s", b.Len(), b.Table), err)
	// Whatever the server said: once it had the rows it may have stored them (a
	// materialised view that fails fails after its table).
	e.Doubt = e.Doubt || sent
	if e.Class == ship.Refused {
		s.drop()
	}
	return e
}

// insert sends b; sent tells whether rows may have left.
func (s *Sink) insert(ctx context.Context, conn clickhouse.Conn, b *ship.Batch) (sent bool, err error) {
	k, err := s.known(ctx, conn)
	if err != nil {
		return false, err
	}
	query, settings := insertQuery(s.table(k, b.Table), b.Table), s.insertSettings(k, b)
	if s.address.HTTP {
		return s.insertHTTP(ctx, conn, b, query, settings)
	}
	l, err := s.begin(ctx, b, query, settings)
	if err != nil {
		return false, err
	}
	sent, err = s.send(ctx, l, b)
	if err != nil {
		return sent, errors.Join(endOf(ctx, err), l.close())
	}
	if l.spoilt {
		return true, l.close()
	}
	s.keepLink(l)
	return true, nil
}

// begin opens the insert on the link of the insert before, or on a new one. A kept
// link may have died since (the server was started again): nothing of b has left
// yet, so it is tried once more.
func (s *Sink) begin(ctx context.Context, b *ship.Batch, query string, settings []setting) (*link, error) {
	l := s.takeLink()
	for {
		var err error
		if l == nil {
			if l, err = s.dial(ctx); err != nil {
				return nil, err
			}
		}
		stop, err := l.watch(ctx)
		if err == nil {
			err = l.begin(query, b.Query, settings)
			stop()
		}
		if err == nil {
			return l, nil
		}
		err = errors.Join(endOf(ctx, err), l.close())
		var exception *clickhouse.Exception
		if !l.used || ctx.Err() != nil || errors.As(err, &exception) {
			return nil, err
		}
		l = nil
	}
}

// send makes the block and sends it; sent tells whether rows may have left.
func (s *Sink) send(ctx context.Context, l *link, b *ship.Batch) (sent bool, err error) {
	layout, base := b.Layout()
	if err := s.block.shape(b.Table, layout, l.header); err != nil {
		return false, &ship.Error{Class: ship.Refused, Hint: "the table was not made by laggard, or a column's type was changed", Err: err}
	}
	s.block.fill(layout, base, b.Len(), b.Raws.Words)
	stop, err := l.watch(ctx)
	if err != nil {
		return false, err
	}
	defer stop()
	return true, l.send(&s.block)
}

// insertHTTP is insert over the HTTP interface, which clickhouse-go speaks.
func (s *Sink) insertHTTP(ctx context.Context, conn clickhouse.Conn, b *ship.Batch, query string, settings []setting) (sent bool, err error) {
	values := clickhouse.Settings{}
	for _, one := range settings {
		if values[one.name] = one.number; one.text != "" {
			values[one.name] = one.text
		}
	}
	ctx = clickhouse.Context(ctx, clickhouse.WithQueryID(b.Query), clickhouse.WithSettings(values))
	block, err := conn.PrepareBatch(ctx, query)
	if err != nil {
		return false, err
	}
	layout, base := b.Layout()
	for i, c := range layout.Columns {
		if err := block.Column(i).Append(s.scratch.Gather(layout, c, base, b.Len())); err != nil {
			_ = block.Abort()
			return false, &ship.Error{
				Class: ship.Refused, Hint: "the table was not made by laggard, or a column's type was changed",
				Err: fmt.Errorf("fill column %s of %s: %w", c.Name, b.Table, err),
			}
		}
	}
	s.scratch.Release()
	return true, block.Send()
}

// insertQuery names the columns: without them an old server sends no header.
func insertQuery(quoted, table string) string {
	var names []string
	for _, c := range ship.LayoutOf(table).Columns {
		names = append(names, ddl.Quote(c.Name))
	}
	return "INSERT INTO " + quoted + " (" + strings.Join(names, ", ") + ") VALUES"
}

// insertSettings are those that this server has: no asynchronous insert (its
// answer would say nothing), and a token that tells a retry of the same rows.
func (s *Sink) insertSettings(k *server, b *ship.Batch) []setting {
	var settings []setting
	if k.settings["async_insert"] {
		settings = append(settings, setting{name: "async_insert"})
	}
	if k.settings["insert_deduplication_token"] {
		settings = append(settings, setting{name: "insert_deduplication_token", text: b.ID.String() + "-" + s.nonce})
	}
	if k.settings["insert_distributed_sync"] {
		settings = append(settings, setting{name: "insert_distributed_sync", number: 1})
	}
	return settings
}
