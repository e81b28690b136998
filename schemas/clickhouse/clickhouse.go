// Package clickhouse is laggard's tables as ClickHouse DDL: SQL files with the
// few places filled in that differ between servers.
//
// There are two sets. `current` (ClickHouse 22.3 and newer) has codecs,
// LowCardinality, TTL, and a materialised `ts DateTime64(9)` that carries the
// partition (its day) and a minmax index, so that a dashboard's time filter
// reads only the days it asks for. `plain` (older servers, such as 18.16) has
// the same columns as integers and strings and is partitioned by the same day.
//
// Invariant: both sets have the columns of schemas/row, in its order, with its
// types; a test holds them to it. Nothing is ever dropped or retyped: a newer
// laggard adds columns (Missing).
//
// Caveat: `group` and `table` are words of SQL; Quote every name.
package clickhouse

import (
	"embed"
	"fmt"
	"strings"
	"text/template"

	"github.com/laggard-dev/laggard/schemas/row"
)

//go:embed current/*.sql plain/*.sql
var files embed.FS

// DayNs is the length of a partition in ns of the table's start column.
const DayNs = 86_400_000_000_000

// Tables are laggard's tables, in the order in which they are created.
var Tables = []string{
	row.RanksTable, row.StepsTable, row.CommunicationsTable,
	row.RecordsTable, row.VerdictsTable, row.LedgerTable,
}

// Version is the version that a server reports.
type Version struct{ Major, Minor, Patch int }

// firstCurrent is the first long-term release that has everything that the
// current DDL uses (the youngest part is the deduplication window of a table
// that is not replicated).
var firstCurrent = Version{Major: 22, Minor: 3}

// firstPatient is the first release that refuses an insert from 3,000 parts of a partition
// on, and slows it down from 1,000 on. Older ones refuse from 300 on: a fleet that starts
// together has more, for as long as its merges take.
var firstPatient = Version{Major: 23, Minor: 6}

// firstCollecting is the first release that tells asynchronous inserts that are sent again,
// by their token and by default, as it tells the others.
var firstCollecting = Version{Major: 26, Minor: 2}

// Latest stands for a server that is not asked: the newest DDL is meant.
var Latest = Version{Major: 1 << 20}

// ParseVersion reads "18.16.1" or "26.7.1.3".
func ParseVersion(s string) (Version, error) {
	var v Version
	if n, err := fmt.Sscanf(s, "%d.%d.%d", &v.Major, &v.Minor, &v.Patch); n < 2 {
		return v, fmt.Errorf("parse server version %q: %w", s, err)
	}

	return v, nil
}

// current reports whether the server understands the current DDL.
func (v Version) current() bool { return v.since(firstCurrent) }

// TellsCollected reports whether the server tells an asynchronous insert that is sent again.
func (v Version) TellsCollected() bool { return v.since(firstCollecting) }

// since reports whether v is of release first or a later one.
func (v Version) since(first Version) bool {
	return v.Major > first.Major || v.Major == first.Major && v.Minor >= first.Minor
}

// String returns "18.16.1".
func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Patch) }

// Options are the choices that the DDL leaves open.
type Options struct {
	// Database holds the tables; "" is the connection's database, and on a cluster
	// defaultDatabase: the paths in ZooKeeper have it in them.
	Database string
	// Cluster makes the tables Replicated* on this cluster under the name
	// <table>_local, and puts a Distributed table of the plain name before each.
	// Agents write the local table of their shard, readers read the Distributed.
	Cluster string
	// TTL is, by table, the number of days after which rows go; 0 keeps them.
	// Servers without TTL ignore it.
	TTL map[string]int
}

// defaultDatabase is the database on a cluster when none is named.
const defaultDatabase = "laggard"

// LocalSuffix is the suffix of a cluster's local tables.
const LocalSuffix = "_local"

// Statements returns the DDL that creates every table on a server of version v,
// each statement without its semicolon, and on a cluster their database. All are IF NOT
// EXISTS.
func Statements(v Version, o Options) []string {
	var all []string
	if o.Cluster != "" {
		o = o.named()
		all = append(all, "CREATE DATABASE IF NOT EXISTS "+Quote(o.Database)+ddl{o: o}.OnCluster())
	}

	for _, table := range Tables {
		all = append(all, statements(v, o, table)...)
	}

	return all
}

// named is o with the database that it means.
func (o Options) named() Options {
	if o.Cluster != "" && o.Database == "" {
		o.Database = defaultDatabase
	}

	return o
}

// statements makes one table: on a cluster the local one of each host first, then the Distributed one
// before them, which takes its columns from that.
func statements(v Version, o Options, table string) []string {
	d := ddl{o: o, version: v}
	create := render(source(v, table), d)
	if o.Cluster == "" {
		return []string{create}
	}

	return []string{create, fmt.Sprintf(
		"CREATE TABLE IF NOT EXISTS %s%s AS %s\nENGINE = %s",
		d.name(table), d.OnCluster(), d.Table(table), d.distributed(table))}
}

// distributed is the engine of the table before a cluster's local ones. Its key is rand():
// an agent writes one shard, chosen by job and node, which no expression of a row's columns
// tells; with one, optimize_skip_unused_shards would look for rows where they are not.
func (d ddl) distributed(table string) string {
	return fmt.Sprintf("Distributed(%s, %s, %s, rand())", Literal(d.o.Cluster), Literal(d.o.Database), Literal(table+LocalSuffix))
}

