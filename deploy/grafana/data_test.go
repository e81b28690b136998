package grafana_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/laggard-dev/laggard/analyzer/detect"
	"github.com/laggard-dev/laggard/analyzer/feed"
	"github.com/laggard-dev/laggard/analyzer/report"
	"github.com/laggard-dev/laggard/analyzer/simulate"
	"github.com/laggard-dev/laggard/analyzer/watch"
	"github.com/laggard-dev/laggard/schemas/clickhouse"
	"github.com/laggard-dev/laggard/schemas/clickhouse/chtest"
	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/schemas/verdict"
	"github.com/laggard-dev/laggard/writer/rollup"
	"github.com/laggard-dev/laggard/writer/segment"
)

// Jobs of the test's store.
const (
	bigJob  = "pretrain-1024" // 1,024 ranks × bigSteps, node-37 slow from step 480 on
	nodeJob = "finetune-node" // a slow node, with raw records
	linkJob = "finetune-link" // a slow link
	hungJob = "finetune-hung" // has not ended, stores nothing any more
)

const (
	bigRanks   = 1024
	bigCulprit = "node-37"
	half       = 48 // steps simulated without and with the fault; a multiple of row.Window
	quiet      = 10 // how often the first half is repeated before the fault
	start      = 1_753_000_000
)

// bigSteps is how long the big job is. LAGGARD_GRAFANA=full is the long form, of which
// every query is to take less than a second: benchmarks/results/grafana.md.
var bigSteps = 960

func init() {
	if os.Getenv("LAGGARD_GRAFANA") == "full" {
		bigSteps = 2000
	}
}

// store is the engine with all jobs in it, and what is known of them.
type store struct {
	*chtest.Engine
	t        *testing.T
	node     row.Rows // of nodeJob
	verdicts map[string]*verdict.Verdict
	from, to time.Time
}

func newStore(t *testing.T) *store {
	t.Helper()
	s := &store{Engine: chtest.StartEngine(t), t: t, verdicts: map[string]*verdict.Verdict{}}
	for _, ddl := range clickhouse.Statements(clickhouse.Latest, clickhouse.Options{}) {
		s.query(ddl)
	}

	s.big()
	s.small()
	s.link()
	s.hung()
	s.from = time.Unix(start-60, 0)
	end, err := strconv.ParseInt(strings.TrimSpace(s.query("SELECT intDiv(max(start_ns), 1000000000) FROM steps")), 10, 64)
	if err != nil {
		t.Fatal(err)
	}

	s.to = time.Unix(end+60, 0)
	s.demo() // of another year
	return s
}

func (s *store) query(sql string) string {
	s.t.Helper()
	out, err := s.Query(sql)
	if err != nil {
		s.t.Fatalf("%v\n%s", err, sql)
	}

	return out
}

// insert sends rows of one table as tab-separated text.
func insert[T any](s *store, table string, rows []T) {
	s.t.Helper()
	if len(rows) == 0 {
		return
	}

	var b bytes.Buffer
	typ := reflect.TypeFor[T]()
	var names []string
	for i := range typ.NumField() {
		names = append(names, clickhouse.Quote(typ.Field(i).Tag.Get("col")))
	}

	for i := range rows {
		v := reflect.ValueOf(&rows[i]).Elem()
		for k := range typ.NumField() {
			if k > 0 {
				b.WriteByte('\t')
			}

			cellText(&b, v.Field(k))
		}

		b.WriteByte('\n')
	}

	if err := s.Insert(fmt.Sprintf("INSERT INTO %s (%s) FORMAT TabSeparated", table, strings.Join(names, ", ")), &b); err != nil {
		s.t.Fatal(err)
	}
}

var escapes = strings.NewReplacer("\\", `\\`, "\t", `\t`, "\n", `\n`)

func cellText(b *bytes.Buffer, v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		b.WriteString(escapes.Replace(v.String()))
	case reflect.Slice:
		text, _ := json.Marshal(v.Interface())
		if v.IsNil() {
			text = []byte("[]")
		}

		b.WriteString(strings.ReplaceAll(strings.ReplaceAll(string(text), `"`, "'"), "null", "[]"))
	default:
		if v.CanInt() {
			b.Write(strconv.AppendInt(b.AvailableBuffer(), v.Int(), 10))
		} else {
			b.Write(strconv.AppendUint(b.AvailableBuffer(), v.Uint(), 10))
		}
	}
}

func (s *store) insertRows(r row.Rows) {
	s.t.Helper()
	insert(s, row.RanksTable, r.Ranks)
	insert(s, row.StepsTable, r.Steps)
	insert(s, row.CommunicationsTable, r.Communications)
	insert(s, row.RecordsTable, r.Raws.AppendTo(nil))
	insert(s, row.LedgerTable, r.Ledger)
}

