package segment

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/laggard-dev/laggard/schemas/record"
)

// TestSwappedWhileOpening is R24: while readers and writers open, somebody swaps
// segments and the rank directory itself for links to a file and a folder of others,
// for FIFOs and for hard links. Nothing outside is read as ours or changed, nothing
// hangs.
func TestSwappedWhileOpening(t *testing.T) {
	dir := rankDir(t)
	outside := t.TempDir()
	victim := filepath.Join(outside, "100")
	const secret = "not a line of ours"
	must(t, os.WriteFile(victim, []byte(secret), 0o644))
	stop := make(chan struct{})
	var swapper sync.WaitGroup
	swapper.Add(1)
	go func() {
		defer swapper.Done()
		path := filepath.Join(dir, "100")
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}

			os.MkdirAll(dir, 0o755) // each of these may lose its race with the others: any mixture will do
			os.Remove(path)
			switch i % 5 {
			case 0:
				os.Symlink(victim, path)
			case 1:
				unix.Mkfifo(path, 0o644)
			case 2:
				os.WriteFile(path, []byte("{}\n"), 0o644)
			case 3:
				os.Link(victim, path)
			case 4:
				os.Rename(dir, dir+".away")
				os.Symlink(outside, dir)
				os.Remove(dir)
				os.Rename(dir+".away", dir)
			}
		}
	}()
	const tries = 500
	for i := range tries {
		if r, err := OpenReader(filepath.Join(dir, "100")); err == nil {
			for err == nil {
				_, _, err = r.Next()
			}

			r.Close()
		}

		if i%10 > 0 {
			continue
		}

		w, err := Open(dir, testMeta(record.ID(i)), Options{Now: at(100), FS: unsynced()})
		if err != nil {
			continue
		}

		_ = w.AppendRecord(testRecord(1, 0))
		_ = w.Close()
	}

	close(stop)
	swapper.Wait()
	if got, err := os.ReadFile(victim); err != nil || string(got) != secret {
		t.Errorf("the file outside is %q, %v", got, err)
	}

	if all, err := os.ReadDir(outside); err != nil || len(all) != 1 {
		t.Errorf("outside there are %v, %v", all, err)
	}
}

// TestPathsThatAreNone is R24: a path longer than the kernel takes is an error, names
// with newlines are no segments.
func TestPathsThatAreNone(t *testing.T) {
	long := filepath.Join(t.TempDir(), strings.Repeat(strings.Repeat("x", 200)+"/", 25), "j", "3")
	if w, err := Open(long, testMeta(1), Options{}); err == nil {
		w.Close()
		t.Error("a path of 5,000 bytes was opened")
	} else if !errors.Is(err, unix.ENAMETOOLONG) {
		t.Errorf("a path of 5,000 bytes: %v", err)
	}

	dir := rankDir(t)
	must(t, os.MkdirAll(dir, 0o755))
	for _, name := range []string{"100\n", "\n100", "1\n0", "100\n.zst"} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o644))
	}

	if all, err := List(dir); err != nil || len(all) != 0 {
		t.Errorf("segments %v, %v", all, err)
	}
}

// TestClockOfAnyKind is R20: the clock that names segments steps an hour forth and
// back, freezes and falls to 1970, with restarts between; names grow all the same, and
// the records are read in their order.
func TestClockOfAnyKind(t *testing.T) {
	dir := rankDir(t)
	now := int64(1_753_000_000)
	clock := func() time.Time { return time.Unix(now, 0) }
	steps := []int64{0, 3600, -3600, 0, 0, -1 << 40, 5, 1 << 40, -7200, 60}
	seq := uint64(0)
	for _, step := range steps {
		now = max(now+step, 0)
		w := open(t, dir, Options{Limit: minLimit, Now: clock})
		if got := w.Next()[1]; got != seq {
			t.Fatalf("after a step of %d s Next()=%d, want %d", step, got, seq)
		}

		for range 60 {
			must(t, w.AppendRecord(testRecord(1, seq)))
			seq++
		}

		must(t, w.Close())
	}

	all, err := List(dir)
	must(t, err)
	want := uint64(0)
	var p record.Parser
	for _, s := range all {
		r := reader(t, filepath.Join(dir, s.Name))
		for {
			line, _, err := r.Next()
			if err != nil {
				break
			}

			if typ, err := p.Parse(line); err == nil && typ == record.LineRecord {
				if p.Record.Seq != want {
					t.Fatalf("segment %s holds record %d, want %d", s.Name, p.Record.Seq, want)
				}

				want++
			}
		}
	}

	if want != seq || len(all) < len(steps) {
		t.Errorf("%d records in %d segments, want %d", want, len(all), seq)
	}
}
