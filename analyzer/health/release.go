package health

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Release takes back everything that laggard set on the cluster's nodes, whichever
// process did it: taints, cordons, annotations and conditions, and what the state
// file knows of rescheduled jobs. No watcher may run beside. It returns how many nodes
// had something; the error says what is left.
func (c *Cluster) Release(ctx context.Context) (int, error) {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(c.state.Nodes)) {
		for n := c.state.Nodes[name]; n.Move != nil; {
			if err := c.insist(ctx, c.reschedule(name, n, false)); err != nil {
				errs = append(errs, err)
				break
			}
		}
	}

	var found []*object
	if err := c.insist(ctx, c.list(&found)); err != nil {
		return 0, errors.Join(append(errs, err)...)
	}

	for _, o := range found {
		for _, j := range c.releases(o) {
			err := c.insist(ctx, j)
			if errs = append(errs, err); err != nil && !refused(err) {
				return len(found), errors.Join(errs...) // the server's trouble, not this node's
			}
		}
	}

	return len(found), errors.Join(errs...)
}

// list reads which nodes have something of ours.
func (c *Cluster) list(found *[]*object) call {
	return call{words: "list nodes", reads: true, dry: true, done: func() {},
		do: func(ctx context.Context, api API) error {
			*found = nil
			return api.ours(ctx, func(o *object) { *found = append(*found, o) })
		}}
}

// releases are the calls that leave nothing of ours on a node.
func (c *Cluster) releases(o *object) (calls []call) {
	name := o.Metadata.Name
	if o.clear() != nil {
		calls = append(calls, call{node: name, words: fmt.Sprintf("release node %s: cordon, taint", name), done: func() {},
			do: func(ctx context.Context, api API) error { return api.change(ctx, name, (*object).clear) }})
	}

	if o.condition() != nil {
		gone := map[string]any{"type": conditionType, "$patch": "delete"}
		calls = append(calls, call{node: name, words: fmt.Sprintf("release node %s: condition %s", name, conditionType), done: func() { delete(c.state.Nodes, name) },
			do: func(ctx context.Context, api API) error { return api.setCondition(ctx, name, gone) }})
	}

	return calls
}
