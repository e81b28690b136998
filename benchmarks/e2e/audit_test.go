package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/laggard-dev/laggard/analyzer/feed"
	"github.com/laggard-dev/laggard/analyzer/source"
	"github.com/laggard-dev/laggard/schemas/clickhouse/chtest"
	"github.com/laggard-dev/laggard/schemas/parquet"
	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/schemas/verdict"
	"github.com/laggard-dev/laggard/writer/audit"
	"github.com/laggard-dev/laggard/writer/ledger"
)

// sums is what became of the records of one job, by kind.
type sums map[string]uint64

// outcome is what a store and the local ledger tell of a job, by state.
type outcome struct {
	stored, summarised                     sums
	emitted, aged, dropped, agedOnTheLocal sums
}

func newOutcome() outcome {
	return outcome{sums{}, sums{}, sums{}, sums{}, sums{}, sums{}}
}

// entry takes an entry of the store's ledger.
func (o *outcome) entry(r *row.Ledger) {
	switch {
	case r.Batch != "":
	case r.State == "emitted":
		o.emitted[r.Kind] += r.Records
	case r.State == "aged":
		o.aged[r.Kind] += r.Records
	case r.State == "dropped":
		o.dropped[r.Kind] += r.Records
	}
}

func outcomeOfParquet(t *testing.T, dir string) outcome {
	t.Helper()
	o := newOutcome()
	each(t, dir, row.RecordsTable, func(r *row.Record) { o.stored[r.Kind]++ })
	each(t, dir, row.CommunicationsTable, func(r *row.Communication) { o.summarised["Communication"] += uint64(r.Calls) })
	each(t, dir, row.LedgerTable, o.entry)
	return o
}

