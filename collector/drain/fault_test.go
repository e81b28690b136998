package drain_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/laggard-dev/laggard/collector/drain"
	"github.com/laggard-dev/laggard/collector/internal/ringtest"
	"github.com/laggard-dev/laggard/collector/ring"
	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/writer/segment"
)

// TestFailingWriter lets the disk be full for a while.
func TestFailingWriter(t *testing.T) {
	w := &ringtest.Memory{}
	b := newBench(t, w, nil)
	b.mark(record.FP, 10)
	b.pass(t)
	w.Err = unix.ENOSPC
	b.mark(record.FP, ring.LightSlots+20)
	for range 3 {
		if _, err := b.Pass(); !errors.Is(err, unix.ENOSPC) {
			t.Fatalf("Pass = %v, want ENOSPC", err)
		}
	}

	w.Err = nil
	b.now = b.now.Add(time.Second)
	b.pass(t)
	if len(w.Records) != 10+ring.LightSlots || w.Lost() != 20 {
		t.Errorf("%d records, %d lost", len(w.Records), w.Lost())
	}
}

// tmpfs mounts a small file system for a test.
func tmpfs(t *testing.T, options string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, options); errors.Is(err, unix.EPERM) {
		t.Skip("NOT TESTED: a full or read-only file system, because mounting one needs root")
	} else if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

// TestFullDisk is R7 on a real file system that fills under a real segment writer:
// the rings fill up and count, and draining goes on with the first look after there
// is room.
func TestFullDisk(t *testing.T) {
	dir := tmpfs(t, "size=256k")
	b := newBench(t, nil, func(o *drain.Options) { o.Open = opener(dir) })
	emitted, failed := uint64(0), 0
	for range 12 {
		b.mark(record.FP, 500)
		emitted += 500
		b.now = b.now.Add(time.Second)
		if _, err := b.Pass(); err != nil {
			failed++
		}
	}

	if failed == 0 {
		t.Fatal("the disk did not fill")
	}

	if err := unix.Mount("", dir, "", unix.MS_REMOUNT, "size=4m"); err != nil {
		t.Fatal(err)
	}

	b.rec.Close()
	for range 5 {
		b.now = b.now.Add(2 * time.Second)
		b.Pass()
	}

	if !b.Idle() {
		t.Fatalf("it does not go on: %+v", b.Stats())
	}

	read(t, dir).exact(t, 1, emitted)
}

// TestReadOnlyDisk is R7's remount: nothing can be written, made or synced for a
// while, then all is well again.
func TestReadOnlyDisk(t *testing.T) {
	dir := tmpfs(t, "size=4m")
	b := newBench(t, nil, func(o *drain.Options) { o.Open = opener(dir) })
	emitted := uint64(0)
	look := func() error {
		b.mark(record.FP, 400)
		emitted += 400
		b.now = b.now.Add(time.Second)
		_, err := b.Pass()
		return err
	}
	// Before the first segment: a kernel remounts no file system with a file open for
	// writing. TestEveryDiskCallFails has EROFS in the middle.
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}

	failed := 0
	for range 10 {
		if look() != nil {
			failed++
		}
	}

	if failed == 0 {
		t.Error("nothing failed on a read-only file system")
	}

	if err := unix.Mount("", dir, "", unix.MS_REMOUNT, ""); err != nil {
		t.Fatal(err)
	}

	b.rec.Close()
	for range 3 {
		b.now = b.now.Add(time.Second)
		b.Pass()
	}

	if !b.Idle() {
		t.Fatalf("it does not go on within 3 s: %+v", b.Stats())
	}

	read(t, dir).exact(t, 1, emitted)
}

// brokenDisk fails the calls from one number on for some calls.
type brokenDisk struct {
	segment.FS
	calls, from, count int
	err                error
}

func (d *brokenDisk) next() error {
	d.calls++
	if d.calls > d.from && d.calls <= d.from+d.count {
		return d.err
	}

	return nil
}

func (d *brokenDisk) Mkdir(dir string) error {
	if err := d.next(); err != nil {
		return err
	}

	return d.FS.Mkdir(dir)
}

func (d *brokenDisk) Create(path string) (segment.File, error) { return d.open(path, d.FS.Create) }
func (d *brokenDisk) Append(path string) (segment.File, error) { return d.open(path, d.FS.Append) }

func (d *brokenDisk) open(path string, open func(string) (segment.File, error)) (segment.File, error) {
	if err := d.next(); err != nil {
		return nil, err
	}

	f, err := open(path)
	return brokenFile{f, d}, err
}

func (d *brokenDisk) SyncDir(string) error { return d.next() }

func (d *brokenDisk) Remove(path string) error {
	if err := d.next(); err != nil {
		return err
	}

	return d.FS.Remove(path)
}

type brokenFile struct {
	segment.File
	d *brokenDisk
}

func (f brokenFile) Write(b []byte) (int, error) {
	if err := f.d.next(); err != nil {
		n, _ := f.File.Write(b[:len(b)/3])
		return n, err
	}

	return f.File.Write(b)
}

func (f brokenFile) Truncate(size int64) error {
	if err := f.d.next(); err != nil {
		return err
	}

	return f.File.Truncate(size)
}

func (f brokenFile) Sync() error  { return f.d.next() }
func (f brokenFile) Close() error { return errors.Join(f.d.next(), f.File.Close()) }

// TestEveryDiskCallFails is R7 at every call: each call that draining makes on the
// disk fails once with EIO, or is the first of seven to find the disk full, the quota
// used up or the file system read-only. The account closes, and the drain is done
// within five seconds of the disk's recovery.
func TestEveryDiskCallFails(t *testing.T) {
	all := brokenRun(t, &brokenDisk{FS: segment.Disk, from: 1 << 30})
	if all < 25 {
		t.Fatalf("a run makes %d calls only", all)
	}

	errs := []error{unix.ENOSPC, unix.EDQUOT, unix.EROFS}
	for from := range all {
		brokenRun(t, &brokenDisk{FS: segment.Disk, from: from, count: 1, err: unix.EIO})
		brokenRun(t, &brokenDisk{FS: segment.Disk, from: from, count: 7, err: errs[from%len(errs)]})
	}

	t.Logf("%d calls, each failed twice", all)
}

func brokenRun(t *testing.T, d *brokenDisk) (calls int) {
	t.Helper()
	dir := t.TempDir()
	b := newBench(t, nil, func(o *drain.Options) {
		o.Open = func(m record.Meta) (drain.Writer, error) {
			return segment.Open(dir+"/j/2", m, segment.Options{Limit: 8 << 10, FS: d})
		}
	})
	what := fmt.Sprintf("%v at call %d for %d", d.err, d.from, d.count)
	emitted := uint64(0)
	for range 8 {
		b.mark(record.FP, 60)
		emitted += 60
		b.now = b.now.Add(time.Second)
		b.Pass()
	}

	b.rec.Close()
	for left := 5; !b.Idle(); left-- {
		recovered := d.calls > d.from+d.count
		b.now = b.now.Add(time.Second)
		b.Pass()
		if !recovered {
			left = 5 // its time runs from the last call that failed
		}

		if left == 0 {
			t.Fatalf("%s: it does not end: %+v", what, b.Stats())
		}
	}

	read(t, dir).exact(t, 1, emitted)
	if t.Failed() {
		t.Fatal(what)
	}

	b.Drain.Close()
	return d.calls
}
