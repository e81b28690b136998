package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/segment"
)

// storedOnce returns how many records of each kind a Parquet store has, and fails the
// test when one stands there twice.
func storedOnce(t *testing.T, store string) sums {
	t.Helper()
	return storedOf(t, store, "", 0)
}

// storedOf is storedOnce of one rank of a job, of all for no job.
func storedOf(t *testing.T, store, job string, rank int) sums {
	t.Helper()
	type place struct {
		process         uint64
		rank, ring      uint32
		seq             uint64
		segment, offset uint64 // where lines say no ring
	}
	stored, seen, twice := sums{}, map[place]bool{}, 0
	each(t, strings.TrimPrefix(store, "parquet:"), row.RecordsTable, func(r *row.Record) {
		if job != "" && (r.Job != job || r.Rank != uint32(rank)) {
			return
		}

		p := place{process: r.Incarnation, rank: r.Rank, ring: r.Ring, seq: r.Seq}
		if r.Ring == 0 {
			p.segment, p.offset = r.Segment, r.Offset
		}

		if seen[p] {
			twice++
		}

		seen[p] = true
		stored[r.Kind]++
	})
	if twice > 0 {
		t.Errorf("%d records are stored twice", twice)
	}

	return stored
}

// TestPausedShipper is R14: segments rotate every 50 ms while the process that ships
// them is stopped (SIGSTOP) from before the first until after the last; then it has to
// ship them all, each record once. LAGGARD_PAUSE_SECONDS and LAGGARD_PAUSE_RANKS make
// it longer and wider than the 2 s of 2 ranks that the suite takes.
func TestPausedShipper(t *testing.T) {
	t.Parallel()
	ranks, seconds := chaosSetting(t, "LAGGARD_PAUSE_RANKS", 2), chaosSetting(t, "LAGGARD_PAUSE_SECONDS", 2)
	steps := 125 * seconds // 12,500 records of 110 bytes a second are 20 segments of 64 KiB
	s := newSite(t, "")
	quiet := []string{"--dir", s.dir, "--node", "node-0", "--metrics", "", "--listen", ""}
	shipper := s.startCommand(exec.Command(program, append([]string{"agent", "--store", s.store, "--records", "all", "--grace", "120s"}, quiet...)...),
		"LAGGARD_RUN="+filepath.Join(s.rings, "none"))
	ledger := filepath.Join(s.dir, ".laggard", "ledger")
	for wait := time.Now(); ; <-time.After(5 * time.Millisecond) { // it is up
		if _, err := os.Stat(ledger); err == nil {
			break
		}

		if time.Since(wait) > patience {
			t.Fatalf("the shipper does not start:\n%s", shipper.words)
		}
	}

	if err := shipper.command.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}

	drainer := s.start(append([]string{"agent", "--segment-size", "64KiB", "--until-idle", "200ms"}, quiet...)...)
	var emitters []*running
	for rank := range ranks {
		emitters = append(emitters, s.emitter(rank, ranks, steps))
	}

	for _, e := range emitters {
		e.wait()
	}

	drainer.wait()
	rotated := 0
	for rank := range ranks {
		infos, err := segment.List(filepath.Join(s.dir, "j1", strconv.Itoa(rank)))
		if err != nil {
			t.Fatal(err)
		}

		rotated += len(infos)
	}

	if stored := storedOnce(t, s.store); len(stored) > 0 || rotated < ranks*seconds*10 {
		t.Fatalf("the test shows nothing: %v stored while the shipper was stopped, %d segments", stored, rotated)
	}

	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGCONT} { // it ships what is there, and leaves
		if err := shipper.command.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
	}

	shipper.wait()
	stored := storedOnce(t, s.store)
	for kind, n := range emittedBy(ranks, steps) {
		if stored[kind] != n {
			t.Errorf("%s: emitted %d, stored %d", kind, n, stored[kind])
		}
	}

	t.Logf("%d ranks, %d segments written in %d s while the shipper was stopped: %v stored", ranks, rotated, seconds, stored)
}

