// Package insert measures the way from segment files into the stores against the
// tools that people use for it, both sides in one run on the same rows.
package insert

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/laggard-dev/laggard/schemas/clickhouse/chtest"
	"github.com/laggard-dev/laggard/schemas/record"
)

// base is the start of the first record, within one day (UTC).
const base int64 = 1_753_000_000_000_000_000 - 80_000_000_000_000

// segments writes n communication records of one rank as plain segments of 10 MiB,
// and returns the same as rows of JSON with the columns of the table records.
func segments(b testing.TB, dir string, n int) (rows []byte) {
	b.Helper()
	rank := filepath.Join(dir, "j1", "0")
	if err := os.MkdirAll(rank, 0o755); err != nil {
		b.Fatal(err)
	}

	var segment, json bytes.Buffer
	name := 1_753_000_000
	write := func() {
		if err := os.WriteFile(filepath.Join(rank, fmt.Sprint(name)), segment.Bytes(), 0o644); err != nil {
			b.Fatal(err)
		}

		segment.Reset()
		name++
	}
	for i := range n {
		if segment.Len() == 0 {
			m := record.Meta{Format: record.Format, Segment: fmt.Sprintf("%016x", name), Job: "j1", Incarnation: 7, WorldSize: 1, Node: "node-0", StartedNs: base}
			segment.Write(m.AppendLine(nil))
		}

		r := measured(i)
		fmt.Fprintf(&json, `{"job":"j1","rank":0,"incarnation":7,"node":"node-0","kind":%q,"step":%d,"repeat":0,"start_ns":%d,"dur_ns":%d,"side":"host","host_start_ns":0,"host_dur_ns":0,"exposed_ns":%d,"ring":%d,"seq":%d,"thread":0,"op":%q,"op_raw":"","group":%q,"peer":-1,"count":%d,"dtype":%q,"bytes":%d,"tokens":0,"path":"","open":0,"segment":%d,"offset":%d}`+"\n",
			r.Word(), r.Step, r.Start, r.Dur, r.Exposed, r.Ring, r.Seq, r.Op, r.Group, r.Count, r.Dtype, r.Bytes, name, segment.Len())
		segment.Write(r.AppendLine(nil))
		if segment.Len() > 10<<20-512 {
			write()
		}
	}

	write()
	return json.Bytes()
}

// measured is record i: 999 collectives to one step.
func measured(i int) record.Record {
	start := base + int64(i)*30_000
	if i%1000 == 999 {
		r := record.New(record.Step)
		r.Step, r.Start, r.Dur, r.Ring, r.Seq = int64(i/1000), start-999*30_000, 1000*30_000, 1, uint64(i/1000)
		return r
	}

	r := record.New(record.Communication)
	r.Step, r.Start, r.Dur, r.Exposed, r.Ring, r.Seq = int64(i/1000), start, int64(5000+i%977), 4000, 2, uint64(i-i/1000)
	r.Op, r.Group, r.Count, r.Dtype, r.Bytes = "allreduce", "dp0", 1<<20, "bf16", 2<<20
	return r
}

// laggard builds the program. It is measured as people run it: in this process it would have the rivals'
// rows in its memory, which it keeps within bounds.
func laggard(b testing.TB) (program string) {
	b.Helper()
	program = filepath.Join(b.TempDir(), "laggard")
	if out, err := exec.Command("go", "build", "-o", program, "github.com/laggard-dev/laggard").CombinedOutput(); err != nil {
		b.Fatalf("build laggard: %v\n%s", err, out)
	}

	return program
}

// ingest stores all rows of the segments.
func ingest(b testing.TB, program, dir, store string) {
	b.Helper()
	if out, err := exec.Command(program, "ingest", dir, "--to", store, "--records", "all").CombinedOutput(); err != nil {
		b.Fatalf("ingest: %v\n%s", err, out)
	}
}

// cost is what one run took.
type cost struct{ wall, own, server time.Duration }

// run measures f: wall time, processor time of this process and of its children that ended, and
// processor time of the server; 0 without one.
func run(b testing.TB, server int, f func()) cost {
	b.Helper()
	others := func() time.Duration {
		if server == 0 {
			return 0
		}

		return chtest.ProcessorTime(b, server)
	}
	own, other, began := usage(b), others(), time.Now()
	f()
	return cost{time.Since(began), usage(b) - own, others() - other}
}

// usage is the processor time of this process and of its children that ended.
func usage(b testing.TB) (total time.Duration) {
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		if err := syscall.Getrusage(who, &u); err != nil {
			b.Fatal(err)
		}

		total += time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}

	return total
}
