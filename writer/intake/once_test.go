package intake_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/laggard-dev/laggard/schemas/clickhouse/chtest"
	"github.com/laggard-dev/laggard/schemas/parquet"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/audit"
	"github.com/laggard-dev/laggard/writer/clickhouse"
	"github.com/laggard-dev/laggard/writer/intake"
	"github.com/laggard-dev/laggard/writer/ship"
	"github.com/laggard-dev/laggard/writer/tail"
)

func TestSecondPassStoresNothing(t *testing.T) {
	dir, want := written(t, 3, 100, 20<<10)
	server := chtest.Start(t)
	db := server.Database()
	for name, spec := range map[string]string{"parquet": "parquet:" + t.TempDir(), "clickhouse": server.Store(db)} {
		t.Run(name, func(t *testing.T) {
			first := once(t, dir, spec, all())
			if rows := uint64(len(want[row.StepsTable]) + len(want[row.RecordsTable]) + len(want[row.CommunicationsTable]) + len(want[row.RanksTable])); first.Stored() < rows {
				t.Fatalf("first pass: %s, want %d rows", first, rows)
			}

			second := once(t, dir, spec, all())
			if second.Stored() != 0 || second.Tables[row.LedgerTable].Inserted != 0 || !strings.Contains(second.String(), "nothing to store") {
				t.Fatalf("second pass: %s", second)
			}

			left, _ := filepath.Glob(filepath.Join(dir, "*", "*", ".*"))
			left = slices.DeleteFunc(left, func(path string) bool { return filepath.Base(path) == ".reached" })
			if len(left) != 0 {
				t.Fatalf("left in the tree: %v", left)
			}
		})
	}

	steps := server.Count("SELECT count() FROM " + db + ".steps")
	if steps != uint64(len(want[row.StepsTable])) {
		t.Fatalf("%d steps in ClickHouse", steps)
	}

	// The account: what was emitted was stored, segment by segment.
	emitted := server.Count("SELECT sum(records) FROM " + db + ".ledger WHERE state = 'emitted' AND batch = ''")
	stored := server.Count("SELECT sum(records) FROM " + db + ".ledger WHERE state = 'stored' AND batch != '' AND table = 'records'")
	if emitted != uint64(len(want[row.RecordsTable])) || stored != emitted {
		t.Fatalf("emitted %d, stored %d, want %d", emitted, stored, len(want[row.RecordsTable]))
	}
}

// TestGrowingTree passes again and again over a job that is still being written, in
// the middle of windows: what a pass stored of a window is completed by the next, and
// no row is there twice.
func TestGrowingTree(t *testing.T) {
	server := chtest.Start(t)
	db, target, plain := server.Database(), t.TempDir(), t.TempDir()
	dir := t.TempDir()
	j := newJob(t, dir, 2, 16<<10)
	stores := []string{"parquet:" + target, server.Store(db)}
	complements := uint64(0)
	pass := func() {
		for _, spec := range stores {
			once(t, dir, spec, all())
		}
	}
	for _, steps := range []int{3, 1, 39} {
		j.steps(steps)
		pass()
	}

	j.steps(9)
	j.end()
	pass()
	for _, spec := range stores {
		if r := once(t, dir, spec, all()); r.Stored() != 0 {
			t.Fatalf("the same files again: %s", r)
		}
	}

	once(t, dir, "parquet:"+plain, all())
	got, want := dump(t, target), dump(t, plain)
	if len(got[row.StepsTable]) != len(want[row.StepsTable]) || !slices.Equal(got[row.RecordsTable], want[row.RecordsTable]) {
		t.Fatalf("%d steps and %d records, want %d and %d", len(got[row.StepsTable]), len(got[row.RecordsTable]), len(want[row.StepsTable]), len(want[row.RecordsTable]))
	}

	whole, _ := windows(t, plain)
	sums, n := windows(t, target)
	if d := cmp.Diff(whole, sums); d != "" {
		t.Errorf("windows (-in one pass +in four):\n%s", d)
	}

	if complements = n; n == 0 {
		t.Error("no window was completed: the test passes at their ends")
	}

	const columns = "count(), uniqExact((rank, incarnation, step_from, repeat, `group`, op)), sum(calls), sum(total_ns), sum(bytes), countIf(repeat >= 32768)"
	var rows, distinct, calls, extra uint64
	var total, bytes int64
	if err := server.Conn(db).QueryRow(t.Context(), "SELECT "+columns+" FROM communications").Scan(&rows, &distinct, &calls, &total, &bytes, &extra); err != nil {
		t.Fatal(err)
	}

	var sum row.Communication
	for _, w := range whole {
		sum.Add(&w)
	}

	if rows != distinct || rows != uint64(len(whole))+extra || extra != complements || calls != uint64(sum.Calls) || total != sum.TotalNs || bytes != sum.Bytes {
		t.Errorf("ClickHouse has %d windows (%d distinct, %d of them complements) of %d calls, %d ns, %d bytes; want %d and %d of %+v",
			rows, distinct, extra, calls, total, bytes, len(whole), complements, sum)
	}

	for _, spec := range stores {
		r, err := audit.Run(t.Context(), dir, "j1", spec, store(t, spec), nil)
		if err != nil || len(r.Differences) > 0 {
			t.Errorf("audit of %s: %+v, %v", spec, r, err)
		}
	}
}

