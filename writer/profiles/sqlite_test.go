package profiles

import (
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// databaseOf makes a SQLite file by statements, as SQLite itself writes it.
func databaseOf(t *testing.T, statements ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "made.sqlite")
	spoil(t, path, statements...)
	return path
}

// spoil runs statements on a SQLite file.
func spoil(t *testing.T, path string, statements ...string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}

	for _, s := range statements {
		if _, err := db.Exec(s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}

	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// readAll opens a database as profiles are and reads a table.
func readAll(t *testing.T, path, table string, columns ...string) (rows []string, err error) {
	t.Helper()
	f, err := openFolder(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.root.Close()
	d, err := openDatabase(t.Context(), f.files[0])
	if err != nil {
		return nil, err
	}

	defer func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}()
	err = d.read(t.Context(), table, columns, func(c cells) error {
		rows = append(rows, fmt.Sprintf("%d %s", c.int(0), c.text(1)))
		return nil
	})
	return rows, err
}

// What a hostile file defines is not run, what it lacks is named, and what is huge ends the reading.
func TestHostileDatabase(t *testing.T) {
	const table = `CREATE TABLE T (id INTEGER PRIMARY KEY, value TEXT)`
	for _, c := range []struct {
		name       string
		statements []string
		want       string // of the error, or the rows
	}{
		{"plain", []string{table, `INSERT INTO T VALUES (1, 'a'), (2, NULL), (3, 7)`}, "[1 a 2  3 7]"},
		{"numbers as text", []string{`CREATE TABLE T (id TEXT, value TEXT)`, `INSERT INTO T VALUES ('17', 'a'), ('x', 'b'), (1e300, 'c')`}, "[17 a 0 b 0 c]"},
		{"a view", []string{`CREATE VIEW T AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS id, 'a' AS value FROM n`}, "no such table"},
		{"a table of a module", []string{`CREATE VIRTUAL TABLE T USING fts5(id, value)`}, "no such table"},
		{"no such table", []string{`CREATE TABLE U (id INTEGER)`}, "no such table"},
		{"no such column", []string{`CREATE TABLE T (id INTEGER)`, `INSERT INTO T VALUES (1)`}, "it has no column value"},
		{"a trigger", []string{table, `CREATE TRIGGER g AFTER INSERT ON T BEGIN DELETE FROM T; END`, `CREATE TABLE U (x)`}, "[]"},
		{"a column that computes", []string{`CREATE TABLE T (id INTEGER, value TEXT AS (hex(zeroblob(600000))))`, `INSERT INTO T VALUES (1)`}, "too big"},
		{"a huge value", []string{table, `INSERT INTO T VALUES (1, hex(zeroblob(600000)))`}, "too big"},
		{"a journal of writes ahead", []string{`PRAGMA journal_mode = WAL`, table, `INSERT INTO T VALUES (1, 'a')`, `PRAGMA wal_checkpoint(TRUNCATE)`}, "[1 a]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			rows, err := readAll(t, databaseOf(t, c.statements...), "T", "id", "value")
			said := fmt.Sprint(rows)
			if err != nil {
				said = err.Error()
			}

			if !strings.Contains(said, c.want) {
				t.Errorf("%s, want %s", said, c.want)
			}
		})
	}
}

// Only reading a table is allowed, whatever the statement.
func TestReadOnlyStatements(t *testing.T) {
	f, err := openFolder(databaseOf(t, `CREATE TABLE T (id INTEGER)`, `CREATE VIEW V AS SELECT id FROM T`))
	if err != nil {
		t.Fatal(err)
	}
	defer f.root.Close()
	d, err := openDatabase(t.Context(), f.files[0])
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for _, s := range []string{`ATTACH '/etc/passwd' AS other`, `PRAGMA query_only = 0`, `INSERT INTO T VALUES (1)`, `SELECT id FROM V`, `SELECT readfile('/etc/passwd')`, `CREATE TEMP TABLE X (id)`, `BEGIN IMMEDIATE`} {
		if err := d.query(t.Context(), s, func(cells) error { return nil }); err == nil {
			t.Errorf("%s was run", s)
		}
	}

	if err := d.query(t.Context(), `SELECT id FROM T`, func(cells) error { return nil }); err != nil {
		t.Error(err)
	}
}

// A folder that was read is as it was: no journal beside a file, and no byte changed, though the file
// is in a mode in which SQLite writes when it only reads, and its folder may be written.
func TestSourceStaysAsItIs(t *testing.T) {
	at := databaseOf(t, `PRAGMA journal_mode = WAL`, `CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)`, `CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER)`)
	before, dir := sum(t, at), filepath.Dir(at)
	if tree, err := Open(t.Context(), dir, Options{}); err == nil {
		tree.Close()
		t.Error("a file without a range gave one")
	}

	names, err := os.ReadDir(dir)
	if err != nil || len(names) != 1 || sum(t, at) != before {
		t.Errorf("%v beside it, %v", names, err)
	}
}

// What lies in a log beside the file and not in it is told.
func TestLogBesideDatabase(t *testing.T) {
	dir := folderOf(t, map[string]string{"rank0_ascend_pt/ascend_pytorch_profiler_0.db-wal": "x"})
	text, err := os.ReadFile("testdata/ascend/db/level0/rank0_ascend_pt/ASCEND_PROFILER_OUTPUT/ascend_pytorch_profiler_0.db")
	if err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(filepath.Join(dir, "rank0_ascend_pt/ascend_pytorch_profiler_0.db"), text, 0o600); err != nil {
		t.Fatal(err)
	}

	got := open(t, dir, Options{})
	if len(got.Steps) != 1 || len(got.Unread) != 1 || !strings.HasSuffix(got.Unread[0].Path, ".db-wal") {
		t.Errorf("%d steps, not read: %v", len(got.Steps), got.Unread)
	}
}

func sum(t *testing.T, path string) [32]byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	return sha256.Sum256(text)
}

// Each way a database is cut or its pages are overwritten ends in rows or in an error, and the process
// lives.
func TestDamagedDatabase(t *testing.T) {
	whole, err := os.ReadFile("testdata/ascend/db/level0/rank0_ascend_pt/ASCEND_PROFILER_OUTPUT/ascend_pytorch_profiler_0.db")
	if err != nil {
		t.Fatal(err)
	}

	path := filepath.Join(t.TempDir(), "ascend_pytorch_profiler_0.db")
	read := func(text []byte) {
		t.Helper()
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}

		tree, err := Open(t.Context(), path, Options{})
		switch {
		case err == nil:
			tree.Close()
		case !strings.Contains(err.Error(), "ascend_pytorch_profiler_0.db"):
			t.Errorf("the file is not named: %v", err)
		case errors.Is(err, ErrNone):
			t.Errorf("it is not told for what it is: %v", err)
		}
	}
	const page = 4096
	for n := 1; n < len(whole)/page; n += 4 {
		read(whole[:n*page])
		text := append([]byte(nil), whole...)
		for i := range page / 2 {
			text[n*page+i] = byte(i * n)
		}

		read(text)
		copy(text[n*page:], whole[page:2*page]) // another page in its place
		read(text)
	}

	read(whole[:len(whole)-100])
	read(whole[:200])
}
