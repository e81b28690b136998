package native_test

import (
	"bufio"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"laggard/collector/drain"
	"laggard/collector/internal/rig"
	"laggard/schemas/record"
)

// TestKilledTrainer kills a recording C program at random instants and checks
// that what a call had returned from is there, once, and that the range it died
// in is named. LAGGARD_KILLS sets how often (10000 is the long form), LAGGARD_SEED
// repeats a run.
func TestKilledTrainer(t *testing.T) {
	n, seed := rig.Kills(100), rig.Seed()
	t.Logf("%d kills with LAGGARD_SEED=%d", n, seed)
	random := rand.New(rand.NewPCG(seed, 1))
	var total tally
	for i := range n {
		threads := []int{1, 8, 64}[i%3]
		pace := []string{"0", "100", "100", "20"}[random.IntN(4)]
		total.add(kill(t, threads, pace, time.Duration(random.IntN(6000))*time.Microsecond, i%2 == 0))
		if t.Failed() {
			t.Fatalf("after %d kills", i+1)
		}
	}
	t.Logf("%d records stored, %d counted as dropped, %d open ranges named; %d threads died inside a range", total.stored, total.dropped, total.open, total.inside)
}

type tally struct{ stored, dropped, open, inside uint64 }

func (a *tally) add(b tally) {
	a.stored += b.stored
	a.dropped += b.dropped
	a.open += b.open
	a.inside += b.inside
}

// kill runs the driver, kills it after a while, drains, and checks. live drains
// while it runs as well.
func kill(t *testing.T, threads int, pace string, after time.Duration, live bool) tally {
	t.Helper()
	run := rig.Shared(t)
	defer os.RemoveAll(filepath.Dir(run))
	ack := filepath.Join(filepath.Dir(run), "ack")
	cmd := command(t, rig.Driver(t), run, "kill", ack, strconv.Itoa(threads), pace)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	c := newCollect(t, run)
	if live {
		c.Pass()
	}
	timer := time.NewTimer(after)
	<-timer.C
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	wait(cmd)
	c.finish(t, run)
	acks, err := os.ReadFile(ack)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.writers) == 0 {
		return tally{} // killed before its first range
	}
	return check(t, c.only(t), acks, threads)
}

func wait(cmd *exec.Cmd) { _ = cmd.Wait() } // killed: the error is the point

// check compares what is stored with what the threads know they did.
func check(t *testing.T, w *rig.Memory, acks []byte, threads int) (sum tally) {
	t.Helper()
	stored := make(map[string][]int64)
	open := make(map[string][]int64)
	collect := func(to map[string][]int64, rs []record.Record) {
		for _, r := range rs {
			name, value := r.Name, r.Bytes
			if r.Kind == record.Communication {
				name, value = r.Op, r.Count
			}
			to[name] = append(to[name], value)
		}
	}
	collect(stored, w.Records)
	collect(open, w.Open)
	begun, ended, missing := uint64(0), uint64(0), uint64(0)
	for i := range threads {
		name := "t" + strconv.Itoa(i)
		b, e := binary.LittleEndian.Uint64(acks[64*i:]), binary.LittleEndian.Uint64(acks[64*i+8:])
		begun, ended = begun+b, ended+e
		s, o := stored[name], open[name]
		slices.Sort(s)
		if len(slices.Compact(slices.Clone(s))) != len(s) {
			t.Errorf("%s: a record is there twice", name)
		}
		for _, v := range o {
			if slices.Contains(s, v) {
				t.Errorf("%s: range %d is there both open and finished", name, v)
			}
			if uint64(v) < e {
				t.Errorf("%s: range %d is open, but %d had ended", name, v, e)
			}
		}
		if len(s) > 0 && uint64(s[len(s)-1]) > b {
			t.Errorf("%s: range %d is there, %d had begun", name, s[len(s)-1], b)
		}
		got := uint64(len(s))
		for _, v := range s {
			if uint64(v) >= e {
				got-- // died between the publishing and the acknowledgement
			}
		}
		missing += e - got
		if b > e {
			sum.inside++
			// The range that was begun and not acknowledged is finished or open; or
			// counted, where its thread had no ring or a full one.
			if !slices.Contains(s, int64(e)) && !slices.Contains(o, int64(e)) && w.Lost() == 0 {
				t.Errorf("%s: died in range %d, which is not named", name, e)
			}
		}
		sum.stored += uint64(len(s))
		sum.open += uint64(len(o))
	}
	// What is acknowledged and not stored is counted, and no more than that: each
	// thread may have died between counting a drop and returning.
	sum.dropped = w.Lost()
	if missing > sum.dropped || sum.dropped-missing > uint64(threads) {
		t.Errorf("%d acknowledged records are missing, %d are counted", missing, sum.dropped)
	}
	if w.End == nil || w.End.How != "killed" || w.End.Dropped[record.Corrupt] != 0 {
		t.Errorf("end %+v", w.End)
	}
	var emitted uint64
	for _, n := range w.End.Emitted {
		emitted += n
	}
	if emitted != sum.stored+sum.dropped {
		t.Errorf("emitted %d, stored %d + dropped %d; losses %v", emitted, sum.stored, sum.dropped, w.Losses)
	}
	return sum
}

var _ drain.Writer = (*rig.Memory)(nil)
