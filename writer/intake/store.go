package intake

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	ddl "github.com/laggard-dev/laggard/schemas/clickhouse"
	"github.com/laggard-dev/laggard/writer/clickhouse"
	"github.com/laggard-dev/laggard/writer/parquet"
	"github.com/laggard-dev/laggard/writer/ship"
)

// parquetScheme is the prefix of a Parquet store.
const parquetScheme = "parquet:"

// StoreOptions configure OpenStore.
type StoreOptions struct {
	TTL     map[string]int // ClickHouse: days to keep, by table
	Cluster string         // ClickHouse: create the tables on this cluster
	Logger  *slog.Logger
}

// OpenStore opens the store that a spec names: DIR or parquet:DIR, or
// clickhouse://user@host:port/database. It connects to nothing yet.
func OpenStore(ctx context.Context, spec string, o StoreOptions) (ship.Sink, error) {
	switch {
	case spec == "":
		return nil, errors.New("open store: no store named; want parquet:DIR or clickhouse://user@host:9000/database")
	case strings.HasPrefix(spec, ddl.Scheme):
		return clickhouse.Open(ctx, spec, clickhouse.Options{TTL: o.TTL, Cluster: o.Cluster, Logger: o.Logger})
	case strings.Contains(spec, "://"):
		scheme, _, _ := strings.Cut(spec, "://")
		return nil, fmt.Errorf("open store: no store is called %s://; want parquet:DIR or clickhouse://user@host:9000/database", scheme)
	}
	dir := strings.TrimPrefix(spec, parquetScheme)
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		return nil, fmt.Errorf("open store %s: it is a file; name a directory (it is made when it is missing)", spec)
	}
	return parquet.Open(dir)
}
