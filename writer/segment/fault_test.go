package segment

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/laggard-dev/laggard/schemas/record"
)

// faultDisk is Disk that fails at given calls: every method call has a number.
type faultDisk struct {
	FS
	calls int
	from  int // the first call that fails
	to    int // the first one that works again
	err   error
	short bool // a failing write writes half of its bytes first
	names []string
}

// unsynced returns a disk that works, and waits for no fsync: for tests of what the kernel
// has of a file.
func unsynced() *faultDisk { return &faultDisk{FS: Disk, from: -1, to: -1} }

func (d *faultDisk) fail(what string) error {
	d.calls++
	d.names = append(d.names, what)
	if d.calls-1 >= d.from && d.calls-1 < d.to {
		return d.err
	}

	return nil
}

func (d *faultDisk) Create(path string) (File, error) {
	if err := d.fail("create"); err != nil {
		return nil, err
	}

	f, err := d.FS.Create(path)
	return faultFile{f, d}, err
}

func (d *faultDisk) Append(path string) (File, error) {
	if err := d.fail("append"); err != nil {
		return nil, err
	}

	f, err := d.FS.Append(path)
	return faultFile{f, d}, err
}

func (d *faultDisk) SyncDir(dir string) error {
	return d.fail("syncdir") // no real one: it would only take time
}

func (d *faultDisk) Mkdir(dir string) error { return os.MkdirAll(dir, 0o755) }

func (d *faultDisk) Remove(path string) error {
	if err := d.fail("remove"); err != nil {
		return err
	}

	return d.FS.Remove(path)
}

type faultFile struct {
	File
	d *faultDisk
}

func (f faultFile) Write(b []byte) (int, error) {
	if err := f.d.fail("write"); err != nil {
		if f.d.short {
			n, _ := f.File.Write(b[:len(b)/2])
			return n, err
		}

		return 0, err
	}

	return f.File.Write(b)
}

func (f faultFile) Truncate(size int64) error {
	if err := f.d.fail("truncate"); err != nil {
		return err
	}

	return f.File.Truncate(size)
}

func (f faultFile) Sync() error {
	return f.d.fail("sync")
}

func (f faultFile) Close() error {
	err := f.d.fail("close")
	return errors.Join(f.File.Close(), err)
}

// TestWriter_SurvivesAFailureOfEachCall is R7 for the writer: it lets each call of a run fail, once and for
// a while, with and without half of the bytes written: every record that was
// accepted is in exactly one segment in the end, no segment passes its limit.
func TestWriter_SurvivesAFailureOfEachCall(t *testing.T) {
	total := faultRun(t, unsynced())
	if total < 20 {
		t.Fatalf("a run makes %d calls only", total)
	}

	for _, c := range []struct {
		name  string
		err   error
		short bool
		calls int
	}{
		{"eio_once", syscall.EIO, false, 1},
		{"eio_short_once", syscall.EIO, true, 1},
		{"enospc_for_three_calls", syscall.ENOSPC, true, 3},
		{"edquot_for_seven_calls", syscall.EDQUOT, true, 7},
		{"erofs_for_twenty_calls", syscall.EROFS, false, 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			for at := range total {
				faultRun(t, &faultDisk{FS: Disk, from: at, to: at + c.calls, err: c.err, short: c.short})
			}
		})
	}
}

// faultRun writes records through a failing disk, retrying as a drain does, with
// one restart in the middle, and checks what is there. It returns the calls made.
func faultRun(t *testing.T, d *faultDisk) int {
	t.Helper()
	dir := rankDir(t)
	o := Options{Limit: minLimit, Now: at(100), Buffer: 700, FS: d}
	const n = 120
	w, err := Open(dir, testMeta(1), o)
	must(t, err)
	for seq := uint64(0); seq < n; {
		if seq == n/2 && w.name != "" && len(w.buf) == 0 { // the agent is restarted
			retrying(t, d, w.Sync)
			must(t, closeRetrying(w))
			w, err = Open(dir, testMeta(1), o)
			must(t, err)
			if got := w.Next()[1]; got != seq {
				t.Fatalf("%s: Next()=%d after a restart, want %d", d.where(), got, seq)
			}
		}

		if w.AppendRecord(testRecord(1, seq)) == nil {
			seq++
		}

		if seq%20 == 0 {
			retrying(t, d, w.Sync)
		}
	}

	retrying(t, d, w.Sync)
	must(t, closeRetrying(w))
	got := seqs(t, dir, minLimit)
	for seq := range uint64(n) {
		if got[seq] != 1 {
			t.Fatalf("%s: record %d stands %d times", d.where(), seq, got[seq])
		}
	}

	if w, err = Open(dir, testMeta(1), o); err != nil || w.Next()[1] != n {
		t.Fatalf("%s: Next()=%v, %v; want %d", d.where(), w.Next(), err, n)
	}

	return d.calls
}

