package rollup

import (
	"fmt"
	"strings"
	"testing"

	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/row"
)

func TestTokens(t *testing.T) {
	c := newScript(t, Options{})
	c.identity(1, "1")
	tokens := func(n int64) func(*record.Record) { return func(r *record.Record) { r.Tokens = n } }
	c.rec(record.FP, 0, 1, 1, tokens(10))
	c.rec(record.FP, 0, 2, 1, tokens(20))
	c.rec(record.Step, 0, 0, 10, nil)
	c.rec(record.FP, 1, 11, 1, tokens(10))
	c.rec(record.Step, 1, 10, 10, tokens(99))
	c.rec(record.Step, 2, 20, 10, nil)
	r := c.end()
	if r.Steps[0].Tokens != 30 || r.Steps[1].Tokens != 99 || r.Steps[2].Tokens != -1 {
		t.Fatalf("tokens %d %d %d, want 30 99 -1", r.Steps[0].Tokens, r.Steps[1].Tokens, r.Steps[2].Tokens)
	}
}

func TestSwitch_FlagsTheStepInWhichItChanged(t *testing.T) {
	c := newScript(t, Options{})
	c.identity(1, "1")
	c.text(fmt.Sprintf(`{"switch":{"at":%d,"default":true,"communication":false}}`, at(1))) // how it began: no change
	c.rec(record.Step, 0, 0, 10, nil)
	c.text(fmt.Sprintf(`{"switch":{"at":%d,"default":true,"communication":true}}`, at(15)))
	c.rec(record.Step, 1, 10, 10, nil)
	c.rec(record.Step, 2, 20, 10, nil)
	want(t, "steps", steps(c.end()), fmt.Sprintf("0.0:1 1.0:%d 2.0:1", row.FlagHostOnly|row.FlagSwitched))
}

func TestWindows(t *testing.T) {
	c := newScript(t, Options{})
	c.identity(1, "1", record.Group{Dim: "dp", Name: "d", Index: 1, Size: 2, Ranks: []int{0, 3}})
	clock := int64(0)
	step := func(n int64) {
		for i := range int64(2) {
			c.rec(record.Communication, n, clock+i, 1+i, func(r *record.Record) { r.Op, r.Group, r.Bytes = "allreduce", "d", 100 })
		}

		c.rec(record.Step, n, clock, 10, nil)
		clock += 10
	}
	for n := range int64(20) {
		step(n)
	}

	for n := int64(14); n < 18; n++ { // a rollback over the border of the windows
		step(n)
	}

	c.rec(record.Communication, -1, clock+1, 3, func(r *record.Record) { r.Op = "barrier" }) // after the last step
	r := c.end()
	var got []string
	calls := uint32(0)
	for _, w := range r.Communications {
		got = append(got, fmt.Sprintf("%d-%d.%d %s/%s/%s steps=%d calls=%d", w.StepFrom, w.StepTo, w.Repeat, w.Group, w.Dim, w.Op, w.Steps, w.Calls))
		calls += w.Calls
	}

	want(t, "windows", strings.Join(got, "\n"), strings.Join([]string{
		"0-15.0 d/dp/allreduce steps=16 calls=32",
		"16-31.0 d/dp/allreduce steps=4 calls=8",
		"0-15.1 d/dp/allreduce steps=2 calls=4",
		"16-31.1 d/dp/allreduce steps=2 calls=4",
		"16-31.1 /other/barrier steps=1 calls=1",
	}, "\n"))
	w := r.Communications[0]
	if w.TotalNs != 16*3*ms || w.MinNs != ms || w.MaxNs != 2*ms || w.Bytes != 3200 || w.StartNs != at(0) {
		t.Fatalf("%+v", w)
	}

	if k := c.s.Counts(); uint64(calls) != k.Summarised["Communication"] || k.Summarised["Communication"] != k.Emitted["Communication"] {
		t.Fatalf("calls=%d, counts %+v", calls, k)
	}
}

func TestSelection(t *testing.T) {
	for s, kinds := range map[Selection]string{
		None: "", Light: "FP@0.0 evaluate@0.0 Step@0.0", All: "FP@0.0 Communication@0.0 evaluate@0.0 Step@0.0",
		Deep: "FP@0.0 Communication@0.0 evaluate@0.0 Step@0.0",
	} {
		c := newScript(t, Options{Records: s})
		c.identity(1, "1")
		c.rec(record.FP, 0, 1, 1, nil)
		c.rec(record.Communication, 0, 2, 1, nil)
		c.rec(record.Other, 0, 3, 1, func(r *record.Record) { r.Name = "evaluate" })
		c.rec(record.Step, 0, 0, 10, nil)
		r := c.end()
		want(t, s.String(), places(r), kinds)
		if k := c.s.Counts(); total(k.Emitted) != 4 || total(k.Stored)+total(k.Summarised) != 4 {
			t.Fatalf("%s: %+v", s, k)
		}

		if back, ok := ParseSelection(s.String()); !ok || back != s {
			t.Fatalf("ParseSelection(%q)=%v", s.String(), back)
		}
	}
}

// TestSelection_Deep stores the steps that have Communication, whole, and nothing of
// the others.
func TestSelection_Deep(t *testing.T) {
	c := newScript(t, Options{Records: Deep})
	c.identity(1, "1")
	for n := range int64(5) {
		c.rec(record.FP, n, 10*n+1, 1, nil)
		if n == 1 || n == 2 {
			c.rec(record.Communication, n, 10*n+2, 1, nil)
		}

		c.rec(record.Step, n, 10*n, 10, nil)
	}

	want(t, "deep", places(c.end()), "FP@1.0 Communication@1.0 Step@1.0 FP@2.0 Communication@2.0 Step@2.0")
	if k := c.s.Counts(); total(k.Emitted) != 12 || total(k.Stored) != 6 || total(k.Summarised) != 6 {
		t.Fatalf("%+v", k)
	}
}
