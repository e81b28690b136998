package cost

import (
	"math"
	"testing"

	"github.com/laggard-dev/laggard/analyzer/detect/history"
	"github.com/laggard-dev/laggard/analyzer/detect/residual"
	"github.com/laggard-dev/laggard/analyzer/detect/sequential"
	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
	"github.com/laggard-dev/laggard/analyzer/feed"
	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/analyzer/replay"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/schemas/topology"
)

// job is four replicas of one rank; the last rank's work takes slow times the others' 0.3 s,
// all wait for it, and 0.05 s for their wires.
type job struct {
	book   *Book
	recent *history.Window
	layout *frame.Layout
	test   *sequential.Test // of compute
	waits  float64          // what the others record of their wait, as a share of it
	busy   bool             // the rest of it is in their own time, and the last rank's forward pass alone is longer
}

func newJob(t *testing.T) *job {
	t.Helper()
	b := &feed.History{}
	for r := range uint32(4) {
		b.AddStep(&row.Step{Rank: r, Step: 1, StepNs: 1e9})
	}

	f, err := b.Frame(&topology.File{WorldSize: 4, Groups: []topology.Group{{Dim: "dp", Ranks: []int{0, 1, 2, 3}}}})
	if err != nil {
		t.Fatal(err)
	}

	cfg := threshold.Default()
	j := &job{book: New(), recent: history.New(4), layout: f.Layouts[0], test: sequential.New(&cfg, 4, sequential.Alike(4)), waits: 1}
	j.book.Assign(j.layout, replay.New(j.layout), j.recent, [history.Signals]*sequential.Test{j.test, j.test, j.test}, nil, residual.NewExposure(j.layout))
	return j
}

// step makes a step, and returns how many seconds it took.
func (j *job) step(slow float64) float64 {
	last := 0.3 * slow
	c := &frame.Column{Layout: j.layout, Passes: 1}
	c.V[frame.FP], c.V[frame.Self], c.V[frame.Exposed] = make([]float32, 4), make([]float32, 4), make([]float32, 4)
	for r := range 4 {
		own := 0.3
		if r == 3 {
			own = last
		}

		c.V[frame.FP][r], c.V[frame.Self][r] = float32(own/3), float32(own)
		if j.busy {
			c.V[frame.FP][r], c.V[frame.Self][r] = float32(own-0.2), float32(last)
		}

		c.V[frame.Exposed][r] = float32(0.05 + j.waits*(last-own))
	}

	j.book.Settle()
	j.recent.Add(c, last+0.05)
	j.test.Observe([]float32{0, 0, 0, float32(math.Log(slow))}, nil, int64(j.recent.Count), func(sequential.Episode) {})
	j.recent.Place[history.Compute][(j.recent.Count-1)%threshold.Window] = int32(j.test.Steps())
	j.book.Learn()
	return last + 0.05
}

func near(a, b float64) bool { return math.Abs(a-b) < 1e-4 }

// tells is what spikes of this job are told by.
var tells = [history.Signals]bool{history.Compute: true}

// blamed is the fault of the last rank from a step on.
func (j *job) blamed(from int) []Fault {
	return []Fault{{Row: 3, Node: "node-3", From: from, Has: tells}}
}

// A rank that is 1.5 times slower from some step on costs what the steps are longer for it, as a
// share of the time since, however many of these steps have left the window.
func TestBook_CostsWhatTheStepsAreLonger(t *testing.T) {
	for _, steps := range []int{threshold.Window / 2, 3 * threshold.Window} {
		j := newJob(t)
		for range 20 {
			j.step(1)
		}

		for range steps {
			j.step(1.5)
			j.book.Blame(j.blamed(20), nil, nil)
		}

		p := j.book.Price(j.blamed(20))
		least, most := p["node-3"].Bounds()
		if want := 0.15 / 0.5; !near(least, want) || !near(most, want) {
			t.Errorf("after %d steps: costs %.4f to %.4f, want %.4f", steps, least, most, want)
		}

		if got, want := p["node-3"].Time, 0.5*float64(steps); !near(got, want) {
			t.Errorf("of %.2f s, want %.2f", got, want)
		}

		if all, _ := p[""].Bounds(); !near(all, least) {
			t.Errorf("all together %.4f, the only one %.4f", all, least)
		}
	}
}

// Nobody saves more than the others wait.
func TestBook_NoMoreThanTheOthersWait(t *testing.T) {
	j := newJob(t)
	j.waits = 0.2
	for range threshold.Window {
		j.step(1.5)
	}

	least, _ := j.book.Price(j.blamed(0))[""].Bounds()
	if want := (0.05 + 0.2*0.15) / 0.5; !near(least, want) {
		t.Errorf("costs %.4f, want %.4f", least, want)
	}
}

// Others that wait in calls which nobody records look busy: the blamed rank costs what they do
// beside their forward passes beyond what it does.
func TestBook_WaitsThatNobodyRecords(t *testing.T) {
	j := newJob(t)
	j.waits, j.busy = 0, true
	for range threshold.Window {
		j.step(1.5)
		j.book.Blame(j.blamed(0), nil, nil)
	}

	j.book.Learn()
	least, most := j.book.Price(j.blamed(0))[""].Bounds()
	if want := 0.15 / 0.5; !near(least, want) || !near(most, want) {
		t.Errorf("costs %.4f to %.4f, want %.4f", least, most, want)
	}
}

// An account is closed once its node is well, kept open while it recovers, and then counts
// steps that cost nothing.
func TestBook_ClosesAccounts(t *testing.T) {
	j := newJob(t)
	never := func(string) bool { return false }
	always := func(string) bool { return true }
	j.book.Blame(j.blamed(0), never, never)
	for range 2 * threshold.Window {
		j.step(1.5)
	}

	for range threshold.Window {
		j.step(1)
		j.book.Blame(nil, always, never)
	}

	// How slow it was in a step is told by the steps about it: a step or two at the end are wrong.
	saved := func(a Account) bool { return math.Abs(a.Saved-0.15*2*threshold.Window) <= 2*0.15 }
	a := j.book.accounts["node-3"]
	if !near(a.Time, 0.5*2*threshold.Window) || !saved(a) {
		t.Fatalf("account %+v of a node that recovers", a)
	}

	for range threshold.Window {
		j.step(1)
	}

	if a = j.book.accounts["node-3"]; !near(a.Time, (0.5*2+0.35)*threshold.Window) || !saved(a) {
		t.Errorf("account %+v after steps that cost nothing", a)
	}

	j.book.Blame(nil, never, never)
	if len(j.book.accounts) > 0 {
		t.Errorf("accounts %v of nobody", j.book.accounts)
	}
}

// A node that comes and goes costs what its long steps were longer, since the first of them.
func TestBook_CameAndWent(t *testing.T) {
	j := newJob(t)
	for k := range 2 * threshold.Window {
		slow := 1.0
		if k >= threshold.Window && k%8 == 7 {
			slow = 1.5
		}

		took := j.step(slow)
		j.book.EnterSpikes(took, 0.35, tells, func(r int) bool { return r == 3 && slow > 1 })
	}

	// Since the 8th step of the second half: every 8th of them took 0.15 s more.
	const spikes = threshold.Window / 8
	least, most, ok := j.book.CameAndWent("node-3")
	if want := spikes * 0.15 / (0.35*(threshold.Window-7) + 0.15*spikes); !ok || !near(least, want) || !near(most, want) {
		t.Errorf("costs %.4f to %.4f (%v), want %.4f", least, most, ok, want)
	}

	if _, _, ok := j.book.CameAndWent("node-2"); ok {
		t.Error("a spell of an innocent one")
	}
}
