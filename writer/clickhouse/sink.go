// Package clickhouse is the sink that stores batches in ClickHouse over the
// native protocol, on any server from 18.16 to the newest.
//
// Invariant: one Insert is one INSERT of one native block of one partition with
// the columns named, so the server makes one part of it or none. Its query_id
// tells job, table and ranks, so that anybody can see in system.processes whether
// an insert of his rows is still under way; Stored waits for that before it looks.
//
// Several hosts in the address are the replicas of one shard: one is spoken to until it
// has failed a few times in a row. The next is given time to fetch what it lacks, is asked
// what it has, and gets again what it lacks then, under the same token or as the same
// block, which Keeper knows. An insert that was acknowledged counts there once its rows
// were read back.
//
// Caveat: each host must lead to one server, not to a balancer before several:
// "is it there?" must be asked where it was put. A setting is sent only where
// system.settings has it, because an old server refuses those that it does not know.
package clickhouse

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"

	ddl "github.com/laggard-dev/laggard/schemas/clickhouse"
	"github.com/laggard-dev/laggard/schemas/clickhouse/native"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/ship"
)

// defaultTimeout bounds one call: a server that accepted and then says
// nothing is given up after it, and what it did is looked up.
const defaultTimeout = time.Minute

// Options configure a Sink. Zero values mean the defaults.
type Options struct {
	Timeout time.Duration  // of one call; 0 is a minute
	TTL     map[string]int // days to keep, by table; see schemas/clickhouse
	Cluster string         // Apply makes the tables on this cluster
	// AsyncInsert lets the server collect the inserts of many agents into few parts. A server
	// before 26.2 refuses it: it would not tell an insert that is sent again.
	AsyncInsert bool
	// Job and Node tell who writes: by them the shard is chosen where the address names a
	// cluster. "" is not known.
	Job, Node string
	Logger    *slog.Logger // nil is silent
}

// Sink is a ClickHouse database. Its methods are called by one goroutine.
type Sink struct {
	address ddl.Address // Host is the replica that is spoken to
	o       Options
	// failures of that replica in a row. unsynced are the tables of which it may lack what
	// other replicas have, unproven those of which nothing that was inserted was read back.
	failures           int
	unsynced, unproven map[string]bool
	inserted           map[string]bool // tables, since the last Mark
	// name and entry are those of the store as it was given; tries how often an entry was
	// asked for the shards.
	name   string
	entry  []string
	tries  int
	shards []shard // of the cluster, nil until asked
	shard  string  // that is written, or was before; "" unknown
	chosen bool

	conn clickhouse.Conn // nil until the first call and after a refused one
	// What the server told, nil until asked.
	server *server
	// link is what the last insert went over, nil when it failed, and while the next one is
	// under way.
	link *native.Conn
	// blocks turn rows into columns, by table.
	blocks map[string]*block
}

// Open reads the store URL and the files that it names. It connects to nothing:
// the first call does, and every one after a failure does again, so a server that
// is down now is no reason not to start.
func Open(store string, o Options) (*Sink, error) {
	address, err := ddl.ParseAddress(store)
	if err != nil {
		return nil, err
	}

	o.Timeout = cmp.Or(max(o.Timeout, 0), defaultTimeout)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))

	if _, err := address.Password(); err != nil {
		return nil, err
	}

	if _, err := address.TLS(); err != nil {
		return nil, fmt.Errorf("open store %s: %w", address, err)
	}

	s := newSink(address, o)
	s.stranger()
	return s, nil
}

// newSink is a sink at one address, which knows nothing of its server yet.
func newSink(a ddl.Address, o Options) *Sink {
	return &Sink{address: a, name: a.String(), entry: a.Hosts, o: o, unsynced: map[string]bool{}, unproven: map[string]bool{}, inserted: map[string]bool{}, blocks: map[string]*block{}}
}

// Name implements ship.Sink.
func (s *Sink) Name() string { return s.name }

// connect returns the connection pool. Password and certificates are read anew
// whenever one is made.
func (s *Sink) connect(ctx context.Context) (clickhouse.Conn, error) {
	if err := s.choose(ctx); err != nil {
		return nil, err
	}

	if s.conn != nil {
		return s.conn, nil
	}

	o, err := s.options()
	if err != nil {
		return nil, err
	}

	conn, err := clickhouse.Open(o)
	if err != nil {
		return nil, fmt.Errorf("open store %s: %w", s.address, err)
	}

	s.conn = conn
	return conn, nil
}

