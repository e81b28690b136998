package mspti_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/laggard-dev/laggard/collector/internal/ringtest"
	"github.com/laggard-dev/laggard/schemas/record"
)

// TestMillionMarkersASecond: the callbacks give the processor up not once, and every
// marker is a record or counted.
func TestMillionMarkersASecond(t *testing.T) {
	small := []string{"STANDIN_FULL=1000", "LAGGARD_MSPTI_BUFFERS=100"}
	for _, c := range []struct {
		name, program string
		ranges        uint64
		env           []string
	}{
		{"as it is", "trainer", 500000, nil},
		{"small buffers, enough calls for a p99.9", "trainer", 500000, small},
		{"under ASan and UBSan", "trainer-sanitized", 500000, small},
	} {
		t.Run(c.name, func(t *testing.T) { flood(t, c.program, c.ranges, c.env) })
	}
}

func flood(t *testing.T, program string, ranges uint64, env []string) {
	run := ringtest.Shared(t)
	cmd := command(t, run, program, "flood", strconv.FormatUint(ranges, 10), "1000")
	cmd.Env = append(cmd.Env, env...)
	k := talkTo(t, cmd)
	c := ringtest.NewDrain(t, run)
	done := make(chan string, 1)
	go func() {
		s, _ := k.out.ReadString('\n')
		done <- s
	}()
	var out string
	for out == "" {
		select {
		case out = <-done:
		default:
			if _, err := c.Pass(); err != nil {
				t.Fatal(err)
			}
		}
	}

	if err := k.cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, k.said())
	}

	r := report(t, out)
	w := c.Finish(t).Only(t)
	var stored, told uint64
	for _, x := range w.Records {
		switch {
		case x.Kind == record.Communication:
			stored++
		case x.Name == "mspti.dropped":
			told += uint64(x.Bytes)
		}
	}

	if r.Waits != 0 {
		t.Errorf("the callbacks waited %d times", r.Waits)
	}

	if told < r.Dropped || stored > ranges {
		t.Errorf("%d markers dropped, %d told; %d stored", r.Dropped, told, stored)
	}

	if got := stored + w.Lost(); told == 0 && got != ranges {
		t.Errorf("%d records and %d counted as lost in the ring, of %d", stored, w.Lost(), ranges)
	}

	t.Logf("%s%d calls: p50 %d ns, p99 %d ns, p99.9 %d ns, max %d ns, %d waits; %d of %d ranges stored, %d counted as lost in the ring, %d of %d markers counted as dropped",
		k.said(), r.Calls, r.P50, r.P99, r.P999, r.Max, r.Waits, stored, ranges, w.Lost(), told, r.Written)
}

// TestPoolIsExhausted: with two buffers and no time to empty them, what is dropped is
// told.
func TestPoolIsExhausted(t *testing.T) {
	run := ringtest.Shared(t)
	cmd := command(t, run, "trainer-sanitized", "flood", "200000", "100000")
	cmd.Env = append(cmd.Env, "STANDIN_FULL=500", "LAGGARD_MSPTI_BUFFERS=2")
	out, said := ringtest.Runs(t, cmd)
	r := report(t, out)
	if r.Dropped == 0 || r.DroppedBuffers == 0 || r.Waits != 0 || !strings.Contains(said, "all buffers were full") {
		t.Errorf("report %+v, said %q", r, said)
	}

	var told uint64
	for _, x := range ringtest.NewDrain(t, run).Finish(t).Only(t).Records {
		if x.Name == "mspti.dropped" {
			told += uint64(x.Bytes)
		}
	}

	if told < r.Dropped {
		t.Errorf("%d dropped, %d told", r.Dropped, told)
	}

	t.Logf("%d of %d markers dropped, %d waits", told, r.Written, r.Waits)
}
