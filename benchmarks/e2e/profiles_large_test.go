package e2e

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	_ "modernc.org/sqlite"
)

// BenchmarkLargeProfiles has laggard analyze databases of 500 MB, made of the samples by copying
// their rows until they are as long: the time of the process and the most memory that it held.
// Wanted: at most 256 MiB.
func BenchmarkLargeProfiles(b *testing.B) {
	const wanted = 500e6
	for _, l := range []large{
		{
			"nsight", "nsys/mfu_2gpu_before.sqlite", "nsys/mfu_2gpu_before.sqlite",
			map[string][]string{"CUPTI_ACTIVITY_KIND_KERNEL": {"start", "end"}, "CUPTI_ACTIVITY_KIND_RUNTIME": {"start", "end"}, "NVTX_EVENTS": {"start", "end"}},
			[]string{"correlationId"}, 400e6,
		},
		{
			"ascend", "ascend/db/level0/rank0_ascend_pt/ASCEND_PROFILER_OUTPUT/ascend_pytorch_profiler_0.db", "ascend/db/level0/rank0_ascend_pt/ASCEND_PROFILER_OUTPUT/ascend_pytorch_profiler_0.db",
			map[string][]string{
				"TASK": {"startNs", "endNs"}, "COMPUTE_TASK_INFO": nil, "COMMUNICATION_OP": {"startNs", "endNs"},
				"CANN_API": {"startNs", "endNs"}, "PYTORCH_API": {"startNs", "endNs"}, "STEP_TIME": {"startNs", "endNs"},
			},
			[]string{"connectionId", "globalTaskId", "opId", "id"}, 200e6,
		},
	} {
		b.Run(l.name, func(b *testing.B) {
			path := l.make(b, wanted)
			info, err := os.Stat(path)
			if err != nil {
				b.Fatal(err)
			}

			b.SetBytes(info.Size())
			for b.Loop() {
				from := time.Now()
				c := exec.Command(program, "analyze", path)
				out, err := c.CombinedOutput()
				if c.ProcessState == nil || c.ProcessState.ExitCode() != 4 {
					b.Fatalf("analyze: %v\n%s", err, out)
				}

				took := time.Since(from)
				most := c.ProcessState.SysUsage().(*syscall.Rusage).Maxrss
				b.ReportMetric(float64(most)/1024, "MiB-most")
				b.ReportMetric(c.ProcessState.UserTime().Seconds()+c.ProcessState.SystemTime().Seconds(), "cpu-s")
				b.Logf("%s: %.0f MB in %.1f s, %d MiB at most\n%s", l.name, float64(info.Size())/1e6, took.Seconds(), most/1024, firstLines(out))
			}
		})
	}
}

func firstLines(out []byte) string {
	lines := strings.SplitAfter(string(out), "\n")
	return strings.Join(lines[:min(len(lines), 6)], "")
}

// large is a database to make.
type large struct {
	name, sample, part string              // the whole sample may lie beside the checkout, a part is in testdata
	times              map[string][]string // columns by table, moved by span a copy
	numbers            []string            // columns that number rows, moved beyond those that are there
	span               int64               // ns of the sample
}

// make copies all rows behind themselves until the file is as long as wanted.
func (l *large) make(b *testing.B, wanted int64) string {
	b.Helper()
	from := filepath.Join(root, "..", "shared", "samples", l.sample)
	if _, err := os.Stat(from); err != nil {
		b.Logf("RAN WITHOUT THE WHOLE SAMPLE, whose rows are collectives less often: %v", err)
		from = filepath.Join(root, "writer", "profiles", "testdata", l.part)
	}

	text, err := os.ReadFile(from)
	if err != nil {
		b.Fatal(err)
	}

	path := filepath.Join(b.TempDir(), filepath.Base(from))
	if err := os.WriteFile(path, text, 0o600); err != nil {
		b.Fatal(err)
	}

	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode(OFF)&_pragma=synchronous(OFF)")
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	for span := l.span; ; span *= 2 {
		info, err := os.Stat(path)
		if err != nil {
			b.Fatal(err)
		}

		share := 64 * (wanted - info.Size()) / info.Size()
		if share <= 0 {
			return path
		}

		for table := range l.times {
			if err := l.copy(db, table, span, min(share+1, 64)); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// copy copies so many in 64 rows of a table.
func (l *large) copy(db *sql.DB, table string, span, share int64) error {
	columns, err := columnsOf(db, table)
	if err != nil {
		return err
	}

	values := slices.Clone(columns)
	for i, c := range columns {
		columns[i] = `"` + c + `"`
		switch {
		case slices.Contains(l.times[table], c):
			values[i] = fmt.Sprintf(`"%s" + %d`, c, span)
		case slices.Contains(l.numbers, c):
			values[i] = fmt.Sprintf(`"%s" + %d`, c, span/l.span*10_000_000)
		default:
			values[i] = columns[i]
		}
	}

	_, err = db.Exec(`INSERT INTO ` + table + ` (` + strings.Join(columns, ", ") + `) SELECT ` + strings.Join(values, ", ") + fmt.Sprintf(` FROM %s WHERE rowid %% 64 < %d`, table, share))
	return err
}

func columnsOf(db *sql.DB, table string) ([]string, error) {
	rows, err := db.Query(`SELECT * FROM ` + table + ` LIMIT 0`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	return columns, errors.Join(err, rows.Err())
}