func each[T any](t *testing.T, dir, table string, do func(*T)) {
	t.Helper()
	for _, f := range filesOf(t, dir, table) {
		err := parquet.Read(f, func(rows []T) error {
			for i := range rows {
				do(&rows[i])
			}

			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func outcomeOfServer(t *testing.T, s *chtest.Server, database string) outcome {
	t.Helper()
	o := newOutcome()
	take := func(into sums, query string) {
		for _, line := range strings.Split(strings.TrimSpace(string(s.Dump(t, query))), "\n") {
			if kind, n, ok := strings.Cut(line, "\t"); ok {
				count, err := strconv.ParseUint(n, 10, 64)
				if err != nil {
					t.Fatal(err)
				}

				into[kind] += count
			}
		}
	}
	take(o.stored, "SELECT kind, count() FROM "+database+".records GROUP BY kind")
	take(o.summarised, "SELECT 'Communication', sum(calls) FROM "+database+".communications")
	for state, into := range map[string]sums{"emitted": o.emitted, "aged": o.aged, "dropped": o.dropped} {
		take(into, "SELECT kind, sum(records) FROM "+database+".ledger WHERE batch = '' AND state = '"+state+"' GROUP BY kind")
	}

	return o
}

// close holds the equation for each kind: n[kind] are what the trainers emitted.
func (o outcome) close(t *testing.T, dir string, n sums) {
	t.Helper()
	_, err := ledger.Read(dir, func(r row.Ledger) error {
		if r.State == "aged" {
			o.agedOnTheLocal[r.Kind] += r.Records
		}

		return nil
	})
	if err != nil {
		t.Fatal(err)
	}

	for kind, emitted := range n {
		sum := o.stored[kind] + o.summarised[kind] + o.aged[kind] + o.dropped[kind]
		t.Logf("%s: emitted %d = stored %d + summarised %d + aged %d + dropped %d", kind, emitted, o.stored[kind], o.summarised[kind], o.aged[kind], o.dropped[kind])
		if sum != emitted {
			t.Errorf("%s: emitted %d, accounted for %d", kind, emitted, sum)
		}

		if o.emitted[kind] != emitted {
			t.Errorf("%s: emitted %d, the ledger says %d", kind, emitted, o.emitted[kind])
		}

		if o.aged[kind] != o.agedOnTheLocal[kind] {
			t.Errorf("%s: %d aged in the store's ledger, %d in the local one", kind, o.aged[kind], o.agedOnTheLocal[kind])
		}
	}

	if o.aged["Communication"] == 0 || o.stored["Step"] == 0 {
		t.Error("the test shows nothing: it wants both records that aged and records that were stored")
	}
}

func emittedBy(ranks, steps int) sums {
	n := uint64(ranks * steps)
	return sums{"Step": n, "FP": n, "DataLoader": n, "Communication": n * emitterCalls}
}

// TestAccountsCloseUnderAgeing: the cap is a fifth of the need and the store is not
// there for most of the time; what was emitted is stored, summarised, aged or
// dropped, to the record.
func TestAccountsCloseUnderAgeing(t *testing.T) {
	t.Parallel()
	const ranks, steps = 2, 1500
	flags := []string{"--cap", "6MB", "--segment-size", "256KiB", "--until-idle", "1s"}
	run := func(t *testing.T, s *site, up func()) {
		t.Helper()
		agent := s.agent(flags...)
		first := s.emitter(0, ranks, steps)
		agent.until("segments that aged before they were shipped", func(m map[string]float64) bool {
			return m[`laggard_segments_aged_total{shipped="false"}`] > 0
		})
		second := s.emitter(1, ranks, steps) // a rank that comes while the store is away
		first.wait()
		up()
		second.wait()
		agent.wait()
	}
	t.Run("parquet", func(t *testing.T) {
		base := filepath.Join(t.TempDir(), "mount")
		if err := os.WriteFile(base, nil, 0o644); err != nil { // nothing can be made below it
			t.Fatal(err)
		}

		store := filepath.Join(base, "store")
		s := newSite(t, "parquet:"+store)
		run(t, s, func() {
			if err := os.Remove(base); err != nil {
				t.Fatal(err)
			}
		})
		outcomeOfParquet(t, store).close(t, s.dir, emittedBy(ranks, steps))
		audited(t, 0, s.dir, s.store)
	})
	t.Run("clickhouse", func(t *testing.T) {
		server := chtest.Start(t)
		database := server.Database()
		server.Kill()
		s := newSite(t, server.Store(database))
		run(t, s, server.Up)
		outcomeOfServer(t, server, database).close(t, s.dir, emittedBy(ranks, steps))
		audited(t, 0, s.dir, s.store)
	})
}

// audited runs audit -o json, holds the exit code, and that the account closes.
func audited(t *testing.T, code int, dir, store string) audit.Report {
	t.Helper()
	r := laggard(t, "audit", dir, store, "-o", "json")
	if r.code != code {
		t.Fatalf("audit: exit code %d, want %d\n%s%s", r.code, code, r.out, r.err)
	}

	var report audit.Report
	if err := json.Unmarshal([]byte(r.out), &report); err != nil {
		t.Fatalf("%v: %s", err, r.out)
	}

	sum := report.Stored + report.Summarised + report.Aged + report.InFlight
	for _, n := range report.Dropped {
		sum += n
	}

	if code == 0 && sum != report.Emitted {
		t.Fatalf("the account does not close: %+v", report)
	}

	return report
}

// TestAudit: two agents with a tree each ship one job into one store; what is
// deleted there is named by segment, with the reason.
func TestAudit(t *testing.T) {
	t.Parallel()
	const steps = 60
	server := chtest.Start(t)
	database := server.Database()
	sites := []*site{newSite(t, server.Store(database)), newSite(t, server.Store(database))}
	for rank, s := range sites {
		agent := s.agent("--records", "all", "--until-idle", "500ms", "--segment-size", "256KiB")
		s.emitter(rank, 2, steps).wait()
		agent.wait()
		if got := audited(t, 0, s.dir, s.store); got.Ranks != 1 || got.Emitted != steps*perStep || got.Stored != got.Emitted {
			t.Fatalf("site %d: %+v", rank, got)
		}
	}

	remove := func(table, where string) {
		t.Helper()
		server.Exec("ALTER TABLE " + database + "." + table + " DELETE WHERE " + where)
		deadline := time.After(patience)
		for server.Count("SELECT count() FROM "+database+"."+table+" WHERE "+where) > 0 {
			select {
			case <-deadline:
				t.Fatal("rows were never deleted")
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
	remove("records", "rank = 1 AND kind = 'FP' AND step = 7")
	got := audited(t, 3, sites[1].dir, sites[1].store)
	if len(got.Differences) != 1 {
		t.Fatalf("one row deleted: %+v", got.Differences)
	}

	d := got.Differences[0]
	if d.Rank != 1 || d.Segment == "" || d.Kind != "FP" || d.Want != d.Have+1 || !strings.Contains(d.Reason, "deleted") {
		t.Fatalf("one row deleted: %+v", d)
	}

	if r := laggard(t, "audit", sites[1].dir, sites[1].store); r.code != 3 || !strings.Contains(r.out, d.Segment) {
		t.Fatalf("the table does not name the segment: %+v", r)
	}

	audited(t, 0, sites[0].dir, sites[0].store) // the other agent's ranks are equal still
	remove("steps", "rank = 0 AND step = 9")
	got = audited(t, 3, sites[0].dir, sites[0].store)
	if len(got.Differences) != 1 || got.Differences[0].Table != "steps" {
		t.Fatalf("one step deleted: %+v", got.Differences)
	}

	// A segment that the ledger holds as lost must not be in the store.
	l, err := ledger.Open(sites[1].dir)
	if err != nil {
		t.Fatal(err)
	}

	id, err := strconv.ParseUint(d.ID, 16, 64)
	if err != nil {
		t.Fatal(err)
	}

	if err := errors.Join(l.Append(row.Ledger{Job: "j1", Rank: 1, Segment: record.ID(id), Name: d.Segment, State: "aged", Reason: "aged", Kind: "FP", Records: 1}), l.Close()); err != nil {
		t.Fatal(err)
	}

	got = audited(t, 3, sites[1].dir, sites[1].store)
	if !slices.ContainsFunc(got.Differences, func(x audit.Difference) bool { return x.Segment == d.Segment && strings.Contains(x.Reason, "aged") }) {
		t.Fatalf("an aged segment in the store: %+v", got.Differences)
	}

	// What is on disk and was never shipped.
	s := sites[0]
	empty := laggard(t, "audit", s.dir, "parquet:"+t.TempDir())
	if empty.code != 3 || !strings.Contains(empty.out, "not shipped yet") {
		t.Fatalf("an empty store: %+v", empty)
	}

	if r := laggard(t, "audit", t.TempDir(), s.store); r.code != 1 || !strings.Contains(r.err, "no rank directories") {
		t.Fatalf("an empty directory: %+v", r)
	}

	if r := laggard(t, "audit", s.dir, s.store, "--job", "j2"); r.code != 1 || !strings.Contains(r.err, "no job j2") {
		t.Fatalf("a job that is not there: %+v", r)
	}
}

// TestCurrentEngineEndToEnd: files → the current engine → verdict. Every query of
// the analyzer runs on ClickHouse 26.7 and gives what the files give.
func TestCurrentEngineEndToEnd(t *testing.T) {
	t.Parallel()
	engine := chtest.StartEngine(t)
	dir := filepath.Join(t.TempDir(), "job")
	if r := laggard(t, "simulate", "--scenario", "compute-1.2", "--seed", "7", "--ranks", "16", "--steps", "120", dir); r.code != 0 {
		t.Fatalf("simulate: %+v", r)
	}

	store := "clickhouse://" + engine.Address + "/default?protocol=http&compression=none"
	for pass, want := range []string{"stored", "nothing to store"} {
		if r := laggard(t, "ingest", dir, "--to", store, "--records", "all", "--memory", "256MiB"); r.code != 0 || !strings.Contains(r.out, want) {
			t.Fatalf("pass %d: %+v", pass, r)
		}
	}

	audited(t, 0, dir, store)
	files, stored := laggard(t, "analyze", dir, "-o", "json"), laggard(t, "analyze", store, "-o", "json")
	var a, b verdict.Verdict
	for _, v := range []struct {
		text string
		into *verdict.Verdict
	}{{files.out, &a}, {stored.out, &b}} {
		if err := json.Unmarshal([]byte(v.text), v.into); err != nil {
			t.Fatalf("%v: %s %s%s", err, v.text, files.err, stored.err)
		}
	}

	if files.code != stored.code || len(a.Nodes) != len(b.Nodes) {
		t.Fatalf("files: exit code %d\n%s\nstore: exit code %d\n%s", files.code, files.out, stored.code, stored.out)
	}

	for i := range a.Nodes {
		if a.Nodes[i].Node != b.Nodes[i].Node || a.Nodes[i].Slowdown != b.Nodes[i].Slowdown {
			t.Errorf("node %d: files %+v, store %+v", i, a.Nodes[i], b.Nodes[i])
		}
	}

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	live, err := source.OpenLive(store, source.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer live.Close()
	jobs, err := live.Jobs(ctx)
	if err != nil || len(jobs) != 1 {
		t.Fatalf("jobs %v: %v", jobs, err)
	}

	if _, err := live.Newest(ctx, jobs[0]); err != nil {
		t.Fatal(err)
	}

	reader, err := live.Follow(ctx, jobs[0], nil)
	if err != nil {
		t.Fatal(err)
	}

	steps := 0
	for more := true; more; {
		if more, err = reader.Read(ctx, feed.Current, func(r *row.Rows) error { steps += len(r.Steps); return nil }); err != nil {
			t.Fatal(err)
		}
	}

	if steps == 0 {
		t.Fatal("following the store gave no steps")
	}
}

// TestAccountsCloseOverKills: the agent is killed while the store is away and
// segments age; the next one goes on, and the account closes to the record.
func TestAccountsCloseOverKills(t *testing.T) {
	t.Parallel()
	const steps = 2000
	flags := []string{"--cap", "6MB", "--segment-size", "256KiB", "--until-idle", "1s"}
	base := filepath.Join(t.TempDir(), "mount")
	if err := os.WriteFile(base, nil, 0o644); err != nil {
		t.Fatal(err)
	}

	store := filepath.Join(base, "store")
	s := newSite(t, "parquet:"+store)
	emitter := s.emitter(0, 1, steps)
	aged := func(m map[string]float64) bool { return m[`laggard_segments_aged_total{shipped="false"}`] > 0 }
	for range 2 {
		agent := s.agent(flags...)
		agent.until("segments that aged before they were shipped", aged)
		if err := agent.command.Process.Kill(); err != nil {
			t.Fatal(err)
		}

		<-agent.done
	}

	if err := os.Remove(base); err != nil {
		t.Fatal(err)
	}

	agent := s.agent(flags...)
	emitter.wait()
	agent.wait()
	o := outcomeOfParquet(t, store)
	local := sums{}
	if _, err := ledger.Read(s.dir, func(r row.Ledger) error {
		if r.State == "aged" {
			local[r.Kind] += r.Records
		}

		return nil
	}); err != nil {
		t.Fatal(err)
	}

	for kind, emitted := range emittedBy(1, steps) {
		sum := o.stored[kind] + o.summarised[kind] + local[kind] + o.dropped[kind]
		t.Logf("%s: emitted %d = stored %d + summarised %d + aged %d + dropped %d", kind, emitted, o.stored[kind], o.summarised[kind], local[kind], o.dropped[kind])
		if sum != emitted {
			t.Errorf("%s: emitted %d, accounted for %d", kind, emitted, sum)
		}
	}

	audited(t, 0, s.dir, s.store)
}

// filesOf lists the files of a table of a Parquet store, of all jobs.
func filesOf(t testing.TB, dir, table string) (files []string) {
	t.Helper()
	folders, err := parquet.Folders(dir, table)
	for _, folder := range folders {
		some, failed := parquet.Files(folder)
		files, err = append(files, some...), errors.Join(err, failed)
	}

	if err != nil {
		t.Fatal(err)
	}

	return files
}
