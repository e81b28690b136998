package parquet_test

import (
	"testing"

	"github.com/laggard-dev/laggard/writer/parquet"
	"github.com/laggard-dev/laggard/writer/ship"
	"github.com/laggard-dev/laggard/writer/ship/shiptest"
)

func TestConformance(t *testing.T) {
	dir := t.TempDir()
	shiptest.Conform(t, func(t *testing.T) ship.Sink {
		s, err := parquet.Open(dir)
		if err != nil {
			t.Fatal(err)
		}

		return s
	})
}
