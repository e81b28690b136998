package profiles

import (
	"bytes"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"modernc.org/sqlite"
	lite "modernc.org/sqlite/lib"
	"modernc.org/sqlite/vfs"
)

// database is a SQLite file that is read and never written: SQLite sees no file system but this one
// open file, so it makes no journal beside it, attaches nothing and follows no link. Of the statements
// that it would run only reading a table is allowed: a view, a trigger or a function that the file
// defines is refused when a statement is prepared.
type database struct {
	file *profileFile
	vfs  *vfs.FS
	db   *sql.DB
	conn *sql.Conn
}

const (
	// sqliteMagic begins every SQLite file, whatever it is called.
	sqliteMagic = "SQLite format 3\x00"
	// sqliteName is what the file is called in the file system that SQLite sees.
	sqliteName = "profile"
	// mostText bounds a value, and the text that defines a table.
	mostText = 1 << 20
	// sqliteOptions: a file that nobody else writes, no write, no function of the schema's, sizes of
	// cells checked, and at most 4 MiB of pages held.
	sqliteOptions = "?immutable=1&mode=ro&_pragma=query_only(1)&_pragma=trusted_schema(0)&_pragma=cell_size_check(1)&_pragma=cache_size(-4096)&_pragma=temp_store(2)&vfs="
)

// Open implements fs.FS: it is the file system that SQLite sees.
func (d *database) Open(name string) (fs.File, error) {
	if name != sqliteName {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}

	return d.file.raw()
}

// openDatabase opens a SQLite file.
func openDatabase(ctx context.Context, f *profileFile) (d *database, err error) {
	d = &database{file: f}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.Close())
		}
	}()
	var name string
	if name, d.vfs, err = vfs.New(d); err != nil {
		return d, err
	}

	connector, err := sqlite.NewConnector("file:" + sqliteName + sqliteOptions + name)
	if err != nil {
		return d, err
	}

	d.db = sql.OpenDB(connector)
	if d.conn, err = d.db.Conn(ctx); err != nil {
		return d, err
	}

	for _, limit := range [][2]int{{lite.SQLITE_LIMIT_LENGTH, mostText}, {lite.SQLITE_LIMIT_ATTACHED, 0}} {
		if _, err := sqlite.Limit(d.conn, limit[0], limit[1]); err != nil {
			return d, err
		}
	}

	return d, d.conn.Raw(func(c any) error { return c.(sqlite.AuthorizerRegisterer).RegisterAuthorizer(readOnly) })
}

// readOnly allows to read columns of tables, and nothing else.
func readOnly(action sqlite.AuthorizerActionCode, _, _, database, view string) sqlite.AuthorizerReturnCode {
	if action == sqlite.AuthSelect || action == sqlite.AuthRead && view == "" && (database == "main" || database == "") {
		return sqlite.AuthorizerOK
	}

	return sqlite.AuthorizerDeny
}

// Close closes what is open of it.
func (d *database) Close() error {
	var err error
	if d.conn != nil {
		err = d.conn.Close()
	}

	if d.db != nil {
		err = errors.Join(err, d.db.Close())
	}

	if d.vfs != nil {
		err = errors.Join(err, d.vfs.Close())
	}

	return err
}

// cells are the values of a row.
type cells []driver.Value

// int returns a whole number, which may be written as a text; what is none is 0.
func (c cells) int(i int) int64 {
	switch v := c[i].(type) {
	case int64:
		return v
	case float64:
		if v > -1<<62 && v < 1<<62 {
			return int64(v)
		}
	case string:
		return number([]byte(v), 0)
	}

	return 0
}

// text returns a text, "" where it is none.
func (c cells) text(i int) string {
	s, _ := c[i].(string)
	return s
}

