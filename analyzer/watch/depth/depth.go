// Package depth records in depth where a watcher looks: Communication is turned on
// for the nodes that are suspect and for their peers, and off again when it is
// decided what they are.
//
//	suspects of a step ─Observe─▶ case of a job ─Sync─▶ switches of agents
//
// Invariants: never more than Options.Nodes nodes are in depth at once, over
// restarts too (StateFile); what a person switched is left as it is, on or off; in
// a dry run nothing is switched. A case ends when it is decided, when the suspicion
// is gone, or after Options.Longest.
//
// Caveat: a node whose agent can't be reached stays on the list and is tried again;
// at most Options.Longest after it was switched on.
package depth

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/laggard-dev/laggard/analyzer/detect"
	"github.com/laggard-dev/laggard/analyzer/health"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// Setting is what the recorders of a job are told by one agent.
type Setting struct {
	Light         bool // the four light kinds
	Communication bool
	Ours          bool // this program spoke last
}

// Switch is the way to the agents. It may be used from several goroutines.
type Switch interface {
	// Get returns what each agent of the job on the node says: at least one.
	Get(ctx context.Context, job, node string) ([]Setting, error)
	// Set turns Communication on, or off where it is ours, and leaves the light kinds on.
	Set(ctx context.Context, job, node string, communication bool) error
}

// Options configure a Depth.
type Options struct {
	Switch    Switch
	Nodes     int           // in depth at once, over all jobs; 0 is 8
	Longest   time.Duration // of a case; 0 is DefaultLongest
	StateFile string        // "" keeps nothing over restarts
	DryRun    bool          // switch nothing, say what would be switched
	Now       func() time.Time
	Log       *slog.Logger
}

// DefaultLongest is Options.Longest's.
const DefaultLongest = 30 * time.Minute

const (
	defaultNodes = 8
	// LeastEvidence is how many steps are recorded in depth before anything counts as
	// decided: the window that the detector's verdicts rest on.
	LeastEvidence = 32
	// restFor is how long a job is left alone after a case that was not decided.
	restFor = time.Hour
)

// Depth keeps the cases of all jobs. Observe may be called while Run runs.
type Depth struct {
	o    Options
	wake health.Waker

	// mu guards what follows. It is free while agents are called: one that is dead holds up
	// neither Observe nor the others.
	mu    sync.Mutex
	cases map[string]*inquiry // by job
	on    map[place]*switched // nodes that have a place under the cap
	fails int                 // of switches, since Run began
}

// place is a job's recorders on a node.
type place struct {
	Job  string `json:"job"`
	Node string `json:"node"`
}

// compare orders places, so that nodes are switched and saved in one order.
func (p place) compare(q place) int {
	return cmp.Or(cmp.Compare(p.Job, q.Job), cmp.Compare(p.Node, q.Node))
}

// switched is a node in depth, or on its way there or back.
type switched struct {
	place
	At   time.Time `json:"at"`
	want bool      // false: to be switched back
	done bool      // as wanted
	next time.Time // after a failure
	wait time.Duration
}

// inquiry is what is being found out about a job.
type inquiry struct {
	// Open from begin to end; what is decided outlives it, so that the same is not looked into twice.
	open     bool
	why      string
	opened   int64 // step
	at       time.Time
	suspects []string
	decided  map[string]string // node → cause that was settled; "" is the job as a whole
	rest     time.Time         // undecided: not again before
}

// New returns a Depth with what an earlier process left in depth. It switches
// nothing yet.
func New(o Options) (*Depth, error) {
	o.Nodes = cmp.Or(max(0, o.Nodes), defaultNodes)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	o.Longest = cmp.Or(o.Longest, DefaultLongest)
	if o.Now == nil {
		o.Now = time.Now
	}

	d := &Depth{o: o, wake: health.NewWaker(), cases: map[string]*inquiry{}, on: map[place]*switched{}}
	return d, d.load()
}