// options are those of both kinds of connections, with the password and the certificates as
// they are now.
func (s *Sink) options() (*clickhouse.Options, error) {
	o, err := native.Options(s.address, s.o.Timeout)
	if err != nil {
		return nil, refused(err, "")
	}

	// One for an insert, one to look while a dead one is still being noticed.
	o.MaxOpenConns, o.MaxIdleConns = 2, 1
	o.BlockBufferSize = 2
	// A block goes out in pieces while its next columns are still being encoded.
	o.MaxCompressionBuffer = 1 << 20
	return o, nil
}

// dial opens a link.
func (s *Sink) dial(ctx context.Context) (*native.Conn, error) {
	o, err := s.options()
	if err != nil {
		return nil, err
	}

	return native.Dial(ctx, o)
}

// drop closes the connections and forgets what the server told: what comes next starts
// anew, with the password and the certificates as they are then.
func (s *Sink) drop() {
	s.Rest()
	s.server = nil
}

// Rest implements ship.Remote.
func (s *Sink) Rest() {
	if s.conn != nil {
		_ = s.conn.Close() // nothing is under way on it that anybody waits for
		s.conn = nil
	}

	if s.link != nil {
		_ = s.link.Close()
		s.link = nil
	}
}

// Close implements ship.Sink.
func (s *Sink) Close() error {
	s.drop()
	return nil
}

// Ping implements ship.Sink. Where one replica can't be reached the others are tried: one
// that answers is enough to begin with.
func (s *Sink) Ping(ctx context.Context) error {
	var err error
	for range len(s.address.Hosts) {
		asked := s.address.Host
		err = s.call(ctx, "ping", func(ctx context.Context, conn clickhouse.Conn) error {
			return conn.Ping(ctx)
		})
		var e *ship.Error
		if err == nil || ctx.Err() != nil || errors.As(err, &e) && e.Class == ship.Refused {
			return err
		}

		if s.address.Host == asked { // enough failures have changed it by then
			s.change(err)
		}
	}

	return err
}

// call runs f with a connection and a time limit, and says what its error means.
func (s *Sink) call(ctx context.Context, what string, f func(context.Context, clickhouse.Conn) error) error {
	conn, err := s.connect(ctx)
	if err != nil {
		return err
	}

	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	if err := f(ctx, conn); err != nil {
		return s.failed(what, err)
	}

	s.failures = 0
	return nil
}

// table is that name, quoted.
func (s *Sink) table(k *server, table string) string { return s.quoted(k.name(table)) }

// quoted is the name of a table with its database.
func (s *Sink) quoted(table string) string {
	return ddl.Quote(s.address.Database) + "." + ddl.Quote(table)
}

// Version asks the server for its version.
func (s *Sink) Version(ctx context.Context) (ddl.Version, error) {
	var v ddl.Version
	err := s.call(ctx, "ask version", func(ctx context.Context, conn clickhouse.Conn) error {
		k, err := s.known(ctx, conn)
		if err == nil {
			v = k.version
		}

		return err
	})
	return v, err
}

// Create implements ship.Sink: it makes the tables that are missing, and the
// columns that a newer laggard has added.
func (s *Sink) Create(ctx context.Context) error {
	return s.call(ctx, "create tables", func(ctx context.Context, conn clickhouse.Conn) error {
		s.server = nil
		k, err := s.known(ctx, conn)
		if err != nil {
			return err
		}

		if k.name(ddl.Tables[0]) != ddl.Tables[0] { // made for a cluster by `laggard schema apply`
			return nil
		}

		o := ddl.Options{Database: s.address.Database, TTL: s.o.TTL}
		have, err := columns(ctx, conn, s.address.Database)
		if err != nil {
			return err
		}

		// A fleet that starts asks once each, and makes nothing.
		var missing []string
		for _, table := range ddl.Tables {
			if k.engines[table] == "" {
				missing = ddl.Statements(k.version, o)
				break
			}
		}

		for _, table := range ddl.Tables {
			if k.engines[table] != "" {
				missing = append(missing, ddl.Missing(k.version, o, table, have[table])...)
			}
		}

		for _, q := range missing {
			s.server = nil // the tables are others then
			if err := conn.Exec(ctx, q); err != nil {
				return err
			}
		}

		return nil
	})
}

// Probe implements ship.Sink: an INSERT of no rows is refused where one of rows is.
func (s *Sink) Probe(ctx context.Context) error {
	return s.call(ctx, "insert nothing", func(ctx context.Context, conn clickhouse.Conn) error {
		k, err := s.known(ctx, conn)
		if err != nil {
			return err
		}

		for _, table := range ddl.Tables {
			if table == row.VerdictsTable { // the analyzer's
				continue
			}

			name := s.table(k, table)
			if err := conn.Exec(ctx, "INSERT INTO "+name+" (`job`) SELECT `job` FROM "+name+" WHERE 0"); err != nil {
				return err
			}
		}

		return nil
	})
}