// query calls each with the rows of a statement. The cells hold until the next one.
func (d *database) query(ctx context.Context, statement string, each func(cells) error) (err error) {
	return d.conn.Raw(func(c any) (err error) {
		rows, err := c.(driver.QueryerContext).QueryContext(ctx, statement, nil)
		if err != nil {
			return err
		}

		defer func() { err = errors.Join(err, rows.Close()) }()
		values := make([]driver.Value, len(rows.Columns()))
		for n := int64(0); ; n++ {
			switch err := rows.Next(values); {
			case errors.Is(err, io.EOF):
				return nil
			case err != nil:
				return err
			case n > d.file.Size: // pages that point at each other
				return errors.New("it has more rows than bytes: it is damaged")
			}

			if err := each(values); err != nil {
				return err
			}
		}
	})
}

// tables returns the names of the tables: not those of views, nor of tables that a module makes.
func (d *database) tables(ctx context.Context) (names []string, err error) {
	err = d.query(ctx, `SELECT name FROM sqlite_schema WHERE type = 'table' AND rootpage > 0`, func(c cells) error {
		names = append(names, c.text(0))
		return nil
	})
	return names, err
}

// readParts reads one part of the file after the other; what of one can't be read is told.
func (d *database) readParts(ctx context.Context, out *output, parts ...func(context.Context) error) error {
	// Changes may lie in a log beside the file and not in it.
	if log := d.file.Beside(d.file.Name() + "-wal"); log != nil && log.Size > 0 {
		out.Unread(log.Path, "changes that were not carried over into %s are not read: let who wrote it finish, or open it once with sqlite3", d.file.Name())
	}

	for _, part := range parts {
		if err := part(ctx); ctx.Err() != nil {
			return ctx.Err()
		} else if err != nil {
			out.Unread(d.file.Path, "%s; what else it has was read", cause(err))
		}
	}

	return nil
}

// read calls each with the rows of a table, in the order in which they lie. A table or a column whose name
// ends in ? may be missing: there is no row then, or the column is nil. Names come from us, never from the
// file, so they may stand in the statement.
func (d *database) read(ctx context.Context, table string, columns []string, each func(cells) error) (err error) {
	table, optional := strings.CutSuffix(table, "?")
	defer func() {
		if err != nil {
			err = fmt.Errorf("read table %s: %w", table, err)
		}
	}()
	tables, err := d.tables(ctx)
	switch {
	case err != nil:
		return err
	case !slices.Contains(tables, table) && optional:
		return nil
	case !slices.Contains(tables, table):
		return errors.New("no such table")
	}

	there, err := d.columns(ctx, table)
	if err != nil {
		return err
	}

	wanted := make([]string, len(columns))
	for i, c := range columns {
		name, optional := strings.CutSuffix(c, "?")
		switch {
		case slices.Contains(there, name):
			wanted[i] = `"` + name + `"`
		case optional:
			wanted[i] = "NULL"
		default:
			return fmt.Errorf("it has no column %s", name)
		}
	}

	return d.query(ctx, "SELECT "+strings.Join(wanted, ", ")+` FROM "`+table+`"`, each)
}

// columns are the names of a table's columns.
func (d *database) columns(ctx context.Context, table string) ([]string, error) {
	rows, err := d.conn.QueryContext(ctx, `SELECT * FROM "`+table+`" LIMIT 0`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	there, err := rows.Columns()
	return there, errors.Join(err, rows.Err())
}

// holds reports whether f is a SQLite file that has all the tables of one of the sets. One that is too
// damaged to say what it has goes by its name.
func (f *profileFile) holds(called string, sets ...[]string) bool {
	if !f.isSQLite() {
		return false
	}

	var tables []string
	if d, err := openDatabase(context.Background(), f); err == nil { // else whoever reads it says so
		defer d.Close()
		tables, _ = d.tables(context.Background())
	}

	if tables == nil {
		known, _ := path.Match(called, f.Name())
		return known
	}

	return slices.ContainsFunc(sets, func(set []string) bool {
		return !slices.ContainsFunc(set, func(table string) bool { return !slices.Contains(tables, table) })
	})
}

// isSQLite reports whether the file begins as a SQLite database does.
func (f *profileFile) isSQLite() bool { return bytes.HasPrefix(f.Head(), []byte(sqliteMagic)) }