func (d *faultDisk) where() string {
	if d.from >= 0 && d.from < len(d.names) {
		return fmt.Sprintf("call %d (%s)", d.from, d.names[d.from])
	}

	return "no failure"
}

// retrying calls f until the disk works again.
func retrying(t *testing.T, d *faultDisk, f func() error) {
	t.Helper()
	for range 100 {
		if f() == nil {
			return
		}
	}

	t.Fatalf("%s: it never works again", d.where())
}

// closeRetrying closes; an error of close(2) itself leaves nothing to retry.
func closeRetrying(w *Writer) error {
	if len(w.buf) > 0 {
		return errors.New("lines are left")
	}

	_ = w.Close()
	return nil
}

// TestWriter_FullDiskUsesUpNoNames: while the disk is full there is one empty
// segment at most, and it is gone after Close.
func TestWriter_FullDiskUsesUpNoNames(t *testing.T) {
	dir := rankDir(t)
	d := &faultDisk{FS: Disk, from: -1, to: -1, err: syscall.ENOSPC, short: true}
	w := open(t, dir, Options{Now: at(100), FS: writeFault{d}})
	must(t, w.AppendRecord(testRecord(1, 0)))
	d.from, d.to = 0, 1<<30
	for range 50 {
		if err := w.Flush(); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("Flush()=%v", err)
		}
	}

	all, err := List(dir)
	must(t, err)
	if len(all) != 1 || all[0].Size != 0 {
		t.Fatalf("segments: %+v", all)
	}

	d.to = 0 // there is room again
	must(t, w.Flush())
	must(t, w.Close())
	if w.Name() != "100" {
		t.Errorf("the segment is named %s", w.Name())
	}

	if got := seqs(t, dir, DefaultLimit); got[0] != 1 {
		t.Error("the record is lost")
	}
}

// writeFault fails writes only.
type writeFault struct{ d *faultDisk }

func (f writeFault) Mkdir(dir string) error                { return Disk.Mkdir(dir) }
func (f writeFault) SyncDir(dir string) error              { return Disk.SyncDir(dir) }
func (f writeFault) Remove(path string) error              { return Disk.Remove(path) }
func (f writeFault) Append(path string) (File, error)      { return f.wrap(Disk.Append(path)) }
func (f writeFault) Create(path string) (File, error)      { return f.wrap(Disk.Create(path)) }
func (f writeFault) wrap(file File, e error) (File, error) { return writeOnly{file, f.d}, e }

type writeOnly struct {
	File
	d *faultDisk
}

func (f writeOnly) Write(b []byte) (int, error) { return faultFile(f).Write(b) }

// TestWriter_LeavesASegmentAfterAFailedSync: what a kernel says of a file after a
// failed fsync proves nothing.
func TestWriter_LeavesASegmentAfterAFailedSync(t *testing.T) {
	dir := rankDir(t)
	d := &faultDisk{FS: Disk, from: -1, to: -1, err: syscall.EIO}
	w := open(t, dir, Options{Now: at(100), FS: d})
	must(t, w.AppendRecord(testRecord(1, 0)))
	must(t, w.Flush())
	d.from, d.to = d.calls, d.calls+1
	if err := w.Sync(); !errors.Is(err, syscall.EIO) {
		t.Fatalf("Sync()=%v", err)
	}

	must(t, w.Sync())
	must(t, w.AppendRecord(testRecord(1, 1)))
	must(t, w.Close())
	if got := lines(t, dir); len(got["100"]) != 2 || len(got["101"]) != 2 {
		t.Errorf("segments: %v", got)
	}
}

