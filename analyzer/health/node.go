package health

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// What laggard sets on a node. The node itself remembers it: a taint by its key, the
// condition by its type, and a cordon, which everybody sets with one and the same
// word, by an annotation. Without the annotation a cordon is somebody else's.
const (
	// conditionType is the type of the node condition.
	conditionType = "TrainingDegraded"

	taintKey         = "laggard.io/training-degraded"
	taintEffect      = "NoSchedule"
	cordonAnnotation = "laggard.io/cordoned"
)

// object is a node of the cluster, as far as laggard reads it.
type object struct {
	Metadata struct {
		Name, ResourceVersion string
		Annotations           map[string]string
	}
	Spec struct {
		Unschedulable bool
		// Taints are whole, as they came: the list is written back as one.
		Taints []map[string]any
	}
	Status struct {
		Conditions []condition
	}
}

// condition is one of a node's conditions: laggard reads its own.
type condition struct {
	Type, Status, Reason, Message string
	LastTransitionTime            time.Time
}

// nodePath is the path of a node on the API server. The name is the job's word for it, so it is escaped.
func nodePath(name string) string { return "/api/v1/nodes/" + url.PathEscape(name) }

// tainted returns where our taint stands in the list, -1 where it doesn't.
func (o *object) tainted() int {
	return slices.IndexFunc(o.Spec.Taints, func(t map[string]any) bool { return t["key"] == taintKey && t["effect"] == taintEffect })
}

// cordoned reports whether the node was cordoned by us.
func (o *object) cordoned() bool {
	_, ok := o.Metadata.Annotations[cordonAnnotation]
	return ok
}

// condition returns ours, nil where there is none.
func (o *object) condition() *condition {
	if i := slices.IndexFunc(o.Status.Conditions, func(c condition) bool { return c.Type == conditionType }); i >= 0 {
		return &o.Status.Conditions[i]
	}

	return nil
}

// Taint, cordon and clear return a merge patch of the node, nil where it is as it should be.

// taint adds our taint to those of others: the list is atomic for the API server, so
// that a patch that names one taint would replace all.
func (o *object) taint(reason string) map[string]any {
	if o.tainted() >= 0 {
		return nil
	}

	ours := map[string]any{"key": taintKey, "effect": taintEffect, "value": reason}
	return map[string]any{"spec": map[string]any{"taints": append(slices.Clone(o.Spec.Taints), ours)}}
}

// cordon marks what it cordons; a node that is cordoned already stays whose it is.
func (o *object) cordon(reason string) map[string]any {
	if o.Spec.Unschedulable {
		return nil
	}

	return map[string]any{"spec": map[string]any{"unschedulable": true}, "metadata": map[string]any{"annotations": map[string]any{cordonAnnotation: reason}}}
}

// clear takes back whatever of ours stands on the node.
func (o *object) clear() map[string]any {
	spec, e := map[string]any{}, map[string]any{}
	if i := o.tainted(); i >= 0 {
		spec["taints"] = slices.Delete(slices.Clone(o.Spec.Taints), i, i+1)
	}

	if o.cordoned() {
		spec["unschedulable"] = nil
		e["metadata"] = map[string]any{"annotations": map[string]any{cordonAnnotation: nil}}
	}

	if len(spec) > 0 {
		e["spec"] = spec
	}

	if len(e) == 0 {
		return nil
	}

	return e
}

// Retries of a write that met another one: tens of milliseconds first, a few seconds
// in all. Then the back-off of all calls takes over.
const (
	conflictTries = 6
	conflictWait  = 40 * time.Millisecond
)

// change reads a node and writes back the patch that with makes of it, on condition that nobody
// wrote in between; if somebody did, it reads again.
func (a API) change(ctx context.Context, name string, with func(*object) map[string]any) error {
	for try := range conflictTries {
		var o object
		if err := a.Get(ctx, nodePath(name), &o); err != nil {
			return err
		}

		e := with(&o)
		if e == nil {
			return nil
		}

		// The version makes the server refuse the patch if somebody has written since we read.
		if e["metadata"] == nil {
			e["metadata"] = map[string]any{}
		}

		e["metadata"].(map[string]any)["resourceVersion"] = o.Metadata.ResourceVersion
		err := a.call(ctx, http.MethodPatch, nodePath(name), mergePatch, e, nil)
		if !answered(err, http.StatusConflict) || try == conflictTries-1 {
			return err
		}

		wait := conflictWait << try
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait + rand.N(wait)):
		}
	}

	panic("BUG: the last try returns")
}

// setCondition adds or replaces one condition, or takes it off with $patch: that list has a key, so others' stay.
func (a API) setCondition(ctx context.Context, name string, c map[string]any) error {
	body := map[string]any{"status": map[string]any{"conditions": []any{c}}}
	return a.call(ctx, http.MethodPatch, nodePath(name)+"/status", strategicPatch, body, nil)
}

// nodesAPage keeps one answer to a few megabytes: a node is ten kilobytes and more,
// most of it the list of its images.
const nodesAPage = 250

// ours hands over each node of the cluster that has something of ours.
func (a API) ours(ctx context.Context, take func(*object)) error {
	next := ""
	for {
		path := fmt.Sprintf("/api/v1/nodes?limit=%d", nodesAPage)
		if next != "" {
			path += "&continue=" + url.QueryEscape(next)
		}

		var page struct {
			Metadata struct{ Continue string }
			Items    []object
		}
		if err := a.Get(ctx, path, &page); err != nil {
			return err
		}

		for i := range page.Items {
			o := &page.Items[i]
			if o.tainted() >= 0 || o.cordoned() || o.condition() != nil {
				take(o)
			}
		}

		if next = page.Metadata.Continue; next == "" {
			return nil
		}
	}
}

// of reports whether a condition was said of one of these jobs, of any with none.
func (c *condition) of(jobs []string) bool {
	return len(jobs) == 0 || slices.ContainsFunc(jobs, func(job string) bool { return strings.HasPrefix(c.Message, jobWords(job)) })
}
