package clickhouse

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	ddl "github.com/laggard-dev/laggard/schemas/clickhouse"
	"github.com/laggard-dev/laggard/schemas/clickhouse/native"
	"github.com/laggard-dev/laggard/writer/ship"
)

// Insert implements ship.Sink. Where it fails after rows have left, the error says that some may be
// stored, whatever the server said.
func (s *Sink) Insert(ctx context.Context, b *ship.Batch) error {
	what := fmt.Sprintf("insert %d rows into %s", b.Len(), b.Table)
	if err := ctx.Err(); err != nil { // the client may send a block all the same, and not wait for the answer
		return s.classify(what, err)
	}

	conn, err := s.connect(ctx)
	if err != nil {
		return err
	}

	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	sent, err := s.insertProven(ctx, conn, b, s.o.AsyncInsert)
	if err != nil && s.o.AsyncInsert && s.classify(what, err).Class == ship.Poison {
		// It may be a row of somebody else's that was collected with these.
		if err = s.settle(ctx, b); err == nil {
			sent, err = s.insertProven(ctx, conn, b, false)
		}
	}

	if err == nil {
		s.failures, s.inserted[b.Table] = 0, true
		return nil
	}

	e := s.failed(what, err)
	// Whatever the server said: once it had the rows it may have stored them (a
	// materialised view that fails fails after its table).
	e.Doubt = e.Doubt || sent
	return e
}

// insertProven inserts b, and where the answer to that may say nothing reads it back. A
// server that knows the block drops it, whatever has become of its rows; where a replica
// that has all there is lacks them they are gone, and the block is sent in a new epoch, as
// one that no server knows.
func (s *Sink) insertProven(ctx context.Context, conn clickhouse.Conn, b *ship.Batch, collected bool) (sent bool, err error) {
	k, err := s.known(ctx, conn)
	if err != nil {
		return false, err
	}

	for epoch := range maxEpochs {
		some, err := s.insert(ctx, conn, k, b, s.insertSettings(k, b, epoch, collected))
		sent = sent || some
		if err != nil || !s.readBack(k, b) {
			return sent, err
		}

		if there, err := s.proven(ctx, conn, k, b); there || err != nil {
			return sent, err
		}

		s.o.Logger.Warn("the server knows a block of which it has no row: sent as a new one", "table", b.Table, "id", b.ID, "rows", b.Len(), "epoch", epoch+1)
	}

	return sent, fmt.Errorf("the server acknowledged block %s of %s %d times and has no row of it", b.ID, b.Table, maxEpochs)
}

// insert sends b; sent tells whether rows may have left.
func (s *Sink) insert(ctx context.Context, conn clickhouse.Conn, k *server, b *ship.Batch, settings clickhouse.Settings) (sent bool, err error) {
	query := insertQuery(s.table(k, b.Table), b.Table)
	if s.address.HTTP {
		return s.insertHTTP(ctx, conn, b, query, settings)
	}

	l, err := s.begin(ctx, b, query, settings)
	if err != nil {
		return false, err
	}

	sent, err = s.send(ctx, l, b)
	if err != nil {
		return sent, errors.Join(err, l.Close())
	}

	if l.Spoilt {
		return true, l.Close()
	}

	s.link = l
	return true, nil
}

// begin opens the insert on the link of the insert before, or on a new one. A kept
// link may have died since (the server was started again): nothing of b has left
// yet, so it is tried once more.
func (s *Sink) begin(ctx context.Context, b *ship.Batch, query string, settings clickhouse.Settings) (*native.Conn, error) {
	l := s.link
	s.link = nil // until it has carried this insert out
	for {
		kept := l != nil
		if !kept {
			var err error
			if l, err = s.dial(ctx); err != nil {
				return nil, err
			}
		}

		err := l.Begin(ctx, query, b.Query, settings)
		if err == nil {
			return l, nil
		}

		err = errors.Join(err, l.Close())
		var exception *clickhouse.Exception
		if !kept || ctx.Err() != nil || errors.As(err, &exception) {
			return nil, err
		}

		l = nil
	}
}

// send makes the block and sends it; sent tells whether rows may have left. The block is made when
// the server has told its types: the same batch is other bytes on another server.
func (s *Sink) send(ctx context.Context, l *native.Conn, b *ship.Batch) (sent bool, err error) {
	table := s.blocks[b.Table]
	if table == nil {
		table = &block{}
		s.blocks[b.Table] = table
	}

	layout, base := b.Layout()
	if err := table.shape(b.Table, layout, l.Header); err != nil {
		return false, &ship.Error{Class: ship.Refused, Hint: "the table was not made by laggard, or a column's type was changed", Err: err}
	}

	table.fill(layout, base, b.Len(), b.Raws.Words)
	return true, l.Send(ctx, table.encode)
}

// insertHTTP is insert over the HTTP interface, which clickhouse-go speaks. Its columns take Go values
// one by one; who needs speed uses the native protocol.
func (s *Sink) insertHTTP(ctx context.Context, conn clickhouse.Conn, b *ship.Batch, query string, settings clickhouse.Settings) (sent bool, err error) {
	ctx = clickhouse.Context(ctx, clickhouse.WithQueryID(b.Query), clickhouse.WithSettings(settings))
	block, err := conn.PrepareBatch(ctx, query)
	if err != nil {
		return false, err
	}

	if err := fill(block, b); err != nil {
		_ = block.Abort()
		return false, &ship.Error{Class: ship.Refused, Hint: "the table was not made by laggard, or a column's type was changed", Err: err}
	}

	return true, block.Send()
}

// fill adds the rows of b to a block.
func fill(block driver.Batch, b *ship.Batch) error {
	for i, c := range ship.LayoutOf(b.Table).Columns {
		for n := range b.Len() {
			if err := block.Column(i).AppendRow(b.Value(c, n)); err != nil {
				return fmt.Errorf("fill column %s of %s: %w", c.Name, b.Table, err)
			}
		}
	}

	return nil
}

// insertQuery names the columns: without them an old server sends no header.
func insertQuery(quoted, table string) string {
	var names []string
	for _, c := range ship.LayoutOf(table).Columns {
		names = append(names, ddl.Quote(c.Name))
	}

	return "INSERT INTO " + quoted + " (" + strings.Join(names, ", ") + ") VALUES"
}

// insertSettings are those that this server has: an insert of its own or, where it is to be
// collected with others', one that is answered when its rows are in a part, and a token that
// tells a retry of the same rows. An old server tells it by the block's content.
func (s *Sink) insertSettings(k *server, b *ship.Batch, epoch int, collected bool) clickhouse.Settings {
	settings := clickhouse.Settings{}
	switch {
	case collected:
		settings["async_insert"], settings["wait_for_async_insert"] = 1, 1
		if k.settings["deduplicate_insert"] { // by default, unless a profile says otherwise
			settings["deduplicate_insert"] = "enable"
		}
	case k.settings["async_insert"]:
		settings["async_insert"] = 0
	}

	if k.settings["insert_deduplication_token"] {
		settings["insert_deduplication_token"] = fmt.Sprintf("%s-%d", b.ID, epoch)
	} else if epoch > 0 && k.settings["insert_deduplicate"] {
		settings["insert_deduplicate"] = 0
	}

	if k.settings["insert_distributed_sync"] {
		settings["insert_distributed_sync"] = 1
	}

	return settings
}
