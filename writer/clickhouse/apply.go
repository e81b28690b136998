package clickhouse

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	ddl "github.com/laggard-dev/laggard/schemas/clickhouse"
	"github.com/laggard-dev/laggard/schemas/clickhouse/native"
)

// ddlSeconds is how long an ON CLUSTER statement waits for all hosts, deafSeconds how long
// those wait that follow one for which some did not come: the others take milliseconds.
const (
	ddlSeconds  = 20
	deafSeconds = 2
)

// Apply makes the tables on every host of Options.Cluster, or on this server without one,
// and adds the columns that are missing. It returns the hosts that were looked at. It is
// done when each of them has everything; else the error says which lacks what, or does not
// answer.
func (s *Sink) Apply(ctx context.Context) (hosts []string, err error) {
	if s.o.Cluster == "" {
		return s.address.Hosts[:1], s.Create(ctx)
	}

	first := s.at(s.address.Host)
	defer first.drop()
	var version ddl.Version
	err = first.call(ctx, "ask for the hosts of cluster "+s.o.Cluster, func(ctx context.Context, conn clickhouse.Conn) error {
		k, err := first.known(ctx, conn)
		if err != nil {
			return err
		}

		version = k.version
		shards, err := clusterHosts(ctx, conn, s.o.Cluster)
		for _, one := range shards {
			hosts = append(hosts, one.replicas...)
		}

		return err
	})
	if err != nil {
		return nil, err
	}

	o := ddl.Options{Database: s.address.Database, Cluster: s.o.Cluster, TTL: s.o.TTL}
	// What a host that is down did not do is told by the look at each of them.
	said := first.everywhere(ctx, ddl.Statements(version, o))
	var lacks []error
	for _, host := range hosts {
		lacks = append(lacks, s.at(host).complete(ctx, o))
	}

	if err := errors.Join(lacks...); err != nil {
		return hosts, fmt.Errorf("apply the schema to cluster %s: it is not done:\n%w", s.o.Cluster, errors.Join(err, said))
	}

	return hosts, nil
}

// at is a sink of the same store at another host, with the server's own database: the
// store's may not be there yet.
func (s *Sink) at(host string) *Sink {
	a := s.address
	a.Host, a.Hosts, a.Database, a.Cluster = host, []string{host}, "default", ""
	return newSink(a, s.o)
}

// clusterHosts lists the shards of a cluster as a server knows them.
func clusterHosts(ctx context.Context, conn clickhouse.Conn, cluster string) ([]shard, error) {
	var shards []shard
	var clusters []string
	err := native.EachRow(ctx, conn, "SELECT cluster, shard_num, host_name, port FROM system.clusters ORDER BY cluster, shard_num, replica_num", func(rows driver.Rows) error {
		var name, host string
		var number uint32
		var port uint16
		if err := rows.Scan(&name, &number, &host, &port); err != nil {
			return err
		}

		if clusters = append(clusters, name); name != cluster {
			return nil
		}

		if name = fmt.Sprintf("%s/%d", cluster, number); len(shards) == 0 || shards[len(shards)-1].name != name {
			shards = append(shards, shard{name: name})
		}

		last := &shards[len(shards)-1]
		last.replicas = append(last.replicas, net.JoinHostPort(host, strconv.Itoa(int(port))))
		return nil
	})
	if err == nil && len(shards) == 0 {
		err = refused(fmt.Errorf("the server knows no cluster %s; it knows %q", cluster, slices.Compact(clusters)),
			"correct the cluster's name, or remote_servers in the server's configuration")
	}

	return shards, err
}

// everywhere runs ON CLUSTER statements and returns what went wrong with them. A host that is down
// makes each of them wait: after the first the wait is short.
func (s *Sink) everywhere(ctx context.Context, statements []string) error {
	var said []error
	wait := ddlSeconds
	for _, q := range statements {
		err := s.call(ctx, "run "+strings.TrimSpace(strings.SplitN(q, "\n", 2)[0]), func(ctx context.Context, conn clickhouse.Conn) error {
			return conn.Exec(clickhouse.Context(ctx, clickhouse.WithSettings(clickhouse.Settings{"distributed_ddl_task_timeout": wait})), q)
		})
		if err == nil {
			continue
		}

		wait = deafSeconds
		if said = append(said, err); ctx.Err() != nil {
			break
		}
	}

	return errors.Join(said...)
}

