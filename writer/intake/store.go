package intake

import (
	"fmt"
	"os"
	"strings"

	ddl "github.com/laggard-dev/laggard/schemas/clickhouse"
	"github.com/laggard-dev/laggard/writer/clickhouse"
	"github.com/laggard-dev/laggard/writer/parquet"
	"github.com/laggard-dev/laggard/writer/ship"
)

// parquetScheme is the prefix of a Parquet store.
const parquetScheme = "parquet:"

// CheckStore tells what is wrong with the form of a store's name: parquet:DIR, or
// clickhouse://user@host:port/database. It touches nothing. A bare folder is an error:
// a slip in a URL would make folders here, and nothing would reach the store meant.
func CheckStore(spec string) error {
	if strings.HasPrefix(spec, ddl.Scheme) {
		_, err := ddl.ParseAddress(spec)
		return err
	}

	if dir, ok := strings.CutPrefix(spec, parquetScheme); ok && dir != "" && !strings.Contains(spec, "//") {
		return nil
	}

	if i := strings.LastIndexByte(spec, '@'); i >= 0 {
		spec = "…" + spec[i:] // before it a password may stand
	}

	return fmt.Errorf("open store %q: it names no store; want parquet:DIR or clickhouse://user@host:9000/database", spec)
}

// OpenStore opens the store that a spec names; see CheckStore. It connects to nothing
// yet. The options are for ClickHouse alone: a Parquet store has none.
func OpenStore(spec string, o clickhouse.Options) (ship.Sink, error) {
	if err := CheckStore(spec); err != nil {
		return nil, err
	}

	dir, ok := strings.CutPrefix(spec, parquetScheme)
	if !ok {
		return clickhouse.Open(spec, o)
	}

	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		return nil, fmt.Errorf("open store %s: it is a file; name a directory (it is made when it is missing)", spec)
	}

	return parquet.Open(dir)
}
