package clickhouse

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"

	ddl "github.com/laggard-dev/laggard/schemas/clickhouse"
	"github.com/laggard-dev/laggard/writer/ship"
)

const (
	// changeAfter failures in a row the next replica is spoken to. The shipper backs off
	// between them.
	changeAfter = 3
	// syncPatience is how long a replica has to fetch what it lacks before it is looked
	// at: fetches take milliseconds, unless the one that has the rows is down.
	syncPatience = 10 * time.Second
	syncEvery    = 100 * time.Millisecond
	// maxEpochs bounds the inserts of one block that Keeper takes for known: each stands
	// for one time that somebody deleted its rows.
	maxEpochs = 8
)

// unwellCodes are those with which a server says that it can't work, and another replica may: a
// socket timed out or the network is gone (209, 210), it has no session in Keeper and is read-only (225, 242),
// does not know what became of an insert (319), or Keeper itself failed (999).
var unwellCodes = map[int32]bool{209: true, 210: true, 225: true, 242: true, 319: true, 999: true}

// failed says what an error of the replica that is spoken to means. It counts those of one that is
// down, and changes it when there have been enough. A refusal drops the connections: a new password,
// or other rights, are seen by new ones only.
func (s *Sink) failed(what string, err error) *ship.Error {
	e := s.classify(what, err) // before the address changes, which it names
	var exception *clickhouse.Exception
	var failure net.Error
	if down := errors.As(err, &failure) || !errors.As(err, &exception) || unwellCodes[exception.Code]; !down {
		s.failures = 0
	} else if s.failures++; s.failures >= changeAfter {
		s.change(err)
	}

	if e.Class == ship.Refused {
		s.drop()
	}

	return e
}

// change goes on with the next replica, where there is one.
func (s *Sink) change(cause error) {
	if len(s.address.Hosts) < 2 {
		return
	}

	old := s.address.Host
	s.failures = 0
	s.drop()
	at := slices.Index(s.address.Hosts, old)
	s.address.Host = s.address.Hosts[(at+1)%len(s.address.Hosts)]
	s.stranger()
	s.o.Logger.Warn("replica changed: the next is asked what it has", "from", old, "to", s.address.Host, "err", cause)
}

// stranger notes that nothing is known of what the replica has: it may lack what the one before
// acknowledged, and may drop as known what it never had.
func (s *Sink) stranger() {
	for _, table := range ddl.Tables {
		s.unsynced[table], s.unproven[table] = true, true
	}
}

// catchUp waits until the replica has fetched what others had inserted by now, and reports
// whether it has. It is SYSTEM SYNC REPLICA, which has no deadline on old servers, and waits
// for merges and for later inserts, too.
func (s *Sink) catchUp(ctx context.Context, conn clickhouse.Conn, k *server, table string) (bool, error) {
	if !s.unsynced[table] || !k.replicated(table) {
		return true, nil
	}

	q := "SELECT toInt64(toUnixTimestamp(now())), log_max_index, log_pointer, toUInt64(inserts_in_queue), toInt64(toUnixTimestamp(inserts_oldest_time)), zookeeper_path FROM system.replicas WHERE database = " +
		ddl.Literal(s.address.Database) + " AND table = " + ddl.Literal(k.name(table))
	var began, at, oldest int64
	var path string
	var newest, index, next, waiting uint64
	deadline, tick := time.After(syncPatience), time.NewTicker(syncEvery)
	defer tick.Stop()
	for {
		if err := conn.QueryRow(ctx, q).Scan(&at, &index, &next, &waiting, &oldest, &path); err != nil {
			return false, err
		}

		if began == 0 {
			began, newest = at, index
		}

		if next == 0 && newest == 0 { // one entry that was not read, or none at all
			log, err := names(ctx, conn, "SELECT name FROM system.zookeeper WHERE path = "+ddl.Literal(path+"/log"))
			if err != nil || len(log) == 0 {
				return err == nil, err
			}
		}

		if next > newest && (waiting == 0 || oldest > began) {
			s.unsynced[table] = false
			return true, nil
		}

		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-deadline:
			return false, nil
		case <-tick.C:
		}
	}
}

// errBehind says that rows may lie in another replica, from which this one can't fetch them.
func (s *Sink) errBehind(table string) error {
	return &ship.Error{Class: ship.Transient, Hint: "start the replica that has them, or let this one fetch (SYSTEM START FETCHES)",
		Err: fmt.Errorf("%s of store %s: replica %s lacks rows that were inserted into another one", table, s.address, s.address.Host)}
}