// complete makes on one host what it lacks of the schema, and says what it lacks then: a table that
// is missing, or was made without the cluster, is for a person, columns are added here.
func (s *Sink) complete(ctx context.Context, o ddl.Options) error {
	defer s.drop()
	var have map[string]map[string]bool
	var engineOf map[string]string
	look := func() error {
		return s.call(ctx, "look at the tables", func(ctx context.Context, conn clickhouse.Conn) (err error) {
			if have, err = columns(ctx, conn, o.Database); err == nil {
				engineOf, err = engines(ctx, conn, o.Database)
			}

			return err
		})
	}
	if err := look(); err != nil {
		return fmt.Errorf("  host %s does not answer: %w", s.address.Host, err)
	}

	v, err := s.Version(ctx)
	if err != nil {
		return fmt.Errorf("  host %s does not answer: %w", s.address.Host, err)
	}

	var said error
	for _, name := range tableNames() {
		for _, q := range ddl.Missing(v, o, name, have[name]) {
			if engineOf[name] == "" {
				break
			}

			// A replica may have it from another one by now.
			said = errors.Join(said, s.call(ctx, "alter "+name, func(ctx context.Context, conn clickhouse.Conn) error { return conn.Exec(ctx, q) }))
		}
	}

	if err := look(); err != nil {
		return fmt.Errorf("  host %s does not answer: %w", s.address.Host, err)
	}

	if lacks := lacking(v, o, have, engineOf); len(lacks) > 0 {
		return errors.Join(fmt.Errorf("  host %s: %s", s.address.Host, strings.Join(lacks, ", ")), said)
	}

	return nil
}

// lacking says what is wrong with the tables of a host, by the columns and the engine that each has.
func lacking(v ddl.Version, o ddl.Options, have map[string]map[string]bool, engineOf map[string]string) (lacks []string) {
	for _, name := range tableNames() {
		engine, local := engineOf[name], strings.HasSuffix(name, ddl.LocalSuffix)
		switch missing := ddl.Missing(v, o, name, have[name]); {
		case engine == "":
			lacks = append(lacks, "no table "+name)
		case len(missing) > 0:
			lacks = append(lacks, fmt.Sprintf("table %s lacks %d columns", name, len(missing)))
		case local && !strings.HasPrefix(engine, "Replicated"), !local && !strings.HasPrefix(engine, "Distributed"):
			lacks = append(lacks, fmt.Sprintf("table %s is %s", name, engine))
		}
	}

	return lacks
}

// tableNames are the local and the Distributed tables.
func tableNames() []string {
	var all []string
	for _, table := range ddl.Tables {
		all = append(all, table+ddl.LocalSuffix, table)
	}

	return all
}

// columns returns the columns of each table in a database.
func columns(ctx context.Context, conn clickhouse.Conn, database string) (map[string]map[string]bool, error) {
	all := map[string]map[string]bool{}
	err := native.EachRow(ctx, conn, "SELECT table, name FROM system.columns WHERE database = "+ddl.Literal(database), func(rows driver.Rows) error {
		var table, name string
		err := rows.Scan(&table, &name)
		if all[table] == nil {
			all[table] = map[string]bool{}
		}

		all[table][name] = true
		return err
	})
	return all, err
}

// engines returns the engine of each table in a database.
func engines(ctx context.Context, conn clickhouse.Conn, database string) (map[string]string, error) {
	return pairs(ctx, conn, "SELECT name, engine FROM system.tables WHERE database = "+ddl.Literal(database))
}

// pairs reads rows of a name and a value.
func pairs(ctx context.Context, conn clickhouse.Conn, query string) (map[string]string, error) {
	all := map[string]string{}
	err := native.EachRow(ctx, conn, query, func(rows driver.Rows) error {
		var name, value string
		err := rows.Scan(&name, &value)
		all[name] = value
		return err
	})
	return all, err
}