// Observe takes what a look at a job has found.
func (d *Depth) Observe(v *verdict.Verdict, s detect.Suspects) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.cases[v.Job]
	if c == nil {
		c = &inquiry{decided: map[string]string{}}
		d.cases[v.Job] = c
	}

	now := d.o.Now()
	named := namedNodes(v)
	// Who is not named any more may be suspected anew, and so may the job once it is not slower.
	for node := range c.decided {
		if _, still := named[node]; !still && node != "" || node == "" && s.Slower == 0 && len(v.Links) == 0 {
			delete(c.decided, node)
		}
	}

	suspects := c.news(suspectNodes(s), named)
	slower := s.Slower > 0 && len(named) == 0 && len(v.Links) == 0
	switch {
	case c.open:
		d.advance(v, c, suspects, slower, named, now)
	case now.Before(c.rest):
	case len(suspects) > 0:
		d.begin(v, c, "suspect", suspects, now)
	case slower && c.decided[""] == "":
		d.begin(v, c, "the whole job is slower", nil, now)
	}

	if c.open {
		d.want(v.Job, c.suspects, peers(s, c.suspects), now)
	}

	d.wake.Wake()
}

// begin opens a case.
func (d *Depth) begin(v *verdict.Verdict, c *inquiry, why string, suspects []string, now time.Time) {
	c.open, c.why, c.opened, c.at, c.suspects = true, why, v.Steps.Last, now, suspects
	d.o.Log.Info("recording in depth begins", "job", v.Job, "why", why, "nodes", suspects, "step", v.Steps.Last)
}

// advance goes on with an open case, or closes it.
func (d *Depth) advance(v *verdict.Verdict, c *inquiry, suspects []string, slower bool, named map[string]string, now time.Time) {
	for _, n := range suspects {
		if !slices.Contains(c.suspects, n) {
			c.suspects = append(c.suspects, n)
		}
	}

	enough := v.Steps.Last-c.opened >= LeastEvidence
	slower = slower && !slices.ContainsFunc(v.Findings, func(f verdict.Finding) bool { return f.Kind == verdict.JobSlow })
	open := slower || slices.ContainsFunc(suspects, func(n string) bool { return named[n] == "" || named[n] == verdict.Unattributed })
	switch {
	case enough && !open:
		for node, cause := range named {
			c.decided[node] = cause
		}

		c.decided[""] = c.why
		d.end(v.Job, c, outcome(named, v))
	case now.Sub(c.at) >= d.o.Longest:
		c.rest = now.Add(restFor)
		d.end(v.Job, c, "undecided")
	}
}

// end closes a case: its nodes are switched back.
func (d *Depth) end(job string, c *inquiry, outcome string) {
	c.open = false
	d.o.Log.Info("recording in depth ends", "job", job, "outcome", outcome, "nodes", c.suspects)
	for at, s := range d.on {
		if at.Job == job {
			s.want, s.done, s.next, s.wait = false, false, time.Time{}, 0
		}
	}

	c.suspects = nil
}

// outcome is the word for the log: whether anybody, a node or a link, was named.
func outcome(named map[string]string, v *verdict.Verdict) string {
	if len(v.Links) > 0 || len(named) > 0 {
		return "named"
	}

	return "nothing there"
}

// want gives nodes a place under the cap: suspects first, then their peers.
func (d *Depth) want(job string, suspects, peers []string, now time.Time) {
	for _, node := range slices.Concat(suspects, peers) {
		at := place{job, node}
		if s := d.on[at]; s != nil {
			if !s.want {
				s.want, s.done, s.At = true, false, now
			}

			continue
		}

		// Places that are being switched back count: until the agent has answered it records in depth.
		if len(d.on) >= d.o.Nodes {
			return
		}

		d.on[at] = &switched{place: at, At: now, want: true}
	}
}

// Places returns how many nodes are in depth or on their way there or back, and how
// many switches failed.
func (d *Depth) Places() (nodes, failures int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.on), d.fails
}