// big simulates 96 steps of 1,024 ranks and lets the engine repeat them: the
// healthy half ten times, the faulty one up to bigSteps.
func (s *store) big() {
	rows, _, err := simulate.Rows(simulate.Config{
		Job: bigJob, Seed: 11, Steps: 2 * half, FirstStep: 16 * row.Window, StartUnix: start,
		Shape:      simulate.Shape{TP: 8, DP: 16, PP: 8, RanksPerNode: 8, MicroBatches: 8},
		Model:      simulate.Model{Seconds: 5},
		Checkpoint: simulate.Checkpoint{Every: 40},
		Faults:     []simulate.Fault{{Kind: simulate.Compute, Node: 37, Locals: []int{3}, Factor: 1.25, From: half}},
	})
	if err != nil {
		s.t.Fatal(err)
	}

	s.judge(bigJob, rows, []uint64{half, 2*half - 1}, func(step uint64) uint64 { return (quiet-1)*half + step })
	for i := range rows.Ranks {
		rows.Ranks[i].EndedNs = 0
	}

	insert(s, row.RanksTable, rows.Ranks)
	for _, table := range []string{row.StepsTable, row.CommunicationsTable} {
		s.query("CREATE TABLE once_" + table + " AS " + table + " ENGINE = Memory")
	}

	insert(s, "once_"+row.StepsTable, rows.Steps)
	insert(s, "once_"+row.CommunicationsTable, rows.Communications)
	for table, column := range map[string]string{row.StepsTable: "step", row.CommunicationsTable: "step_from"} {
		s.repeat(table, column)
	}

	s.bigLedger()
}

// repeat copies the simulated halves of a table along the job's time.
func (s *store) repeat(table, column string) {
	first := 16 * row.Window
	upto := ""
	if table == row.CommunicationsTable {
		upto = ", step_to + shift AS step_to"
	}

	middle := fmt.Sprintf("(SELECT min(start_ns) FROM once_steps WHERE step = %d)", first+half)
	for _, part := range []struct{ low, high, from, to int }{{0, half, 0, quiet}, {half, 2 * half, quiet - 1, (bigSteps+half-1)/half - 1}} {
		s.query(fmt.Sprintf(`INSERT INTO %[1]s SELECT * EXCEPT (shift, move) REPLACE (toUInt64(%[2]s + shift - %[3]d) AS %[2]s, start_ns + move AS start_ns%[9]s)
FROM (SELECT *, toUInt64(k * %[4]d) AS shift, k * (%[5]s - (SELECT min(start_ns) FROM once_steps)) AS move
  FROM once_%[1]s ARRAY JOIN range(%[6]d, %[7]d) AS k
  WHERE %[2]s >= %[8]d AND %[2]s < %[10]d AND %[2]s + k * %[4]d < %[3]d + %[11]d)`, table, column, first, half, middle, part.from, part.to, first+part.low, strings.ReplaceAll(upto, "+ shift", fmt.Sprintf("+ shift - %d", first)), first+part.high, bigSteps))
	}
}

// bigLedger accounts for the big job: two segments a rank, one rank with losses.
func (s *store) bigLedger() {
	var rows []row.Ledger
	for r := range uint32(bigRanks) {
		for k := range uint64(2) {
			e := row.Ledger{Job: bigJob, Rank: r, Segment: record.ID(uint64(r)<<8 | k), Name: fmt.Sprint(start + k*3600), LastOffset: 9_000_000, AtNs: int64(start+k*3600) * 1e9, Kind: "Step"}
			add := func(state, reason string, n uint64) {
				x := e
				x.State, x.Reason, x.Records = state, reason, n
				rows = append(rows, x)
			}
			lost := uint64(0)
			if r == 700 {
				lost = 12
				add("dropped", "ring-full", lost)
			}

			add("emitted", "", 1000)
			add("stored", "", 1000-lost)
			half := e
			half.LastOffset, half.State, half.Records = 4_000_000, "emitted", 400 // an earlier count of the same segment
			rows = append(rows, half)
			e.Kind = "Communication"
			add("emitted", "", 50_000)
			add("summarised", "not-selected", 50_000)
			rows = append(rows, row.Ledger{Job: bigJob, Rank: r, Batch: fmt.Sprintf("b%d-%d", r, k), Table: row.StepsTable, State: "stored", Records: 1000, AtNs: e.AtNs})
		}
	}

	insert(s, row.LedgerTable, rows)
}

// small goes the whole way: files, segments, rollup, with raw records and account.
func (s *store) small() {
	config, err := simulate.Sized("compute-1.5", 5, 32)
	if err != nil {
		s.t.Fatal(err)
	}

	config.Job, config.StartUnix, config.Steps, config.Faults[0].From = nodeJob, start, 140, 50
	root := s.t.TempDir()
	if _, err := simulate.Write(root, config); err != nil {
		s.t.Fatal(err)
	}

	dirs, err := segment.Walk(root)
	if err != nil {
		s.t.Fatal(err)
	}

	var all row.Rows
	for _, dir := range dirs {
		counts, err := rollup.Dir(context.Background(), dir, rollup.Options{Records: rollup.All}, func(r *row.Rows) error {
			all.Ranks = append(all.Ranks, r.Ranks...)
			all.Steps = append(all.Steps, r.Steps...)
			all.Communications = append(all.Communications, r.Communications...)
			all.Raws.Append(&r.Raws)
			return nil
		})
		if err != nil {
			s.t.Fatal(err)
		}

		for state, kinds := range map[string]map[string]uint64{"emitted": counts.Emitted, "stored": counts.Stored, "summarised": counts.Summarised} {
			for kind, n := range kinds {
				all.Ledger = append(all.Ledger, row.Ledger{Job: nodeJob, Rank: uint32(dir.Rank), Segment: record.ID(dir.Rank + 1), State: state, Kind: kind, Records: n, LastOffset: counts.Bytes, AtNs: start * 1e9})
			}
		}
	}

	s.node = all
	s.insertRows(all)
	s.judge(nodeJob, all, []uint64{90, 120, 139}, func(step uint64) uint64 { return step })
}