// TestFewDescriptors is R25: the agent may open 64 files and finds a tree of many more
// in a few folders; everything is shipped. LAGGARD_FILES sets how many, the suite takes
// 600.
func TestFewDescriptors(t *testing.T) {
	t.Parallel()
	files := chaosSetting(t, "LAGGARD_FILES", 600)
	const ranks, steps, descriptors = 6, 10, 64
	s := newSite(t, "")
	for i := range files {
		rank := 1 + i%ranks // rank 0 is a live one's
		meta := record.Meta{Format: record.Format, Segment: fmt.Sprintf("%016x", i+1), Job: "j1", Rank: rank, Incarnation: record.ID(rank)}
		r := record.New(record.Step)
		r.Ring, r.Step, r.Seq, r.Start, r.Dur = 1, int64(i/ranks), uint64(i/ranks), time.Now().UnixNano(), 1
		name := filepath.Join(s.dir, "j1", strconv.Itoa(rank), strconv.FormatInt(time.Now().Unix()-1000+int64(i/ranks), 10))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}

		lines := r.AppendLine(meta.AppendLine(nil))
		if i >= files-ranks { // the rank's last
			end := record.End{At: time.Now().UnixNano(), How: "closed"}
			lines = end.AppendLine(lines)
		}

		if err := os.WriteFile(name, lines, 0o644); err != nil {
			t.Fatal(err)
		}
	}

	e := s.emitter(0, 1, steps)
	c := exec.Command("/bin/sh", "-c", fmt.Sprintf(`ulimit -n %d && exec "$0" "$@"`, descriptors), program,
		"agent", "--dir", s.dir, "--store", s.store, "--node", "node-0", "--metrics", "", "--listen", "", "--records", "all", "--until-idle", "500ms")
	c.Env = append(os.Environ(), "LAGGARD_RUN="+s.rings)
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("agent: %v\n%s", err, out)
	}

	e.wait()
	stored := storedOnce(t, s.store)
	want := emittedBy(1, steps)
	want["Step"] += uint64(files)
	for kind, n := range want {
		if stored[kind] != n {
			t.Errorf("%s: %d on disk, %d stored\n%s", kind, n, stored[kind], out)
		}
	}

	t.Logf("%d files in %d folders, %d descriptors: %v stored", files, ranks+1, descriptors, stored)
}

// TestProcessesOfOneRank: three processes of a rank at a time, and a fourth that
// begins when the agent is away and the first has ended, as after a restart. Readers
// take every segment but the newest for finished: whatever is drained when, nothing
// may go behind one. Every record is stored once, but for those of rings that were full
// before the agent was back, which are counted.
func TestProcessesOfOneRank(t *testing.T) {
	t.Parallel()
	const steps = 400 // some 3 s
	s := newSite(t, "")
	flags := []string{"--records", "all", "--segment-size", "256KiB"}
	agent := s.agent(flags...)
	short := s.emitter(0, 1, steps/2)
	others := []*running{s.emitter(0, 1, steps), s.emitter(0, 1, steps)}
	short.wait()
	if err := agent.command.Process.Kill(); err != nil {
		t.Fatal(err)
	}

	<-agent.done
	others = append(others, s.emitter(0, 1, steps))
	agent = s.agent(append(flags, "--until-idle", "500ms")...)
	for _, e := range others {
		e.wait()
	}

	agent.wait()
	storedOnce(t, s.store)
	report := audited(t, 0, s.dir, s.store)
	var emitted uint64
	for _, n := range emittedBy(1, 3*steps+steps/2) {
		emitted += n
	}

	full := report.Dropped[record.RingFull]
	if report.Emitted != emitted || report.Stored+full != emitted {
		t.Errorf("emitted %d: %+v", emitted, report)
	}

	t.Logf("emitted %d = stored %d + dropped %v", report.Emitted, report.Stored, report.Dropped)
}
