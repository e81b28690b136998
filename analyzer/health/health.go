// Package health tells a Kubernetes cluster what verdicts mean for its nodes: a
// condition TrainingDegraded for what lasts, an Event for what passes, and only
// when asked to, and only for a few nodes, a cordon or a taint.
//
// Invariants: in a dry run nothing is written. A node belongs to others too: what
// they set on it stays, and only what laggard set is taken back, when the node is
// well or by Release. What was written is written again only when status or reason
// change, or for the heartbeat; a change back waits for Hold, so noise can't flap.
// Never more than MaxNodes nodes are acted on at once, over restarts too: the nodes
// themselves say what was done to them.
//
// Calls: LIST nodes (at the start), PATCH nodes/<n>/status, POST events; for an act
// GET and PATCH nodes/<n>, or for rescheduling LIST and PATCH ascendjobs and PATCH
// configmaps. Of an API alone: pods, the switch's ConfigMap, and the Leases by which
// watchers share jobs.
//
// Caveats: one watcher writes to a cluster; a second one would take back what the
// first one says of jobs that it does not follow. Node names of verdicts must be
// those of the cluster (NODE_NAME of the downward API as LAGGARD_NODE); one that the
// cluster does not know is said and tried again after an hour.
package health

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/laggard-dev/laggard/analyzer/report"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// Reasons of the condition. They are words for programs: one that was written once is never renamed.
const (
	reasonNone = "NoProblem"
	// reasonHarmless: a node is slow, and the job hardly waits for it.
	reasonHarmless = "Harmless"
	reasonEnded    = "JobEnded"
)

// reasons are the condition's reasons of degraded nodes, by cause.
var reasons = map[string]string{
	verdict.Compute: "SlowCompute", verdict.HostDelay: "SlowHost", verdict.DataLoader: "SlowDataLoader",
	verdict.Checkpoint: "SlowCheckpoint", verdict.Communication: "SlowCommunication", verdict.Unattributed: "SlowUnattributed",
}

// Acts.
const (
	actCordon = "cordon"
	actTaint  = "taint" // laggard.io/training-degraded:NoSchedule
	// ActReschedule has MindCluster take the job off the node.
	ActReschedule = "reschedule"
)

// Acts are the words of Options.Act.
var Acts = []string{actCordon, actTaint, ActReschedule}

// Options configure a Cluster.
type Options struct {
	API       API
	StateFile string   // "" keeps nothing over restarts but what stands on the nodes
	Jobs      []string // whose conditions of before are ours; nil is all
	Act       string   // one of Acts; "" does nothing to nodes
	MaxNodes  int      // acted on at once; 0 is 1
	DryRun    bool     // write nothing, say what would be written
	// MinImpact is what a degraded node must cost to count, asked with each verdict: the
	// watcher's may change. nil is 0.
	MinImpact func() float64
	Hold      time.Duration // how long a node is well before that is said; 0 is DefaultHold
	Now       func() time.Time
	Log       *slog.Logger
}

const (
	// DefaultHold is Options.Hold's.
	DefaultHold = 10 * time.Minute
	// heartbeat renews a condition that lasts.
	heartbeat = 5 * time.Minute
	// staleAfter is how long a job says nothing until it counts as ended.
	staleAfter = 2 * time.Hour
	// eventNamespace is where events on nodes belong.
	eventNamespace = "default"
	// eventEvery bounds events of one node, maxSeen the events that are remembered, and maxMessage the
	// text of a condition, bytes.
	eventEvery = 10 * time.Minute
	maxSeen    = 4096
	maxMessage = 1024
)

// Cluster is a cluster's nodes as verdicts see them. Observe may be called while
// Run runs.
type Cluster struct {
	o    Options
	wake Waker

	// mu guards what follows. It is free while the API server is called, so that Observe, on
	// the goroutine of looks, never waits for the network.
	mu    sync.Mutex
	state state
	said  map[string]map[string]judgement // by job and node, what the job's last verdict says
	heard map[string]time.Time            // when each of the jobs was last heard of
	back  backoff
	// adopted: what stands on the nodes is known.
	adopted bool
	// later are the waits of nodes: the cluster refused a write to them, or does not know
	// them. The others go on.
	later map[string]*backoff
}

// judgement is what a node's condition says, and what an act needs to know of it. Of several jobs'
// on one node that of most weight counts.
type judgement struct {
	Status  string `json:"status"` // True, False, Unknown; "" never written
	Reason  string `json:"reason"`
	Message string `json:"message"`
	Job     string `json:"job,omitempty"`
	Ranks   []int  `json:"ranks,omitempty"`
	Devices int    `json:"devices,omitempty"`
	// weight is the job impact, above 1 where the node is degraded: whatever is said to be bad
	// outweighs all that is harmless. It is made anew with each verdict, and not kept.
	weight float64
}

// node is what was written of a node.
type node struct {
	judgement
	Since   time.Time `json:"since"`
	Beat    time.Time `json:"beat"`
	Acted   bool      `json:"acted"`   // has a place under the cap
	Applied bool      `json:"applied"` // the act was answered
	// Other is since when something else is wanted than what was written.
	Other  time.Time `json:"other,omitzero"`
	Want   string    `json:"want,omitempty"` // status and reason of it
	Posted time.Time `json:"posted,omitzero"`

	Move *rescheduling `json:"move,omitempty"`
}

