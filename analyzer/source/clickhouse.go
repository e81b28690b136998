package source

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	ddl "github.com/laggard-dev/laggard/schemas/clickhouse"
	"github.com/laggard-dev/laggard/schemas/clickhouse/native"
	"github.com/laggard-dev/laggard/schemas/row"
)

// database is a ClickHouse database with laggard's tables.
type database struct {
	at   ddl.Address
	conn driver.Conn
	rows uint64 // about how many rows one query brings
	// timed: the tables have a column ts, which prunes partitions; nil not asked yet.
	timed *bool
}

// readTimeout bounds one query.
const readTimeout = 5 * time.Minute

// openClickHouse connects to the first server of the name that answers. The error has that of each.
func openClickHouse(ctx context.Context, spec string, o Options) (*database, error) {
	at, err := ddl.ParseAddress(spec)
	if err != nil {
		return nil, err
	}

	// One replica that answers is enough.
	var failed []error
	for _, host := range at.Hosts {
		at.Host = host
		d, err := connect(ctx, at, o)
		if err == nil {
			return d, nil
		}

		failed = append(failed, err)
	}

	return nil, errors.Join(failed...)
}

// connect opens the database on one server.
func connect(ctx context.Context, at ddl.Address, o Options) (*database, error) {
	options, err := native.Options(at, readTimeout)
	if err != nil {
		return nil, err
	}

	// One connection a worker, and one for whoever asks what there is while they read.
	options.MaxOpenConns, options.MaxIdleConns = o.workers()+1, o.workers()+1
	conn, err := clickhouse.Open(options)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", at, err)
	}

	d := &database{at: at, conn: conn, rows: rangeRows}
	if err := conn.Ping(ctx); err != nil {
		d.at.Hosts = []string{at.Host} // the one that the error is of

		return nil, errors.Join(d.explain("connect to", err), conn.Close())
	}

	return d, nil
}

// name and Close implement tables.
func (d *database) name() string { return d.at.String() }
func (d *database) Close() error { return d.conn.Close() }

// Codes of ClickHouse's errors that a person can do something about, by the numbers of its
// src/Common/ErrorCodes.cpp, which are never given anew.
const (
	codeNoColumn   = 47
	codeNoTable    = 60
	codeNoDatabase = 81
	codeUser       = 192
	codePassword   = 193
	codeNoPassword = 194
	codeNoShard    = 279
	codeDenied     = 497
	codeAuth       = 516
)

// explain names the object and the cause of err, and what to do about it.
func (d *database) explain(verb string, err error) error {
	var ex *clickhouse.Exception
	if errors.As(err, &ex) {
		switch ex.Code {
		case codeNoDatabase:
			return fmt.Errorf("%s %s: no database %s on that server: check the name, or make it with `laggard schema apply`", verb, d.at, d.at.Database)
		case codeNoTable:
			return fmt.Errorf("%s %s: a table of laggard's is missing (%s): nothing has been stored there yet; `laggard ingest SOURCE --to STORE`, `laggard agent --store STORE` or `laggard schema apply` make the tables", verb, d.at, firstLine(ex.Message))
		case codeNoColumn:
			return fmt.Errorf("%s %s: the tables are older than this laggard (%s): `laggard schema apply` adds what is missing", verb, d.at, firstLine(ex.Message))
		case codeUser, codePassword, codeNoPassword, codeAuth:
			return fmt.Errorf("%s %s: the server refused user %s: set %s, or ?password_file=FILE in the name of the store", verb, d.at, d.at.User, ddl.PasswordEnvironment)
		case codeNoShard:
			return fmt.Errorf("%s %s: a shard of the cluster does not answer (%s), and without its rows the job would be incomplete: start a replica of it", verb, d.at, strings.Join(tried(ex.Message), ", "))
		case codeDenied:
			return fmt.Errorf("%s %s: user %s may not read it (%s): grant SELECT on the database", verb, d.at, d.at.User, firstLine(ex.Message))
		}

		return fmt.Errorf("%s %s: %w", verb, d.at, err)
	}

	var op *net.OpError
	if errors.As(err, &op) {
		return fmt.Errorf("%s %s: %w: is the server up, and is this its native port (9000, with TLS 9440 and ?secure=true)?", verb, d.at, op.Err)
	}

	return fmt.Errorf("%s %s: %w", verb, d.at, err)
}

// hostPort is how a server names one that it could not reach.
var hostPort = regexp.MustCompile(`\(([^()\s,]+:\d+)`)

// tried returns the servers that a message names, each once.
func tried(message string) []string {
	var all []string
	for _, m := range hostPort.FindAllStringSubmatch(message, -1) {
		if !slices.Contains(all, m[1]) {
			all = append(all, m[1])
		}
	}

	return all
}

// firstLine cuts what a server says to what a person reads: behind it come stack and query.
func firstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	const most = 200
	if len(s) > most {
		s = s[:most] + "…"
	}

	return s
}

// Jobs implements tables. It asks the small table of ranks, and the table of steps only where
// that is empty.
func (d *database) Jobs(ctx context.Context) (jobs []string, err error) {
	for _, table := range []string{row.RanksTable, row.StepsTable} {
		err = query(ctx, d, "SELECT DISTINCT job FROM "+table+" ORDER BY job", func(r driver.Rows) error {
			var job string
			if err := r.Scan(&job); err != nil {
				return err
			}

			jobs = append(jobs, job)
			return nil
		})
		if err != nil || len(jobs) > 0 {
			break
		}
	}

	return jobs, err
}

// query runs q and calls each for every row.
func query(ctx context.Context, d *database, q string, each func(driver.Rows) error) error {
	if err := native.EachRow(ctx, d.conn, q, each); err != nil {
		return d.explain("read", err)
	}

	return nil
}

// scan reads the one row that q is answered with.
func (d *database) scan(ctx context.Context, q string, into ...any) error {
	if err := d.conn.QueryRow(ctx, q).Scan(into...); err != nil {
		return d.explain("read", err)
	}

	return nil
}

// Redact returns the name of a source without what may be secret in it: the
// password of a URL and its parameters.
func Redact(spec string) string {
	if !strings.Contains(spec, "://") {
		return spec
	}

	u, err := url.Parse(spec)
	if err != nil {
		scheme, _, _ := strings.Cut(spec, "://")
		return scheme + "://…"
	}

	clean := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}
	if name := u.User.Username(); name != "" {
		clean.User = url.User(name)
	}

	return clean.String()
}
