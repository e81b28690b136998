package drain_test

import (
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/laggard-dev/laggard/collector/drain"
	"github.com/laggard-dev/laggard/collector/recorder"
	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/writer/segment"
)

// BenchmarkDrain is P7: rings of 30,000 Communication and 1,000 light records are
// drained into segments, and after each round the same bytes are copied as cp does
// it, without reflinks. Both are told in time on a core, what counts where others
// share it: records a second, and the drain's bytes a second against cp's.
func BenchmarkDrain(b *testing.B) {
	dir := b.TempDir()
	x := newBench(b, nil, func(o *drain.Options) {
		o.Open = func(m record.Meta) (drain.Writer, error) {
			return segment.Open(filepath.Join(dir, "j", "2"), m, segment.Options{})
		}
	})
	op, group := x.rec.Intern("HcclAllreduce"), x.rec.Intern("dp0")
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	used := time.Duration(0)
	var ratios []float64
	for b.Loop() {
		b.StopTimer()
		for i := range 30000 {
			x.th.Mark(record.Communication, recorder.Op(op, group, 4194304, record.DtypeCode("bf16")), 1753000000000000000+int64(i), 5400000)
			if i%30 == 0 {
				x.th.Mark(record.FP, recorder.Attr{}, 1753000000000000000+int64(i), 5400000)
			}
		}

		was := bytesIn(b, filepath.Join(dir, "j", "2"))
		before := cpu(b)
		b.StartTimer()
		if _, err := x.Pass(); err != nil {
			b.Fatal(err)
		}

		took := cpu(b) - before
		b.StopTimer()
		used += took
		n := bytesIn(b, filepath.Join(dir, "j", "2")) - was
		ratios = append(ratios, copied(b, filepath.Join(dir, "copy"), n).Seconds()/took.Seconds())
		b.StartTimer()
	}

	slices.Sort(ratios)
	b.ReportMetric(float64(drained(x.Drain))/used.Seconds()/1e6, "Mrecords/cpu-s")
	b.ReportMetric(100*ratios[len(ratios)/2], "%cp")
	b.ReportMetric(100*ratios[len(ratios)/10], "%cp-p10")
	b.ReportMetric(100*ratios[len(ratios)*9/10], "%cp-p90")
}

// bytesIn returns the bytes of the segments in a directory.
func bytesIn(b *testing.B, dir string) (sum int64) {
	infos, err := segment.ListAll(dir)
	if err != nil && !os.IsNotExist(err) && len(infos) > 0 {
		b.Fatal(err)
	}

	for _, s := range infos {
		sum += s.Size
	}

	return sum
}

// copied copies a file of n bytes in the page cache to another one as cp does, in
// pieces of 128 KiB, and returns the time on a core.
func copied(b *testing.B, path string, n int64) time.Duration {
	if err := os.WriteFile(path, make([]byte, n), 0o644); err != nil {
		b.Fatal(err)
	}

	before := cpu(b)
	in, err := os.Open(path)
	if err != nil {
		b.Fatal(err)
	}
	defer in.Close()
	out, err := os.Create(path + ".2")
	if err != nil {
		b.Fatal(err)
	}

	// Wrapped, so that nothing but read and write is found: no copy_file_range.
	_, err = io.CopyBuffer(struct{ io.Writer }{out}, struct{ io.Reader }{in}, make([]byte, 128<<10))
	if err != nil {
		b.Fatal(err)
	}

	if err := out.Close(); err != nil {
		b.Fatal(err)
	}

	took := cpu(b) - before
	if err := os.Remove(path + ".2"); err != nil {
		b.Fatal(err)
	}

	return took
}

// cpu returns the time this thread has had on a core.
func cpu(b *testing.B) time.Duration {
	var at unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &at); err != nil {
		b.Fatal(err)
	}

	return time.Duration(at.Nano())
}
