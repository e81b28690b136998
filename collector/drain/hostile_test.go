package drain_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/laggard-dev/laggard/collector/internal/ringtest"
	"github.com/laggard-dev/laggard/collector/recorder"
	"github.com/laggard-dev/laggard/collector/ring"
	"github.com/laggard-dev/laggard/schemas/record"
)

// TestScribbled spoils slots of a living ring: they are waited for, then counted,
// and nothing else is lost.
func TestScribbled(t *testing.T) {
	w := &ringtest.Memory{}
	b := newBench(t, w, nil)
	b.mark(record.FP, 10)
	spoil(t, b.run, 3, 4)
	if n, _ := b.pass(t); n != 3 {
		t.Fatalf("%d records before the spoilt slot", n)
	}

	b.now = b.now.Add(2 * time.Second)
	if n, _ := b.pass(t); n != 5 {
		t.Fatalf("%d records after it", n)
	}

	if len(w.Losses) != 1 || w.Losses[0].Reason != record.Corrupt || w.Losses[0].Count != 2 || w.Losses[0].Ring != 1 {
		t.Errorf("losses %+v", w.Losses)
	}

	b.rec.Close()
	b.pass(t)
	if w.End == nil || w.End.Dropped[record.Corrupt] != 2 || w.End.Emitted["FP"] != 10 {
		t.Errorf("end %+v", w.End)
	}
}

// spoil flips a byte in light slots of ring-1 of the only process.
func spoil(t *testing.T, run string, slots ...int) {
	t.Helper()
	files, _ := filepath.Glob(filepath.Join(run, "*", "ring-1"))
	f, err := os.OpenFile(files[0], os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, s := range slots {
		if _, err := f.WriteAt([]byte{0xFF}, int64(8192+64*s+20)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestHostileRing is R23: it lets a writer scribble over everything while a drain reads: it
// must neither stop nor fail for others.
func TestHostileRing(t *testing.T) {
	w := &ringtest.Memory{}
	b := newBench(t, w, nil)
	b.mark(record.FP, 100)
	b.pass(t)
	files, _ := filepath.Glob(filepath.Join(b.run, "*", "*"))
	x := uint64(ringtest.Seed())
	t.Logf("seed %d", x)
	next := func(n int) int {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		return int(x % uint64(n))
	}
	for range 2000 {
		path := files[next(len(files))]
		if filepath.Base(path) == ring.LockName {
			continue
		}

		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}

		v := []byte(fmt.Sprintf("%d", next(1<<30)))
		at := next(600)
		if next(3) == 0 {
			at = next(8192 + 64*200)
		}

		if filepath.Base(path) == ring.ProcessName && at < 128 {
			at += 128 // the identity of the folder was checked when it was opened
		}

		f.WriteAt(v[:1+next(len(v))], int64(at))
		f.Close()
		if next(10) == 0 {
			b.mark(record.Communication, 5)
		}

		if next(20) == 0 {
			b.now = b.now.Add(time.Duration(next(3000)) * time.Millisecond)
			b.Pass()
		}
	}
}

func TestForeignFolders(t *testing.T) {
	w := &ringtest.Memory{}
	b := newBench(t, w, nil)
	b.mark(record.FP, 1)
	for _, n := range []string{"00000000000000aa", "00000000000000ab"} {
		if err := os.MkdirAll(filepath.Join(b.run, n), 0o770); err != nil {
			t.Fatal(err)
		}
	}

	if err := os.WriteFile(filepath.Join(b.run, "00000000000000ab", ring.ProcessName), []byte("junk"), 0o660); err != nil {
		t.Fatal(err)
	}

	if _, err := b.Pass(); !errors.Is(err, ring.ErrNotRing) {
		t.Errorf("Pass = %v, want the foreign folder named", err)
	}

	if _, err := b.Pass(); err != nil {
		t.Errorf("Pass says it again: %v", err)
	}

	if len(w.Records) != 1 {
		t.Errorf("%d records", len(w.Records))
	}
}

// TestNewerRecorders is R31: a kind, flags and a dtype that this agent does not know are
// kept; a folder of another version is left as it is, named once and counted, and
// holds nobody up.
func TestNewerRecorders(t *testing.T) {
	w := &ringtest.Memory{}
	b := newBench(t, w, nil)
	const kind, dtype = record.Kind(200), 250
	b.th.Mark(kind, recorder.Attr{Text: b.rec.Intern("Compile"), Value: 7}, 1000, 1)
	b.th.Mark(record.Communication, recorder.Op(b.rec.Intern("allreduce_v9"), b.rec.Intern("dp0"), 5, dtype), 1001, 1)
	b.mark(record.FP, 1)
	newer := filepath.Join(b.run, "00000000000000aa")
	old, _ := filepath.Glob(filepath.Join(b.run, "*"))
	if err := os.CopyFS(newer, os.DirFS(old[0])); err != nil {
		t.Fatal(err)
	}

	f, err := os.OpenFile(filepath.Join(newer, ring.ProcessName), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte{2}, 8); err != nil { // the version
		t.Fatal(err)
	}

	if _, err := b.Pass(); !errors.Is(err, ring.ErrNotRing) || !strings.Contains(err.Error(), "version") {
		t.Errorf("Pass = %v, want the other version named", err)
	}

	b.pass(t)
	if s := b.Stats(); s.Ignored != 1 || s.Processes != 1 {
		t.Errorf("%d folders ignored, %d drained", s.Ignored, s.Processes)
	}

	if names, _ := os.ReadDir(newer); len(names) != 2 {
		t.Errorf("the other version's folder has %v", names)
	}

	words := map[string]record.Record{}
	for _, r := range w.Records {
		words[r.Word()] = r
	}

	if r := words["Compile"]; len(words) != 3 || r.Kind != record.Other || r.Bytes != 7 || words["Communication"].Count != 5 {
		t.Errorf("records %+v", w.Records)
	}

	if err := os.RemoveAll(newer); err != nil {
		t.Fatal(err)
	}

	b.pass(t)
	if n := b.Stats().Ignored; n != 0 {
		t.Errorf("%d folders ignored when it is gone", n)
	}
}
