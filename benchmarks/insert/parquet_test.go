package insert

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// BenchmarkFileToParquet is P13: a million record lines into Parquet, beside DuckDB's
// COPY of read_json over the same segments, both on two threads and with zstd. What
// DuckDB writes are the twelve keys of the lines; laggard's store has the 28 columns
// of the table records, the steps made of them, and the account.
func BenchmarkFileToParquet(b *testing.B) {
	cache, err := os.UserCacheDir()
	if err != nil {
		b.Fatal(err)
	}

	modules := filepath.Join(cache, "laggard", "duckdb-1.5.6-r.1")
	if _, err := os.Stat(filepath.Join(modules, "node_modules/@duckdb/node-api")); err != nil {
		b.Fatalf("DuckDB is missing (%v): run .ci/parts bench", err)
	}

	const n = 1_000_000
	dir := b.TempDir()
	segments(b, dir, n)
	program := laggard(b)
	var ours, theirs []cost
	var sizes [2]int64
	for b.Loop() {
		store := filepath.Join(b.TempDir(), "store")
		ours = append(ours, run(b, 0, func() { ingest(b, program, dir, "parquet:"+store) }))
		sizes[0] = bytesUnder(b, filepath.Join(store, "records"))
		out := filepath.Join(b.TempDir(), "duckdb.parquet")
		var seconds float64
		c := run(b, 0, func() {
			text, err := exec.Command("node", "duckdb/copy.mjs", modules, dir+"/j1/0/17*", out, "2").CombinedOutput()
			if err != nil {
				b.Fatalf("%v: %s", err, text)
			}

			if seconds, err = strconv.ParseFloat(strings.TrimSpace(string(text)), 64); err != nil {
				b.Fatal(err)
			}
		})
		c.wall = time.Duration(seconds * float64(time.Second))
		theirs = append(theirs, c)
		sizes[1] = bytesUnder(b, out)
	}

	report(b, "laggard", ours)
	report(b, "DuckDB", theirs)
	b.ReportMetric(float64(sizes[0])/1e6, "laggard-MB")
	b.ReportMetric(float64(sizes[1])/1e6, "DuckDB-MB")
	b.ReportMetric(float64(sizes[0])/float64(sizes[1]), "x-size")
	ratio(b, "x-DuckDB", theirs, ours)
}

// bytesUnder is the size of the files under path.
func bytesUnder(b testing.TB, path string) (n int64) {
	err := filepath.WalkDir(path, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}

		info, err := d.Info()
		n += info.Size()
		return err
	})
	if err != nil {
		b.Fatal(err)
	}

	return n
}
