package health

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/laggard-dev/laggard/schemas/keep"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// call is one thing to do at the cluster, and what is true once it is done.
type call struct {
	words string
	node  string // whose it is; "" where not found is no word on a node
	reads bool   // nothing is written
	dry   bool   // a dry run makes it too
	do    func(context.Context, API) error
	done  func()
}

// plan returns the calls that are due.
func (c *Cluster) plan(now time.Time) []call {
	if !c.adopted && !c.o.DryRun {
		return []call{c.adopt()}
	}

	var calls []call
	want := c.wanted(now)
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if c.waits(name, now) {
			continue
		}

		n, w := c.node(name), want[name]
		// The condition goes first, and the act with the next plan: who sees a cordon finds its reason.
		if c.due(n, w, now) {
			calls = append(calls, c.condition(name, n, w, now))
			continue
		}

		if call, ok := c.act(name, n); ok {
			calls = append(calls, call)
		}
	}

	for _, e := range c.state.Events {
		if !c.waits(e.Node, now) {
			calls = append(calls, c.post(e))
		}
	}

	return calls
}

// waits reports whether a node is left alone for now.
func (c *Cluster) waits(node string, now time.Time) bool {
	b := c.later[node]
	return b != nil && now.Before(b.until)
}

// adopt learns from the nodes what an earlier process set on them.
func (c *Cluster) adopt() call {
	var found []*object
	j := c.list(&found)
	j.done = func() {
		c.adopted = true
		here := map[string]*object{}
		for _, o := range found {
			here[o.Metadata.Name] = o
		}

		for name, n := range c.state.Nodes {
			if here[name] == nil && n.Move == nil {
				*n = node{Posted: n.Posted} // released, or a new machine of that name
			}
		}

		for name, o := range here {
			c.learn(name, o)
		}
	}
	return j
}

// learn takes a node as it stands. Where the state knows of an act that the node no
// longer shows, somebody took it back: it isn't done again.
func (c *Cluster) learn(name string, o *object) {
	is := o.condition()
	if is == nil {
		is = &condition{}
	}

	if !is.of(c.o.Jobs) {
		return
	}

	n := c.node(name)
	if n.Status != is.Status || n.Reason != is.Reason {
		n.Status, n.Reason, n.Message, n.Since = is.Status, is.Reason, is.Message, is.LastTransitionTime
	}

	if o.clear() != nil {
		n.Acted, n.Applied = true, true
	}
}

// wanted merges what the jobs say: of several reasons the one that costs most.
func (c *Cluster) wanted(now time.Time) map[string]judgement {
	want := map[string]judgement{}
	// Without a job that is heard of nothing is taken back.
	fresh := 0
	for _, job := range slices.Sorted(maps.Keys(c.said)) {
		stale := now.Sub(c.heard[job]) > staleAfter
		if !stale {
			fresh++
		}

		for name, o := range c.said[job] {
			if stale {
				o.Status, o.Reason, o.weight = "Unknown", reasonEnded, 0
			}

			if w, ok := want[name]; !ok || o.weight > w.weight {
				want[name] = o
			}
		}
	}

	for name, n := range c.state.Nodes {
		if _, ok := want[name]; ok || (n.Status == "" || n.Status == "False") && !n.Acted {
			continue
		}

		if fresh == 0 {
			want[name] = n.judgement // nobody has said anything yet: after a restart
			continue
		}

		want[name] = judgement{Status: "False", Reason: reasonNone, Message: "no training job is slowed down by this node"}
	}

	return want
}

// due reports whether the condition must be written: what is bad at once, what
// takes something back after Hold, and the heartbeat.
func (c *Cluster) due(n *node, w judgement, now time.Time) bool {
	if n.Status == w.Status && n.Reason == w.Reason {
		n.Other, n.Want = time.Time{}, ""
		return w.Status == "True" && now.Sub(n.Beat) >= heartbeat
	}

	if n.Status == "" {
		return w.Status != "Unknown" // a job that ended before anybody heard of it
	}

	// The wait begins anew whenever something else is wanted: a verdict that wavers changes nothing.
	if key := w.Status + w.Reason; n.Want != key {
		n.Want, n.Other = key, now
	}

	settled := now.Sub(n.Other) >= c.o.Hold
	if w.Status == "True" && n.Status != "True" {
		return now.Sub(n.Since) >= c.o.Hold
	}

	return settled
}

