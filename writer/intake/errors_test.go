package intake_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/laggard-dev/laggard/writer/clickhouse"
	"github.com/laggard-dev/laggard/writer/intake"
)

// TestErrorsNameObjectCauseRemedy is what a person sees.
func TestErrorsNameObjectCauseRemedy(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}

	for spec, words := range map[string][]string{
		"":                   {"parquet:DIR", "clickhouse://"},
		"postgres://h/d":     {"postgres://", "clickhouse://"},
		"parquet:" + file:    {file, "directory"},
		file:                 {file, "parquet:DIR", "clickhouse://"},
		"clickhouse://u:p@h": {"password", "environment"},
	} {
		_, err := intake.OpenStore(spec, clickhouse.Options{})
		for _, word := range words {
			if err == nil || !strings.Contains(err.Error(), word) {
				t.Errorf("OpenStore(%q): %v; want a word on %q", spec, err, word)
			}
		}
	}

	empty, target := t.TempDir(), "parquet:"+t.TempDir()
	if _, err := intake.Once(t.Context(), empty, store(t, target), all()); !errors.Is(err, intake.ErrNothing) || !strings.Contains(err.Error(), empty) {
		t.Errorf("empty directory: %v", err)
	}

	if _, err := intake.Once(t.Context(), filepath.Join(empty, "no"), store(t, target), all()); err == nil || !strings.Contains(err.Error(), "no") {
		t.Errorf("missing directory: %v", err)
	}

	dir, _ := written(t, 1, 5, 1<<20)
	if _, err := intake.Once(t.Context(), dir, store(t, "clickhouse://127.0.0.1:1/x"), all()); err == nil || !strings.Contains(err.Error(), "start the server") {
		t.Errorf("a server that is not there: %v", err)
	}
}