// readBack reports whether an insert of b that was acknowledged has to be looked at. Where
// the server drops blocks that it knows, the answer to one says nothing of its rows: they
// may be in another replica, in none any more, or deleted.
func (s *Sink) readBack(k *server, b *ship.Batch) bool {
	drops := k.replicated(b.Table) || k.settings["insert_deduplication_token"]
	return drops && (b.Unplaced || b.Sent || s.unproven[b.Table])
}

// proven looks for the rows of b where they were inserted: true, all of them are there; false, none,
// and nobody can have them. Some of them, or a replica that could not catch up, are an error: what
// is missing may still come.
func (s *Sink) proven(ctx context.Context, conn clickhouse.Conn, k *server, b *ship.Batch) (bool, error) {
	there := 0
	look := func() error {
		stored := make([]bool, b.Len())
		for _, l := range lookups(b) {
			if err := l.run(ctx, conn, s.table(k, b.Table), stored); err != nil {
				return err
			}
		}

		there = 0
		for _, yes := range stored {
			if yes {
				there++
			}
		}

		return nil
	}
	if err := look(); err != nil {
		return false, err
	}

	// What is missing here may still lie in another replica: a second look, when this one has caught up.
	if there < b.Len() {
		s.unsynced[b.Table] = true
		synced, err := s.catchUp(ctx, conn, k, b.Table)
		if err != nil {
			return false, err
		}

		if err := look(); err != nil {
			return false, err
		}

		if there < b.Len() && (!synced || there > 0) {
			return false, s.errBehind(b.Table)
		}
	}

	if there == b.Len() {
		s.unproven[b.Table] = false
	}

	return there == b.Len(), nil
}

// replicated reports whether the table is a replicated one on this server.
func (k *server) replicated(table string) bool {
	return strings.HasPrefix(k.engines[k.name(table)], "Replicated")
}

// place is how far the log of a replicated table had come. All that was inserted before is in a
// replica that has read the log beyond index and has no older insert to fetch.
type place struct {
	path    string // in Keeper
	replica string
	index   uint64
	at      int64 // the server's clock, unix seconds
}

// Mark implements ship.Remote.
func (s *Sink) Mark(ctx context.Context) (any, error) {
	if len(s.inserted) == 0 {
		return nil, nil
	}

	var marks []place
	err := s.call(ctx, "ask for the log of replicas", func(ctx context.Context, conn clickhouse.Conn) error {
		k, err := s.known(ctx, conn)
		if err != nil {
			return err
		}

		marks = nil
		for table := range s.inserted {
			if !k.replicated(table) {
				continue
			}

			var p place
			var replicas uint64
			q := "SELECT zookeeper_path, replica_name, log_max_index, toUInt64(total_replicas), toInt64(toUnixTimestamp(now())) FROM system.replicas WHERE database = " +
				ddl.Literal(s.address.Database) + " AND table = " + ddl.Literal(k.name(table))
			if err := conn.QueryRow(ctx, q).Scan(&p.path, &p.replica, &p.index, &replicas, &p.at); err != nil {
				return err
			}

			if replicas > 1 { // else there is nobody to fetch it
				marks = append(marks, p)
			}
		}

		return nil
	})
	if err != nil {
		return nil, err
	}

	clear(s.inserted)
	if len(marks) == 0 {
		return nil, nil
	}

	return marks, nil
}

// Copied implements ship.Remote.
func (s *Sink) Copied(ctx context.Context, mark any) (bool, error) {
	copied := true
	err := s.call(ctx, "ask for copies", func(ctx context.Context, conn clickhouse.Conn) error {
		for _, p := range mark.([]place) {
			other, err := p.copied(ctx, conn)
			if err != nil || !other {
				copied = false
				return err
			}
		}

		return nil
	})
	return copied && err == nil, err
}

// copied reports whether another replica has all that was inserted before the mark.
func (p place) copied(ctx context.Context, conn clickhouse.Conn) (bool, error) {
	replicas, err := names(ctx, conn, "SELECT name FROM system.zookeeper WHERE path = "+ddl.Literal(p.path+"/replicas"))
	if err != nil {
		return false, err
	}

	for name := range replicas {
		if name == p.replica {
			continue
		}

		state, err := pairs(ctx, conn, "SELECT name, value FROM system.zookeeper WHERE path = "+ddl.Literal(p.path+"/replicas/"+name))
		if err != nil {
			return false, err
		}

		pointer, err := strconv.ParseInt(strings.TrimSpace(state["log_pointer"]), 10, 64)
		oldest, _ := strconv.ParseInt(strings.TrimSpace(state["min_unprocessed_insert_time"]), 10, 64) // 0 none waits
		if err == nil && pointer > int64(p.index) && (oldest == 0 || oldest > p.at) {
			return true, nil
		}
	}

	return false, nil
}