func (s *store) link() {
	config, err := simulate.Sized("slow-link", 7, 64)
	if err != nil {
		s.t.Fatal(err)
	}

	config.Job, config.StartUnix, config.Steps = linkJob, start, 300
	rows, _, err := simulate.Rows(config)
	if err != nil {
		s.t.Fatal(err)
	}

	s.insertRows(rows)
	s.judge(linkJob, rows, []uint64{200, 299}, func(step uint64) uint64 { return step })
}

func (s *store) hung() {
	rows := row.Rows{}
	for r := range uint32(8) {
		rows.Ranks = append(rows.Ranks, row.Rank{Job: hungJob, Rank: r, Incarnation: uint64(r) + 1, WorldSize: 8, Node: "node-200", StartedNs: start * 1e9, Version: 1})
		for k := range uint64(60) {
			flags := uint32(0)
			if k == 30 {
				flags = row.FlagSwitched
			}

			rows.Steps = append(rows.Steps, row.Step{Job: hungJob, Rank: r, Incarnation: uint64(r) + 1, Node: "node-200", Step: k, StartNs: start*1e9 + int64(k)*2e9, StepNs: 2e9,
				FPNs: 5e8, FPCount: 1, CommNs: 2e8, ExposedNs: 1e8, SelfNs: 19e8, DataLoaderNs: -1, CheckpointNs: -1, Tokens: -1, HostFPNs: -1, BackwardNs: -1, CommTPNs: -1, CommPPNs: -1, CommDPNs: 2e8, CommCPNs: -1, CommEPNs: -1, CommOtherNs: -1, Flags: flags})
		}
	}

	s.insertRows(rows)
}

// judge asks the detector about the job up to each of the steps, and stores what
// changed as watch does: one row per node, link and finding that is new or other.
func (s *store) judge(job string, rows row.Rows, upto []uint64, place func(uint64) uint64) {
	var out []row.Verdict
	before := map[string]string{}
	low, at := rows.Steps[0].Step, map[uint64]int64{}
	for i := range rows.Steps {
		low = min(low, rows.Steps[i].Step)
	}

	for i := range rows.Steps {
		at[rows.Steps[i].Step-low] = rows.Steps[i].StartNs
	}

	length := at[half] - at[0]
	for _, last := range upto {
		v := s.analyze(job, rows, low+last)
		ns := at[last] + int64(place(last)-last)/half*length
		add := func(key string, r row.Verdict, body any, impact float64) {
			text, _ := json.Marshal(body)
			if before[key] == string(text) {
				return
			}

			before[key] = string(text)
			r.Job, r.AtNs, r.Step, r.Body, r.ImpactPPM = job, ns, place(last), string(text), uint32(impact*1e6)
			out = append(out, r)
		}
		state := map[bool]string{true: watch.StateHealthy, false: watch.StateUnhealthy}[v.Healthy]
		add("job", row.Verdict{State: state, Detail: report.Headline(v)}, v, v.Most())
		for _, n := range v.Nodes {
			add("n"+n.Node, row.Verdict{Node: n.Node, State: n.State, Cause: n.Cause, Detail: n.Detail}, n, n.JobImpact)
		}

		for _, l := range v.Links {
			add("l"+l.Group, row.Verdict{Group: l.Group, State: l.State, Detail: l.Detail}, l, l.JobImpact)
		}

		for _, f := range v.Findings {
			add("f"+f.Kind, row.Verdict{Finding: f.Kind, Detail: f.Detail}, f, f.JobImpact)
		}

		s.verdicts[job] = v
	}

	insert(s, row.VerdictsTable, out)
}

func (s *store) analyze(job string, rows row.Rows, last uint64) *verdict.Verdict {
	b := &feed.History{}
	for i := range rows.Ranks {
		b.AddRank(&rows.Ranks[i])
	}

	for i := range rows.Steps {
		if rows.Steps[i].Step <= last {
			b.AddStep(&rows.Steps[i])
		}
	}

	for i := range rows.Communications {
		if rows.Communications[i].StepTo <= last {
			b.AddCommunication(&rows.Communications[i])
		}
	}

	f, err := b.Frame(nil)
	if err != nil {
		s.t.Fatal(err)
	}

	v := detect.Analyze(f, detect.Default())
	v.Healthy = v.Exit(detect.Default().MinImpact) == verdict.ExitHealthy
	s.t.Logf("%s up to step %d: %d nodes, %d links, %d findings", job, last, len(v.Nodes), len(v.Links), len(v.Findings))
	return v
}
