package clickhouse

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/ClickHouse/clickhouse-go/v2"

	ddl "laggard/schemas/clickhouse"
	"laggard/writer/ship"
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
	ctx = clickhouse.Context(ctx, clickhouse.WithQueryID(b.Query), clickhouse.WithSettings(s.insertSettings(k, b)))
	block, err := conn.PrepareBatch(ctx, insertQuery(s.table(k, b.Table), b.Table))
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
	return "INSERT INTO " + quoted + " (" + strings.Join(names, ", ") + ")"
}

// insertSettings are those that this server has: no asynchronous insert (its
// answer would say nothing), and a token that tells a retry of the same rows.
func (s *Sink) insertSettings(k *server, b *ship.Batch) clickhouse.Settings {
	settings := clickhouse.Settings{}
	if k.settings["async_insert"] {
		settings["async_insert"] = 0
	}
	if k.settings["insert_deduplication_token"] {
		settings["insert_deduplication_token"] = cmp.Or(b.Token, b.ID.String()+"-"+s.nonce)
	}
	if k.settings["insert_distributed_sync"] {
		settings["insert_distributed_sync"] = 1
	}
	return settings
}
