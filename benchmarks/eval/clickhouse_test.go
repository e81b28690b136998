package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/laggard-dev/laggard/schemas/clickhouse/chtest"
)

// TestParity_ClickHouse takes jobs by way of a real server, too, which has every third row twice,
// out of order in a part of its own. LAGGARD_EVAL_PARITY is another number of jobs: from 49 on each
// scenario and each family is among them.
func TestParity_ClickHouse(t *testing.T) {
	t.Parallel()
	n := 5 * shortCases()
	if slow {
		n = 2 // side by side
	}

	if text := os.Getenv("LAGGARD_EVAL_PARITY"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatalf("LAGGARD_EVAL_PARITY: %v", err)
		}
	}

	server := chtest.Start(t)
	databases := make([]string, n)
	for k := range databases {
		databases[k] = server.Database()
	}

	p, err := runParity(t.Context(), n, seed(t), 2, func(ctx context.Context, k int, job string) (string, error) {
		spec := server.Store(databases[k])
		if err := fill(ctx, spec, job); err != nil {
			return "", err
		}

		return spec, twice(server, databases[k])
	}, nil)
	if err != nil {
		t.Fatal(err)
	}

	t.Logf("by way of ClickHouse: %d cases, %d rows of steps", p.cases, p.rows)
	if len(p.differ) > 0 || p.rows == 0 {
		t.Errorf("%d of %d verdicts differ: %s", len(p.differ), p.cases, p)
	}
}

// twice stores every third row of a database once more.
func twice(server *chtest.Server, database string) error {
	for table, step := range map[string]string{"steps": "step", "communications": "step_from"} {
		q := fmt.Sprintf("INSERT INTO %[1]s.%[2]s SELECT * FROM %[1]s.%[2]s WHERE (rank + %[3]s) %% 3 = 0", database, table, step)
		if out, err := server.Client(nil, q); err != nil {
			return fmt.Errorf("store rows of %s twice: %w: %s", table, err, out)
		}
	}

	return nil
}
