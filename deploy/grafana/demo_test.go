package grafana_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/laggard-dev/laggard/schemas/clickhouse"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// demoJob is what real processes recorded: testdata/demo is the store of
// `laggard demo --steps 110 --slow-rank 2` with what `laggard watch --once` said of it,
// and `laggard analyze -o json` on it. $LAGGARD_DEMO names the --dir of a fresh demo
// with a verdict.json in it.
const demoJob = "demo"

func demoDir() string {
	if dir := os.Getenv("LAGGARD_DEMO"); dir != "" {
		return dir
	}

	return filepath.Join("testdata", "demo")
}

// demo reads the store's files into the engine, column by column of the same name.
func (s *store) demo() {
	s.t.Helper()
	for _, table := range []string{row.RanksTable, row.StepsTable, row.CommunicationsTable, row.RecordsTable, row.VerdictsTable, row.LedgerTable} {
		files, err := filepath.Glob(filepath.Join(demoDir(), "store", table, "job=*", "*.parquet"))
		if err != nil || len(files) == 0 {
			s.t.Fatalf("demo's %s: %v, %v", table, files, err)
		}

		for _, file := range files {
			path, err := filepath.Abs(file)
			if err != nil {
				s.t.Fatal(err)
			}

			from := "file('" + path + "', Parquet)"
			names, values := []string{"job"}, []string{"'" + demoJob + "'"}
			for line := range strings.Lines(s.query("DESCRIBE " + from)) {
				if name, _, _ := strings.Cut(line, "\t"); name != "job" {
					names, values = append(names, clickhouse.Quote(name)), append(values, clickhouse.Quote(name))
				}
			}

			s.query(fmt.Sprintf("INSERT INTO %s (%s) SELECT %s FROM %s", table, strings.Join(names, ", "), strings.Join(values, ", "), from))
		}
	}

	b, err := os.ReadFile(filepath.Join(demoDir(), "verdict.json"))
	if err != nil {
		s.t.Fatal(err)
	}

	var v verdict.Verdict
	if err := json.Unmarshal(b, &v); err != nil {
		s.t.Fatal(err)
	}

	s.verdicts[demoJob] = &v
}

// demoView is the job page over the demo's own time.
func (s *store) demoView(page view) view {
	span := strings.Fields(s.query("SELECT intDiv(min(start_ns), 1000000000), intDiv(max(start_ns), 1000000000) FROM steps WHERE job = '" + demoJob + "'"))
	page.from, page.to = time.Unix(int64(number(span[0]))-60, 0), time.Unix(int64(number(span[1]))+60, 0)
	return page
}

// demoNumbers: the pages show of the demo what analyze says.
func demoNumbers(t *testing.T, s *store, r map[string]reply) {
	v := s.verdicts[demoJob]
	if len(v.Nodes) != 1 || v.Nodes[0].State != verdict.Degraded {
		t.Fatalf("the demo's verdict names %+v", v.Nodes)
	}

	n := v.Nodes[0]
	causes := r["laggard-job/Causes/demo"]
	for what, pair := range map[string][2]float64{
		"impact":           {r["laggard-job/Impact/demo"].cell("impact"), v.Most()},
		"slowdown":         {causes.cell("slowdown", n.Node, n.State, n.Cause), n.Slowdown},
		"since step":       {causes.cell("since_step", n.Node, n.State, n.Cause), float64(n.SinceStep)},
		"coverage":         {r["laggard-job/Coverage/demo"].cell("coverage"), v.Coverage},
		"number of causes": {float64(len(causes.Data)), float64(len(v.Nodes) + len(v.Links))},
	} {
		if !near(pair[0], pair[1]) {
			t.Errorf("demo: %s is %v on the page, %v in the verdict", what, pair[0], pair[1])
		}
	}

	if got := int(number(r["laggard-job/Ranks against their role/demo"].Data[0][0])); got != n.Ranks[0] {
		t.Errorf("demo: the slowest rank is %d on the page, %v in the verdict", got, n.Ranks)
	}
}
