package e2e

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/laggard-dev/laggard/schemas/clickhouse/chtest"
	"github.com/laggard-dev/laggard/schemas/topology"
	"github.com/laggard-dev/laggard/writer/intake"
)

// most polls a process's VmHWM, in bytes, until it has ended.
func (r *running) most() (bytes int64) {
	r.t.Helper()
	deadline := time.After(patience)
	for {
		if kib, err := chtest.Memory(r.command.Process.Pid, "VmHWM"); err == nil { // else it has ended
			bytes = max(bytes, kib<<10)
		}

		select {
		case err := <-r.done:
			if err != nil {
				r.t.Fatalf("%v: %v\n%s", r.command.Args[1:], err, r.words)
			}

			return bytes
		case <-time.After(10 * time.Millisecond):
		case <-deadline:
			r.t.Fatalf("%v: still running after %v\n%s", r.command.Args[1:], patience, r.words)
		}
	}
}

// numbers lists n numbers from the first on, each with a comma before it.
func numbers(first, n int) (b []byte) {
	for i := range n {
		b = strconv.AppendInt(append(b, ','), int64(first+i), 10)
	}

	return b
}

// TestMemoryOnHostileFiles: a process with --memory takes what that says and the overhead
// that intake states, measured from outside, on lines of 1 MiB, on .zst that inflate to a
// line of LAGGARD_INFLATED_MIB (256 in the suite, which is more than the process may take),
// on groups of 100,000 members and more in identities and in files, and on many ranks.
func TestMemoryOnHostileFiles(t *testing.T) {
	t.Parallel()
	const memory = 64 << 20
	inflated := chaosSetting(t, "LAGGARD_INFLATED_MIB", 256)
	const share = 1 << 13 // members of groups that a rank keeps
	const start = `"start":1753000000000000000,"dur":5`
	pad := strings.Repeat("x", 1<<20-300)
	trees := []struct {
		name         string
		ranks, lines int
		write        func(w io.Writer, rank int)
		compressed   bool
	}{
		{"long lines", 24, 10, func(w io.Writer, rank int) {
			for i := range 5 {
				fmt.Fprintf(w, `{"kind":"SaveCheckpoint","step":%d,%s,"path":"%s%d"}`+"\n", i, start, pad, rank)
				fmt.Fprintf(w, `{"foo":"%s"}`+"\n", pad)
			}
		}, false},
		{"inflating .zst", 4, 1, func(w io.Writer, rank int) {
			fmt.Fprintf(w, `{"kind":"Step","step":1,%s,"ring":1,"seq":0}`+"\n", start)
			for range inflated {
				io.WriteString(w, pad)
			}
		}, true},
		{"large groups", 12, 20, func(w io.Writer, rank int) {
			for i := range 10 { // processes, each of a group of its own
				id := fmt.Sprintf("%016x", rank<<8|i+1)
				fmt.Fprintf(w, `{"meta":{"format":"laggard/1","segment":"%s","job":"j1","rank":%d,"incarnation":"%s","world_size":1048576,"local_rank":0,"node":"n","pid":%d,"started_ns":1753000000000000000,"boot_id":"b","groups":[{"dim":"dp","name":"dp%d","index":0,"size":100000,"ranks":[1048575`, id, rank, id, i+1, i)
				w.Write(numbers(rank<<10|i, 100_000))
				fmt.Fprintf(w, `]},{"dim":"tp","name":"tp%d","index":0,"size":%d,"ranks":[0`, i, share)
				w.Write(numbers(1, share-1))
				fmt.Fprintf(w, `]}],"writer":"go/1"}}`+"\n"+`{"kind":"Step","step":%d,%s,"ring":1,"seq":0}`+"\n", i, start)
			}
		}, false},
		{"large group files", 12, 20, func(w io.Writer, rank int) {
			f, err := os.Create(filepath.Join(filepath.Dir(w.(*os.File).Name()), topology.ParallelGroupFile))
			if err != nil {
				t.Fatal(err)
			}

			fmt.Fprint(f, `{"world":{"group_name":"default_group","group_rank":0,"global_ranks":[0`)
			f.Write(numbers(1, 500_000))
			fmt.Fprint(f, "]}}")
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}

			for i := range 20 {
				fmt.Fprintf(w, `{"kind":"Step","step":%d,"start":%d,"dur":5,"ring":1,"seq":%d}`+"\n", i, 1753000000000000000+i*1000, i)
			}
		}, false},
		{"many ranks", 400, 20, func(w io.Writer, rank int) {
			for i := range 20 {
				fmt.Fprintf(w, `{"kind":"Step","step":%d,"start":%d,"dur":5,"ring":1,"seq":%d}`+"\n", i, 1753000000000000000+i*1000, i)
			}
		}, false},
	}
	for _, tree := range trees {
		t.Run(tree.name, func(t *testing.T) {
			s := newSite(t, "")
			for rank := range tree.ranks {
				path := filepath.Join(s.dir, "j1", strconv.Itoa(rank), "1753000000")
				if tree.compressed {
					path += ".zst"
				}

				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}

				f, err := os.Create(path)
				if err != nil {
					t.Fatal(err)
				}

				if !tree.compressed {
					tree.write(f, rank)
				} else if z, err := zstd.NewWriter(f, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1)); err != nil {
					t.Fatal(err)
				} else if tree.write(z, rank); z.Close() != nil {
					t.Fatal("compress")
				}

				if err := f.Close(); err != nil {
					t.Fatal(err)
				}
			}

			overhead := int64(intake.Overhead + tree.ranks*intake.OverheadRank)
			agent := s.agent("--memory", "64MiB", "--grace", "60s")
			agent.until("all read", func(m map[string]float64) bool {
				return m["laggard_lines_read_total"] >= float64(tree.ranks*tree.lines) && m["laggard_backlog_bytes"] == 0
			})
			if err := agent.command.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}

			if got, most := agent.most(), memory+overhead; got > most {
				t.Errorf("the agent took %d MiB, --memory and overhead are %d MiB", got>>20, most>>20)
			} else {
				t.Logf("agent: %d MiB of %d", got>>20, most>>20)
			}

			pass := s.start("ingest", s.dir, "--to", "parquet:"+t.TempDir(), "--memory", "64MiB")
			if got, most := pass.most(), memory+overhead; got > most {
				t.Errorf("ingest took %d MiB, --memory and overhead are %d MiB", got>>20, most>>20)
			} else {
				t.Logf("ingest: %d MiB of %d", got>>20, most>>20)
			}
		})
	}
}
