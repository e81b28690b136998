package clickhouse

import (
	"context"
	"fmt"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	ddl "github.com/laggard-dev/laggard/schemas/clickhouse"
	"github.com/laggard-dev/laggard/schemas/clickhouse/native"
)

// server is what is known of the other side, until the connections are dropped: a server that was
// replaced by a newer one, or has other tables, is asked anew.
type server struct {
	version  ddl.Version
	settings map[string]bool
	// engines of the database's tables.
	engines map[string]string
	// queue: inserts may wait in system.asynchronous_inserts.
	queue bool
}

// known asks the server once for its version, its settings and its tables.
func (s *Sink) known(ctx context.Context, conn clickhouse.Conn) (*server, error) {
	if s.server != nil {
		return s.server, nil
	}

	var text string
	if err := conn.QueryRow(ctx, "SELECT version()").Scan(&text); err != nil {
		return nil, err
	}

	version, err := ddl.ParseVersion(text)
	if err != nil {
		return nil, err
	}

	k := &server{version: version}
	if err := s.collects(ctx, conn, k); err != nil {
		return nil, err
	}

	if k.settings, err = names(ctx, conn, "SELECT name FROM system.settings"); err != nil {
		return nil, err
	}

	if k.engines, err = engines(ctx, conn, s.address.Database); err != nil {
		return nil, err
	}

	s.server = k
	return k, nil
}

// names are the one text of each row.
func names(ctx context.Context, conn clickhouse.Conn, query string) (map[string]bool, error) {
	all := map[string]bool{}
	err := native.EachRow(ctx, conn, query, func(rows driver.Rows) error {
		var name string
		err := rows.Scan(&name)
		all[name] = true
		return err
	})
	return all, err
}

// name is the name of the table that holds the rows here: on a cluster the local one.
func (k *server) name(table string) string {
	if k.engines[table+ddl.LocalSuffix] != "" {
		return table + ddl.LocalSuffix
	}

	return table
}

// queueTable lists the inserts that a server collects and has not stored yet.
const queueTable = "asynchronous_inserts"

// collects finds out whether the server may hold inserts in its queue: another writer's,
// too. Where it is asked to collect ours it must be one that tells those that are sent
// again, and must let us see the queue.
func (s *Sink) collects(ctx context.Context, conn clickhouse.Conn, k *server) error {
	able := k.version.TellsCollected()
	if able {
		found, err := names(ctx, conn, "SELECT name FROM system.tables WHERE database = 'system' AND name = '"+queueTable+"'")
		if err != nil {
			return err
		}

		k.queue = found[queueTable]
	}

	switch {
	case !s.o.AsyncInsert || k.queue:
		return nil
	case able:
		return refused(fmt.Errorf("--async-insert: user %s of store %s may not see system.%s", s.address.User, s.address, queueTable),
			"GRANT SELECT ON system."+queueTable+" to the user, or leave --async-insert out")
	}

	return refused(fmt.Errorf("--async-insert: server %s of store %s is ClickHouse %s, which would store what is sent again a second time", s.address.Host, s.address, k.version),
		"leave --async-insert out, or bring the server to 26.2 or newer")
}