// state is what is kept over restarts, in Options.StateFile.
type state struct {
	// By name; one that is well and untouched stays, for when it was last said.
	Nodes  map[string]*node     `json:"nodes"`
	Seen   map[string]time.Time `json:"seen"` // events by name
	Jobs   map[string]bool      `json:"jobs"` // whose events of before are known
	Events []event              `json:"events"`
}

// event is one of a verdict's short disturbances, as an event of the cluster; its name is made of what
// happened, so that one that was posted before is refused by the server.
type event struct {
	Name, Node, Message string
	At                  time.Time
}

// New returns a Cluster. It calls nothing yet.
func New(o Options) (*Cluster, error) {
	if o.Act != "" && !slices.Contains(Acts, o.Act) {
		return nil, fmt.Errorf("act %q: want one of %v", o.Act, Acts)
	}

	o.MaxNodes = cmp.Or(max(0, o.MaxNodes), 1)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	o.Hold = cmp.Or(o.Hold, DefaultHold)
	if o.Now == nil {
		o.Now = time.Now
	}

	if o.MinImpact == nil {
		o.MinImpact = func() float64 { return 0 }
	}

	c := &Cluster{o: o, wake: NewWaker(), said: map[string]map[string]judgement{}, heard: map[string]time.Time{}, later: map[string]*backoff{},
		state: state{Nodes: map[string]*node{}, Seen: map[string]time.Time{}, Jobs: map[string]bool{}}}
	if err := c.load(); err != nil {
		return nil, err
	}

	return c, nil
}

// Observe takes a job's verdict as of now. It only notes what is wanted.
func (c *Cluster) Observe(v *verdict.Verdict) { c.ObserveAt(v, c.o.Now()) }

// ObserveAt takes a job's verdict, and when the job was last heard of.
func (c *Cluster) ObserveAt(v *verdict.Verdict, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, least := c.o.Now(), c.o.MinImpact()
	nodes := map[string]judgement{}
	for i := range v.Nodes {
		n := &v.Nodes[i]
		// Who has recovered is as well as who was never named.
		if !verdict.Blamed(n.State) {
			continue
		}

		impact := v.Counts(n, least)
		o := judgement{"True", cmp.Or(reasons[n.Cause], "Slow"), message(v.Job, n), v.Job, n.Ranks, n.Devices, impact + 1}
		if impact < least {
			o.Status, o.Reason, o.weight = "False", reasonHarmless, impact
		}

		nodes[n.Node] = o
	}

	c.said[v.Job], c.heard[v.Job] = nodes, at
	c.events(v, now)
	c.wake.Wake()
}

// message is that of a node's condition: what `kubectl describe node` shows to who has never heard of us.
func message(job string, n *verdict.Node) string {
	when := fmt.Sprintf("step %d", n.SinceStep)
	if n.SinceTime != "" { // RFC 3339: those who read conditions sit in other places
		when += " (" + n.SinceTime + ")"
	}

	s := fmt.Sprintf("%sslow, costs %s of its time (%s, x%.2f since %s). %s", jobWords(job), report.Costs(n.JobImpact, n.JobImpactMax), n.Cause, n.Slowdown, when, n.Detail)
	return cut(s, maxMessage)
}

// between are the times of two steps, where they are known.
func between(from, to string) string {
	if from == "" || to == "" {
		return ""
	}

	return " (" + from + " to " + to + ")"
}

// jobWords begin the message of a condition: they tell whose it is.
func jobWords(job string) string { return "job " + job + ": " }

// events queues transients that are new. Those of before the first verdict on a
// job are old news.
func (c *Cluster) events(v *verdict.Verdict, now time.Time) {
	// A first verdict may name what passed a week ago.
	known := c.state.Jobs[v.Job]
	c.state.Jobs[v.Job] = true
	for _, e := range v.Events {
		name := eventName(v.Job, e)
		if _, ok := c.state.Seen[name]; ok {
			continue
		}

		if len(c.state.Seen) >= maxSeen {
			c.forgetEvents()
		}

		c.state.Seen[name] = now
		if n := c.node(e.Node); known && now.Sub(n.Posted) >= eventEvery {
			n.Posted = now
			c.state.Events = append(c.state.Events, event{name, e.Node,
				fmt.Sprintf("job %s: slow (%s) in steps %d to %d%s, and well again", v.Job, e.Cause, e.FirstStep, e.LastStep, between(e.FirstTime, e.LastTime)), now})
		}
	}
}

// forgetEvents drops the older half of what was seen.
func (c *Cluster) forgetEvents() {
	at := slices.SortedFunc(maps.Values(c.state.Seen), time.Time.Compare)
	for name, t := range c.state.Seen {
		if !t.After(at[len(at)/2]) {
			delete(c.state.Seen, name)
		}
	}
}

// node is what was written of a node, nothing yet of one that is new.
func (c *Cluster) node(name string) *node {
	n := c.state.Nodes[name]
	if n == nil {
		n = &node{}
		c.state.Nodes[name] = n
	}

	return n
}