// windows sums the rows of each window of a Parquet store up, and counts complements.
// A row that is there twice is an error.
func windows(t *testing.T, store string) (sums map[ship.CommunicationKey]row.Communication, complements uint64) {
	t.Helper()
	sums = map[ship.CommunicationKey]row.Communication{}
	seen := map[ship.CommunicationKey]bool{}
	for _, f := range filesOf(t, store, row.CommunicationsTable) {
		err := parquet.Read(f, func(rows []row.Communication) error {
			for _, r := range rows {
				if k := ship.KeyOfCommunication(&r); seen[k] {
					t.Errorf("window %+v is there twice", k)
				} else {
					seen[k] = true
				}

				if row.IsComplement(r.Repeat) {
					complements++
				}

				r.Repeat = row.BaseRepeat(r.Repeat)
				k := ship.KeyOfCommunication(&r)
				sum, ok := sums[k]
				if !ok {
					sum = row.Communication{MinNs: r.MinNs}
				}

				sum.Add(&r)
				sum.MinNs, sum.MaxNs = min(sum.MinNs, r.MinNs), max(sum.MaxNs, r.MaxNs)
				sums[k] = sum
			}

			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}

	return sums, complements
}

// inserts is a sink that counts the inserts into each table.
type inserts struct {
	ship.Sink
	of map[string]int
}

func (s *inserts) Insert(ctx context.Context, b *ship.Batch) error {
	s.of[b.Table]++
	return s.Sink.Insert(ctx, b)
}

// TestAccountIsPutOnce: a pass stores the account of its segments when they are read, and not with
// each part of their rows.
func TestAccountIsPutOnce(t *testing.T) {
	dir, _ := written(t, 2, 200, 8<<10)
	segments, err := filepath.Glob(filepath.Join(dir, "*", "*", "[0-9]*"))
	if err != nil || len(segments) < 10 {
		t.Fatalf("%d segments, %v", len(segments), err)
	}

	sink := &inserts{Sink: store(t, "parquet:"+t.TempDir()), of: map[string]int{}}
	o := all()
	o.Quantum, o.Ship.BatchRows = 4<<10, 100
	r, err := intake.Once(t.Context(), dir, sink, o)
	if err != nil {
		t.Fatal(err)
	}

	if rounds, n := sink.of[row.RecordsTable], sink.of[row.LedgerTable]; rounds < 10 || n > 4 {
		t.Fatalf("%d inserts into the account beside %d of records: %s", n, rounds, r)
	}

	if got, want := r.Tables[row.LedgerTable].Inserted, uint64(2*len(segments)); got < want {
		t.Fatalf("%d entries of %d segments", got, len(segments))
	}
}

// ingestProcess is `laggard ingest` as a process of its own, to be killed.
func ingestProcess() {
	sink, err := intake.OpenStore(os.Getenv("LAGGARD_TEST_STORE"), clickhouse.Options{})
	if err == nil {
		o := all()
		o.Quantum, o.Ship.BatchRows = 4<<10, 300
		var r intake.Report
		r, err = intake.Once(context.Background(), os.Getenv("LAGGARD_TEST_INGEST"), sink, o)
		fmt.Println(r)
	}

	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}

	os.Exit(0)
}

// TestKilledPassIsFinishedByTheNext kills passes (SIGKILL) at growing times until
// one comes to its end.
func TestKilledPassIsFinishedByTheNext(t *testing.T) {
	dir, want := written(t, 2, 200, 32<<10)
	server := chtest.Start(t)
	db := server.Database()
	target := t.TempDir()
	for name, spec := range map[string]string{"parquet": "parquet:" + target, "clickhouse": server.Store(db)} {
		kills := 0
		for limit := 10 * time.Millisecond; ; limit = limit*3/2 + 3*time.Millisecond {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), "LAGGARD_TEST_INGEST="+dir, "LAGGARD_TEST_STORE="+spec)
			var out bytes.Buffer
			cmd.Stdout = &out
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}

			timer := time.AfterFunc(limit, func() { _ = cmd.Process.Kill() })
			err := cmd.Wait()
			timer.Stop()
			if err == nil {
				t.Logf("%s: %d kills, then: %s", name, kills, &out)
				break
			}

			if cmd.ProcessState.Exited() {
				t.Fatalf("%s: %v: %s", name, err, &out)
			}

			kills++
		}

		if kills == 0 {
			t.Fatal("no pass was killed")
		}
	}

	same(t, dump(t, target), want)
	for table, rows := range want {
		if got := server.Count("SELECT count() FROM " + db + "." + table); got != uint64(len(rows)) && table != row.RanksTable && table != row.LedgerTable {
			t.Errorf("ClickHouse %s: %d rows, want %d", table, got, len(rows))
		}
	}
}

// TestLeasedIsLeftAlone: a directory that a live process ships is reported.
func TestLeasedIsLeftAlone(t *testing.T) {
	dir, _ := written(t, 3, 20, 1<<20)
	l, err := tail.TakeLease(filepath.Join(dir, "j1", "1"), false)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	target := t.TempDir()
	r := once(t, dir, "parquet:"+target, all())
	if len(r.Leased) != 1 || !strings.HasSuffix(r.Leased[0], "/j1/1") || r.Ranks != 2 || !strings.Contains(r.String(), "left to the agent") {
		t.Fatalf("report: %s", r)
	}

	if steps := dump(t, target)[row.StepsTable]; len(steps) != 40 {
		t.Fatalf("%d steps stored, want 40", len(steps))
	}
}