// condition is PATCH nodes/<name>/status.
func (c *Cluster) condition(name string, n *node, w judgement, now time.Time) call {
	since := n.Since
	if n.Status != w.Status || since.IsZero() {
		since = now
	}

	stamp := func(t time.Time) string { return t.UTC().Format(time.RFC3339) }
	body := map[string]any{
		"type": conditionType, "status": w.Status, "reason": w.Reason, "message": w.Message,
		"lastHeartbeatTime": stamp(now), "lastTransitionTime": stamp(since),
	}
	return call{
		node: name, words: fmt.Sprintf("condition %s=%s of node %s, reason %s", conditionType, w.Status, name, w.Reason),
		do: func(ctx context.Context, api API) error { return api.setCondition(ctx, name, body) },
		done: func() {
			if n.Status != w.Status || n.Reason != w.Reason {
				n.Since = now
			}

			n.judgement, n.Beat = w, now
			n.Other, n.Want = time.Time{}, ""
		},
	}
}

// act changes the node, or is the next call of reschedule: what is done to a node that
// is degraded, as long as fewer than MaxNodes are acted on, and its end when the node
// is well. A node takes its place under the cap before the call: a call that was
// carried out and not answered counts.
func (c *Cluster) act(name string, n *node) (call, bool) {
	bad := n.Status == "True"
	if c.o.Act == "" || n.Status == "Unknown" || bad == n.Acted && n.Applied == bad {
		return call{}, false
	}

	if bad && !n.Acted {
		if c.acted() >= c.o.MaxNodes {
			return call{}, false
		}

		n.Acted = true
		if err := c.save(); err != nil {
			n.Acted = false
			c.o.Log.Error("not acted: the state can't be saved", "node", name, "error", err)
			return call{}, false
		}
	}

	if c.o.Act == ActReschedule {
		return c.reschedule(name, n, bad), true
	}

	reason, with, words := n.Reason, (*object).clear, "undo "+c.o.Act+" of node "+name
	if bad {
		words = c.o.Act + " node " + name
		with = func(o *object) map[string]any { return o.cordon(reason) }
		if c.o.Act == actTaint {
			with = func(o *object) map[string]any { return o.taint(reason) }
		}
	}

	return call{node: name, words: words,
		do:   func(ctx context.Context, api API) error { return api.change(ctx, name, with) },
		done: func() { n.Acted, n.Applied = bad, bad }}, true
}

// acted is how many nodes have a place under the cap.
func (c *Cluster) acted() int {
	k := 0
	for _, n := range c.state.Nodes {
		if n.Acted {
			k++
		}
	}

	return k
}

// post is POST events.
func (c *Cluster) post(e event) call {
	at := e.At.UTC().Format(time.RFC3339)
	body := map[string]any{
		"apiVersion": "v1", "kind": "Event",
		"metadata":       map[string]any{"name": e.Name, "namespace": eventNamespace},
		"involvedObject": map[string]any{"apiVersion": "v1", "kind": "Node", "name": e.Node, "uid": e.Node},
		"reason":         "TrainingSlowed", "message": e.Message, "type": "Warning", "count": 1,
		"firstTimestamp": at, "lastTimestamp": at, "source": map[string]any{"component": "laggard"},
	}
	path := "/api/v1/namespaces/" + eventNamespace + "/events"
	return call{
		words: "event on node " + e.Node + ": " + e.Message,
		do: func(ctx context.Context, api API) error {
			err := api.call(ctx, http.MethodPost, path, jsonBody, body, nil)
			if answered(err, http.StatusConflict) {
				return nil // an earlier try came through
			}

			return err
		},
		done: func() {
			c.state.Events = slices.DeleteFunc(c.state.Events, func(x event) bool { return x.Name == e.Name })
		},
	}
}

// eventName is the same for the same event, so that a second try is a conflict.
func eventName(job string, e verdict.Event) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%d", job, e.Node, e.FirstStep))
	return "laggard." + hex.EncodeToString(sum[:10])
}

// load reads the state of an earlier process.
func (c *Cluster) load() error {
	var s state
	if err := keep.LoadState(c.o.StateFile, &s); err != nil {
		return fmt.Errorf("load state of the cluster %s: %w; it says which nodes were acted on: look at them before you move it away", c.o.StateFile, err)
	}

	for name, n := range s.Nodes {
		if n != nil {
			c.state.Nodes[name] = n
		}
	}

	maps.Copy(c.state.Seen, s.Seen)
	maps.Copy(c.state.Jobs, s.Jobs)
	c.state.Events = s.Events
	return nil
}

// save writes the state durably.
func (c *Cluster) save() error {
	if c.o.DryRun {
		return nil
	}

	if err := keep.SaveState(c.o.StateFile, c.state); err != nil {
		return fmt.Errorf("save state of the cluster: %w", err)
	}

	return nil
}
