package native

import (
	"cmp"
	"context"
	"errors"
	"reflect"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	ddl "github.com/laggard-dev/laggard/schemas/clickhouse"
)

// EachRow calls scan with each row of a query's answer, over a connection of clickhouse-go: for
// answers that are short, or come over HTTP. A row that can't be scanned ends the query; the
// connection is of use again.
func EachRow(ctx context.Context, conn driver.Conn, query string, scan func(driver.Rows) error) error {
	rows, err := conn.Query(ctx, query)
	if err != nil {
		return err
	}

	for rows.Next() {
		if err := scan(rows); err != nil {
			return errors.Join(err, rows.Close())
		}
	}

	// An error of the query comes from both.
	closed := rows.Close()
	return cmp.Or(rows.Err(), closed)
}

// Columns returns the quoted columns of a row or a key, a struct with the tags of schemas/row, and
// where a Scan puts them. They are asked for by name: an operator may have added some. The job is
// known: it is set, and no column.
func Columns(one any, job string) (columns []string, into []any) {
	v := reflect.ValueOf(one).Elem()
	for i := range v.NumField() {
		name := v.Type().Field(i).Tag.Get("col")
		if name == "job" {
			v.Field(i).SetString(job)
			continue
		}

		columns = append(columns, ddl.Quote(name))
		into = append(into, v.Field(i).Addr().Interface())
	}

	return columns, into
}
