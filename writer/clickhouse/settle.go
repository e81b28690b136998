package clickhouse

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	ddl "github.com/laggard-dev/laggard/schemas/clickhouse"
	"github.com/laggard-dev/laggard/schemas/clickhouse/native"
	"github.com/laggard-dev/laggard/writer/ship"
)

// settle waits until the inserts that b conflicts with have left the server: its list of
// processes and, where it collects inserts, their queue and the flushes of that. A server
// gives up a client that is gone after its own receive timeout, 5 minutes by default.
func (s *Sink) settle(ctx context.Context, b *ship.Batch) error {
	wait := 20 * time.Millisecond
	var flushes map[string]bool
	for {
		var inserts, now map[string]bool
		err := s.call(ctx, "look for running inserts", func(ctx context.Context, conn clickhouse.Conn) error {
			k, err := s.known(ctx, conn)
			if err == nil {
				inserts, now, err = underWay(ctx, conn, k)
			}

			return err
		})
		if err != nil {
			return err
		}

		var running string
		running, flushes = holding(b, inserts, now, flushes)
		if running == "" {
			return nil
		}

		s.o.Logger.Debug("wait for an insert to end", "query_id", running)
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("wait for insert %s to end: %w", running, ctx.Err())
		case <-timer.C:
		}

		wait = min(2*wait, time.Second)
	}
}

// underWay lists what a server is doing, by query ids: inserts are laggard's, that run or wait in
// the queue, flushes are the server's own, of whatever waited in it. It looks at the queue
// first: what has left it since is in a flush.
//
// Caveat: a flush for which the server has no thread left is in neither for that long.
func underWay(ctx context.Context, conn clickhouse.Conn, k *server) (inserts, flushes map[string]bool, err error) {
	ours := "query_id LIKE " + ddl.Literal(ship.QueryPrefix+"%")
	if !k.queue {
		inserts, err = names(ctx, conn, "SELECT query_id FROM system.processes WHERE "+ours)
		return inserts, nil, err
	}

	if inserts, err = names(ctx, conn, "SELECT arrayJoin(`entries.query_id`) AS query_id FROM system.asynchronous_inserts WHERE "+ours); err != nil {
		return nil, nil, err
	}

	flushes = map[string]bool{}

	const flush = "query_kind = 'AsyncInsertFlush'"
	q := "SELECT query_id, toBool(" + flush + ") FROM system.processes WHERE " + ours + " OR " + flush
	return inserts, flushes, native.EachRow(ctx, conn, q, func(rows driver.Rows) error {
		var id string
		var flushed bool
		if err := rows.Scan(&id, &flushed); err != nil {
			return err
		}

		if flushed {
			flushes[id] = true
		} else {
			inserts[id] = true
		}

		return nil
	})
}

// holding returns what is to be waited for before it is known which rows of b are stored, ""
// for nothing: first the inserts that conflict with b, then the flushes that were there once
// no such insert was; later ones hold other rows. An insert may go from its process into the
// queue, and from there into a flush, which tells of nobody whose rows it holds. inserts and
// now are what underWay saw; before are the flushes that were left the last time, nil after an
// insert or at the first look.
func holding(b *ship.Batch, inserts, now, before map[string]bool) (id string, flushes map[string]bool) {
	for id := range inserts {
		if b.Conflicts(id) {
			return id, nil
		}
	}

	flushes = before
	if flushes == nil {
		flushes = maps.Clone(now)
	}

	maps.DeleteFunc(flushes, func(id string, _ bool) bool { return !now[id] })
	for id := range flushes {
		return id, flushes
	}

	return "", flushes
}
