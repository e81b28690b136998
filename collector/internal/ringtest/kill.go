package ringtest

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/laggard-dev/laggard/schemas/record"
)

// Acks is shared memory in which each thread of a trainer that gets killed says
// what it has begun and ended, and the test says what of it is drained. Thread i
// names its ranges "t<i>" (op, or word of its own kind) and numbers them from 0 in
// count or bytes; number n is a Communication unless n%8 is 3.
type Acks struct {
	Path string
	mem  []byte
	told int                   // records of the one Memory that were acknowledged
	seen [ackThreads][2]uint64 // of them, by thread and lane
}

// ackThreads is how many threads Acks has room for.
const ackThreads = 64

// ackSize is a cache line, so that threads which count do not slow each other.
const ackSize = 64

// NewAcks makes the shared memory beside a run directory.
func NewAcks(t testing.TB, run string) *Acks {
	t.Helper()
	path := filepath.Join(filepath.Dir(run), "acks")
	if err := os.WriteFile(path, make([]byte, ackSize*ackThreads), 0o600); err != nil {
		t.Fatal(err)
	}

	a, err := OpenAcks(path)
	if err != nil {
		t.Fatal(err)
	}

	return a
}

// OpenAcks maps what NewAcks made.
func OpenAcks(path string) (*Acks, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	mem, err := unix.Mmap(int(f.Fd()), 0, ackSize*ackThreads, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	return &Acks{Path: path, mem: mem}, err
}

// Close unmaps it.
func (a *Acks) Close() { _ = unix.Munmap(a.mem) }

// word returns the i-th number of a thread, each thread's in a cache line of their own.
func (a *Acks) word(thread, i int) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&a.mem[ackSize*thread+8*i]))
}

// Begun, Ended and Stored are a thread's counters: the first two are the
// trainer's, the last is the test's.
func (a *Acks) Begun(thread int) *atomic.Uint64  { return a.word(thread, 0) }
func (a *Acks) Ended(thread int) *atomic.Uint64  { return a.word(thread, 1) }
func (a *Acks) Stored(thread int) *atomic.Uint64 { return a.word(thread, 2) }

// Acknowledge says what is drained, so that the trainer may go on: up to which
// number each thread's ranges are all there, in either ring.
func (a *Acks) Acknowledge(w *Memory) {
	for i := range w.Records[a.told:] {
		r := &w.Records[a.told+i]
		name, _ := number(r)
		thread, err := strconv.Atoi(name[1:])
		if err != nil {
			panic("BUG: a range of no thread: " + name)
		}

		seen := &a.seen[thread]
		if r.Kind == record.Communication {
			seen[1]++
		} else {
			seen[0]++
		}

		// One in eight goes to the light ring, the others to the bulk one: the lower of what
		// both have up to is there in full.
		a.Stored(thread).Store(min(8*seen[0]+3, seen[1]/7*8))
	}

	a.told = len(w.Records)
}

// Window is how many records of a thread may be undrained so that none of threads
// rings can overflow: a bit less than the smallest of them holds, of which an
// eighth is light.
func Window(threads int) int {
	switch {
	case threads <= 4:
		return 8000
	case threads <= 8:
		return 2000
	}

	return 380
}

// Tally counts what became of the ranges of killed trainers.
type Tally struct{ Stored, Dropped, Open, Inside uint64 }

// Add adds b.
func (a *Tally) Add(b Tally) {
	a.Stored += b.Stored
	a.Dropped += b.Dropped
	a.Open += b.Open
	a.Inside += b.Inside
}