// Missing returns the statements that add to a table the columns of this version that it
// lacks, on the server that they are run on: name is the table's (on a cluster with or
// without LocalSuffix), have the names of the columns that it has.
func Missing(v Version, o Options, name string, have map[string]bool) []string {
	d, table := ddl{o: o.named(), version: v}, strings.TrimSuffix(name, LocalSuffix)
	var all []string
	for _, c := range columns(v, table) {
		if have[c.Name] || c.Name == tsColumn {
			continue
		}

		all = append(all, fmt.Sprintf("ALTER TABLE %s ADD COLUMN %s %s", d.name(name), Quote(c.Name), c.Type))
	}

	return all
}

// tsColumn is the materialised time of the current DDL: it carries the partition
// and can't be added to a table that was made without.
const tsColumn = "ts"

// Column is one column as its table's DDL names it, or a server's header.
type Column struct {
	Name string
	Type string // as written, without codec and default
}

// columns returns the columns of a table as the DDL for version v declares them,
// the materialised one of the current DDL included.
func columns(v Version, table string) []Column {
	var columns []Column
	for _, line := range strings.Split(source(v, table), "\n") {
		line = strings.TrimSuffix(strings.TrimSpace(line), ",")
		if !strings.HasPrefix(line, "`") {
			continue
		}

		name, rest, _ := strings.Cut(line[1:], "`")
		rest = strings.TrimSpace(rest)
		for _, word := range []string{" MATERIALIZED ", " CODEC("} {
			rest, _, _ = strings.Cut(rest, word)
		}

		columns = append(columns, Column{Name: name, Type: rest})
	}

	return columns
}

// StartColumn is the column whose day is a row's partition; "" for ranks, which
// has one partition.
func StartColumn(table string) string {
	switch table {
	case row.RanksTable:
		return ""
	case row.VerdictsTable, row.LedgerTable:
		return "at_ns"
	}

	return "start_ns"
}

// Quote returns an identifier in backquotes.
func Quote(name string) string {
	return "`" + strings.NewReplacer("\\", "\\\\", "`", "\\`").Replace(name) + "`"
}

// Literal returns s as an SQL string literal that every server version reads as
// the same bytes.
func Literal(s string) string {
	return "'" + strings.NewReplacer("\\", "\\\\", "'", "\\'", "\x00", "\\0", "\n", "\\n", "\r", "\\r", "\t", "\\t").Replace(s) + "'"
}

// source is a table's SQL file, of the set that the server's version understands.
func source(v Version, table string) string {
	set := "plain"
	if v.current() {
		set = "current"
	}

	b, err := files.ReadFile(set + "/" + table + ".sql")
	if err != nil {
		panic("BUG: no DDL for table " + table)
	}

	return string(b)
}

// render fills a file in and drops its comment, which old servers' parsers keep
// out of the way but people read in the file.
func render(text string, d ddl) string {
	t := template.Must(template.New("ddl").Parse(text))
	var b strings.Builder
	if err := t.Execute(&b, d); err != nil {
		panic("BUG: render DDL: " + err.Error())
	}

	var lines []string
	for _, line := range strings.Split(b.String(), "\n") {
		if line != "" && !strings.HasPrefix(line, "--") {
			lines = append(lines, line)
		}
	}

	return strings.Join(lines, "\n")
}

// ddl is what the SQL files ask for.
type ddl struct {
	o       Options
	version Version
}

// Table is the name of the table that holds the rows, quoted.
func (d ddl) Table(table string) string {
	if d.o.Cluster != "" {
		table += LocalSuffix
	}

	return d.name(table)
}

// name is a table's name with its database, quoted. Without a database it is that of the connection.
func (d ddl) name(table string) string {
	if d.o.Database == "" {
		return Quote(table)
	}

	return Quote(d.o.Database) + "." + Quote(table)
}

// OnCluster is " ON CLUSTER …" or nothing.
func (d ddl) OnCluster() string {
	if d.o.Cluster == "" {
		return ""
	}

	return " ON CLUSTER " + Quote(d.o.Cluster)
}

// Engine is the table's engine, replicated on a cluster. The macros {shard} and
// {replica} are the usual ones of ClickHouse's documentation.
func (d ddl) Engine(table, engine string) string {
	if d.o.Cluster == "" {
		return engine
	}

	name, args, _ := strings.Cut(strings.TrimSuffix(engine, ")"), "(")
	path := "/clickhouse/tables/{shard}/" + d.o.Database + "/" + table
	if args != "" {
		args = ", " + args
	}

	return fmt.Sprintf("Replicated%s(%s, '{replica}'%s)", name, Literal(path), args)
}

// TTL is the clause that lets old rows go, or nothing.
func (d ddl) TTL(table string) string {
	days := d.o.TTL[table]
	if days <= 0 {
		return ""
	}

	return fmt.Sprintf("TTL toDateTime(`ts`) + INTERVAL %d DAY DELETE\n", days)
}

// Settings: whole partitions go at their TTL, and a retry of one block is
// recognised by its token where the table is not replicated (replicated tables
// have a window by default). An old server gets the bounds on parts of newer ones.
func (d ddl) Settings() string {
	var list []string
	if d.version.current() && d.o.Cluster == "" {
		list = append(list, "non_replicated_deduplication_window = 1000")
	}

	if !d.version.since(firstPatient) {
		list = append(list, "parts_to_delay_insert = 1000", "parts_to_throw_insert = 3000")
	}

	if d.version.current() {
		list = append(list, "ttl_only_drop_parts = 1")
	}

	return "SETTINGS " + strings.Join(list, ", ")
}