// TestOpen_TornAtEveryByte is R6: it cuts the newest segment at every byte: the prefix of
// complete lines stays, Next tells from where to go on, and after the lost records
// are appended again each stands once.
func TestOpen_TornAtEveryByte(t *testing.T) {
	whole := rankDir(t)
	w := open(t, whole, Options{Now: at(100)})
	for seq := range uint64(6) {
		must(t, w.AppendRecord(testRecord(1, seq)))
	}

	must(t, w.Close())
	data, err := os.ReadFile(filepath.Join(whole, "100"))
	must(t, err)
	for cut := range data {
		dir := rankDir(t)
		must(t, os.MkdirAll(dir, 0o755))
		must(t, os.WriteFile(filepath.Join(dir, "100"), data[:cut], 0o644))
		w := open(t, dir, Options{Now: at(100), FS: unsynced()})
		next := w.Next()[1]
		if next > 6 {
			t.Fatalf("cut at %d: Next()=%d", cut, next)
		}

		for seq := next; seq < 6; seq++ {
			must(t, w.AppendRecord(testRecord(1, seq)))
		}

		must(t, w.Close())
		// A file without a whole identity line is nobody's: it stays as it is.
		got := make(map[uint64]int)
		var p record.Parser
		for _, ls := range lines(t, dir) {
			for _, l := range ls {
				if typ, err := p.Parse([]byte(l)); err != nil {
					t.Fatalf("cut at %d: %q: %v", cut, l, err)
				} else if typ == record.LineRecord {
					got[p.Record.Seq]++
				}
			}
		}

		for seq := range uint64(6) {
			if got[seq] != 1 {
				t.Fatalf("cut at %d: record %d stands %d times", cut, seq, got[seq])
			}
		}
	}
}

// TestOpen_FlippedBytes is R6: it changes every byte of a segment: opening never fails, and
// every line but the one that holds the byte is read as it was written (and but the one
// after it, when the byte was the newline between them).
func TestOpen_FlippedBytes(t *testing.T) {
	whole := rankDir(t)
	w := open(t, whole, Options{Now: at(100)})
	for seq := range uint64(6) {
		must(t, w.AppendRecord(testRecord(1, seq)))
	}

	must(t, w.Close())
	data, err := os.ReadFile(filepath.Join(whole, "100"))
	must(t, err)
	rng := rand.New(rand.NewPCG(1, 1))
	dir := rankDir(t)
	must(t, os.MkdirAll(dir, 0o755))
	for i := range data {
		bad := append([]byte(nil), data...)
		bad[i] ^= byte(1 + rng.IntN(255))
		must(t, os.WriteFile(filepath.Join(dir, "100"), bad, 0o644))
		read := map[string]int{}
		for _, l := range lines(t, dir)["100"] {
			read[l]++
		}

		from := 0
		for _, l := range strings.SplitAfter(string(data), "\n") {
			touched := i >= from-1 && i < from+len(l) && (i >= from || data[i] == '\n')
			if from += len(l); l != "" && !touched && read[strings.TrimSuffix(l, "\n")] != 1 {
				t.Fatalf("byte %d: the line %.60q stands %d times", i, l, read[strings.TrimSuffix(l, "\n")])
			}
		}

		w, err := Open(dir, testMeta(1), Options{Now: at(100), FS: unsynced()})
		if err != nil {
			t.Fatalf("byte %d: %v", i, err)
		}

		must(t, w.AppendRecord(testRecord(1, 6)))
		must(t, w.Close())
		must(t, os.RemoveAll(filepath.Join(dir, "101")))
	}
}

// FuzzOpen is R21: it resumes from any bytes: no panic, and what is appended afterwards is there
// after another restart.
func FuzzOpen(f *testing.F) {
	meta := testMeta(1)
	meta.Segment = "8d1f000000000001"
	line := meta.AppendLine(nil)
	f.Add(append(append([]byte(nil), line...), testRecord(1, 0).AppendLine(nil)...))
	f.Add(append(append([]byte(nil), line[:len(line)-2]...), ",\"next\":{\"1\":5,\"x\":-1}}\n{\"kind\""...))
	f.Fuzz(func(t *testing.T, data []byte) {
		path := put(t, "100", data)
		dir := filepath.Dir(path)
		quick := Options{Now: at(100), FS: unsynced()}
		w := open(t, dir, quick)
		defer w.Close()
		next := w.Next()[1]
		if w.Ended() || next > 1<<60 {
			return
		}

		must(t, w.AppendRecord(testRecord(1, next)))
		must(t, w.Close())
		again := open(t, dir, quick)
		defer again.Close()
		if again.Next()[1] != next+1 {
			t.Fatalf("Next()=%v, want %d", again.Next(), next+1)
		}
	})
}
