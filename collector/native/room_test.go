package native_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/laggard-dev/laggard/collector/internal/ringtest"
	"github.com/laggard-dev/laggard/schemas/record"
)

// taken returns the bytes that the files below a directory take.
func taken(t *testing.T, dir string) (n int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}

		var st syscall.Stat_t
		err = syscall.Lstat(path, &st)
		n += st.Blocks * 512
		return err
	})
	if err != nil {
		t.Fatal(err)
	}

	return n
}

// TestOrphans: 300 forked children that are killed while no agent is there. What they
// leave, 732 MB once, is what they recorded; the agent that comes later finds all of it.
func TestOrphans(t *testing.T) {
	const children = 300
	run := ringtest.Shared(t)
	runs(t, command(t, ringtest.Driver(t), run, "orphans", strconv.Itoa(children), "one after the other"))
	runs(t, command(t, ringtest.Driver(t), run, "orphans", "1", "one after the other")) // the next process frees the last one's
	if n := taken(t, run); n > children*64<<10 {
		t.Errorf("%d children left %d bytes", children+1, n)
	} else {
		t.Logf("%d children left %d bytes", children+1, n)
	}

	c := ringtest.NewDrain(t, run)
	c.Finish(t)
	if len(c.Writers) != children+1 {
		t.Fatalf("%d processes are found", len(c.Writers))
	}

	for id, w := range c.Writers {
		if len(w.Records) != 3 || w.Lost() != 0 || w.End == nil || w.End.How != "killed" || w.End.Emitted["other"] != 3 {
			t.Fatalf("%s: %d records, %d lost, end %+v", id, len(w.Records), w.Lost(), w.End)
		}

		if last := w.Records[2]; w.End.At < last.Start+last.Dur {
			t.Fatalf("%s ended at %d, before its last record", id, w.End.At)
		}
	}
}

// TestCrowd: 200 children that live at a time stay within their user's share; what finds
// no ring is counted, exactly.
func TestCrowd(t *testing.T) {
	const children, share = 200, 256 << 20
	run := ringtest.Shared(t)
	_, said := ringtest.Runs(t, command(t, ringtest.Driver(t), run, "orphans", strconv.Itoa(children), "together"))
	if n := taken(t, run); n > share {
		t.Errorf("%d children take %d bytes", children, n)
	} else {
		t.Logf("%d children took %d bytes", children, n)
	}

	c := ringtest.NewDrain(t, run)
	c.Finish(t)
	stored, lost := 0, uint64(0)
	for _, w := range c.Writers {
		stored += len(w.Records)
		for _, l := range w.Losses {
			if l.Reason != record.NoRing {
				t.Errorf("loss %+v", l)
			}

			lost += l.Count
		}
	}

	refused := strings.Count(said, "is an agent draining it?")
	if stored+int(lost)+3*refused != 3*children || lost == 0 {
		t.Errorf("%d stored, %d counted, %d processes refused; want %d ranges in all", stored, lost, refused, 3*children)
	}

	t.Logf("%d stored, %d counted as no-ring, %d processes refused", stored, lost, refused)
}