// CheckKilled compares what is stored of a killed trainer with what its threads
// know they did: what a call had returned from is there, once; what a thread died
// in is named; nothing is there that wasn't begun. w is nil when the trainer made
// no folder. flood says that rings may have overflown: then what is missing must be
// counted.
func CheckKilled(t testing.TB, w *Memory, a *Acks, threads int, flood bool) (sum Tally) {
	t.Helper()
	if w == nil {
		for i := range threads {
			if a.Begun(i).Load() != 0 {
				t.Errorf("thread %d had begun %d ranges; there is no folder", i, a.Begun(i).Load())
			}
		}

		return sum
	}

	stored, open := byThread(t, w.Records), byThread(t, w.Open)
	var missing uint64
	for i := range threads {
		k := thread{t: t, name: "t" + strconv.Itoa(i), begun: a.Begun(i).Load(), ended: a.Ended(i).Load()}
		k.stored, k.open = stored[k.name], open[k.name]
		missing += k.check(flood && w.Lost() > 0)
		if k.begun > k.ended {
			sum.Inside++
		}

		sum.Stored += uint64(len(k.stored))
		sum.Open += uint64(len(k.open))
	}

	sum.Dropped = w.Lost()
	for _, l := range w.Losses {
		if l.Reason == record.NoRing {
			t.Errorf("%d threads, and not all have a ring: %v", threads, l)
		}
	}

	if !flood && sum.Dropped != 0 {
		t.Errorf("losses %v", w.Losses)
	}

	// Each thread may have died between counting a drop and returning.
	if missing > sum.Dropped || sum.Dropped-missing > uint64(threads) {
		t.Errorf("%d acknowledged records are missing, %d are counted", missing, sum.Dropped)
	}

	if w.End == nil || w.End.How != "killed" || w.End.Dropped[record.Corrupt] != 0 {
		t.Errorf("end %+v", w.End)
		return sum
	}

	var emitted uint64
	for _, n := range w.End.Emitted {
		emitted += n
	}

	if emitted != sum.Stored+sum.Dropped {
		t.Errorf("emitted %d, stored %d + dropped %d; losses %v", emitted, sum.Stored, sum.Dropped, w.Losses)
	}

	return sum
}

// byThread returns the numbers of each thread's ranges, sorted.
func byThread(t testing.TB, rs []record.Record) map[string][]int64 {
	t.Helper()
	all := make(map[string][]int64)
	for i := range rs {
		name, n := number(&rs[i])
		if (n%8 == 3) != (rs[i].Kind == record.Other) {
			t.Errorf("%s: range %d is a %s", name, n, rs[i].Kind)
		}

		all[name] = append(all[name], n)
	}

	for _, s := range all {
		slices.Sort(s)
	}

	return all
}

// number returns the thread and the number of a range that Acks knows.
func number(r *record.Record) (thread string, n int64) {
	if r.Kind == record.Communication {
		return r.Op, r.Count
	}

	return r.Name, r.Bytes
}

// thread is what is known of one thread of a killed trainer.
type thread struct {
	t            testing.TB
	name         string
	begun, ended uint64
	stored, open []int64
}

// check returns how many acknowledged ranges are missing. dropped says that
// the range which the thread died in may be counted instead of named.
func (k *thread) check(dropped bool) (missing uint64) {
	k.t.Helper()
	missing = k.ended
	for i, v := range k.stored {
		if i > 0 && k.stored[i-1] == v {
			k.t.Errorf("%s: range %d is there twice", k.name, v)
		}

		if uint64(v) > k.begun {
			k.t.Errorf("%s: range %d is there, %d had begun", k.name, v, k.begun)
		}

		if uint64(v) < k.ended { // others died between the publishing and the acknowledgement
			missing--
		}
	}

	for _, v := range k.open {
		if _, both := slices.BinarySearch(k.stored, v); both {
			k.t.Errorf("%s: range %d is there both open and finished", k.name, v)
		}

		if uint64(v) < k.ended || uint64(v) > k.begun {
			k.t.Errorf("%s: range %d is open; %d had begun and %d had ended", k.name, v, k.begun, k.ended)
		}
	}

	if len(k.open) > 1 {
		k.t.Errorf("%s: %d ranges are open", k.name, len(k.open))
	}

	if k.begun > k.ended && !dropped {
		_, finished := slices.BinarySearch(k.stored, int64(k.ended))
		if !finished && !slices.Contains(k.open, int64(k.ended)) {
			k.t.Errorf("%s: died in range %d, which is not named", k.name, k.ended)
		}
	}

	return missing
}
