package health

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// MindCluster's names: the job's kind, the labels that say how a job is taken off a
// node that is not well, and the ConfigMap by which others tell ClusterD of faults
// (ClusterD's public fault interface). Sender and code are of those it knows without
// being configured: a slow node, of level SubHealthFault.
const (
	ascendJobs      = "/apis/mindxdl.gitee.com/v1"
	faultNamespace  = "mindx-dl"
	faultLabel      = "mc-consumer-publicfault"
	faultSender     = "fd-online"
	faultCode       = "110001010"
	strategyLabel   = "subHealthyStrategy"
	schedulingLabel = "fault-scheduling"
	strategyIgnore  = "ignore"
	strategyGrace   = "graceExit"
	// maxChips is how many device ids a fault may name.
	maxChips = 32
)

// ours annotate a job that was told to leave a node.
const (
	nodeAnnotation  = "laggard.io/slow-node"
	ranksAnnotation = "laggard.io/slow-ranks"
)

// rescheduling is what is known and was done of a node's job.
type rescheduling struct {
	Job     string    `json:"job"`
	Ranks   []int     `json:"ranks"`
	Devices int       `json:"devices"`
	At      time.Time `json:"at"` // of the fault: its recovery must name the same
	// Looked: the cluster was asked for the job; Path is empty when it is none of
	// MindCluster's.
	Looked bool   `json:"looked"`
	Path   string `json:"path,omitempty"`
	// Strategy and Scheduling are what the labels were, nil absent.
	Strategy   *string `json:"strategy,omitempty"`
	Scheduling *string `json:"scheduling,omitempty"`
	Labelled   bool    `json:"labelled"`
}

// reschedule returns the next call on the way to taking a job off a node, or back:
// find the job, label it, tell ClusterD of the node.
func (c *Cluster) reschedule(name string, n *node, bad bool) call {
	if n.Move == nil {
		n.Move = &rescheduling{Job: n.Job, Ranks: n.Ranks, Devices: n.Devices, At: c.o.Now()}
	}

	m := n.Move
	switch {
	case bad && !m.Looked:
		return m.find(name)
	case bad && m.Path != "" && !m.Labelled:
		return m.label(name)
	case !bad && m.Labelled:
		return m.unlabel(name)
	}

	return m.fault(name, n, bad, c.o.Now())
}

// find is GET ascendjobs: TaskD knows a job by its uid.
func (m *rescheduling) find(node string) call {
	return call{node: node, words: "find AscendJob " + m.Job, reads: true,
		do: func(ctx context.Context, api API) error {
			var list struct {
				Items []struct {
					Metadata struct {
						Name, Namespace, UID string
						Labels               map[string]*string
					}
				}
			}
			err := api.Get(ctx, ascendJobs+"/ascendjobs", &list)
			if missing(err) {
				return nil // no MindCluster
			}

			if err != nil {
				return err
			}

			for _, i := range list.Items {
				j := i.Metadata
				if j.UID != m.Job && j.Name != m.Job && j.Namespace+"/"+j.Name != m.Job {
					continue
				}

				m.Path = ascendJobs + "/namespaces/" + url.PathEscape(j.Namespace) + "/ascendjobs/" + url.PathEscape(j.Name)
				m.Strategy, m.Scheduling = j.Labels[strategyLabel], j.Labels[schedulingLabel]
			}

			return nil
		},
		done: func() { m.Looked = true }}
}

// label is PATCH of the job: ranks and node as annotations, and the strategies where
// the job's owner chose none.
func (m *rescheduling) label(node string) call {
	labels := map[string]any{}
	if m.Strategy == nil || *m.Strategy == strategyIgnore {
		labels[strategyLabel] = strategyGrace
	}

	if m.Scheduling == nil {
		labels[schedulingLabel] = "grace"
	}

	meta := map[string]any{"annotations": map[string]any{nodeAnnotation: node, ranksAnnotation: commas(m.Ranks)}}
	if len(labels) > 0 {
		meta["labels"] = labels
	}

	return m.patch(node, "label AscendJob "+m.Job+" to leave node "+node, meta, func() { m.Labelled = true })
}

// unlabel puts the labels back as they were.
func (m *rescheduling) unlabel(node string) call {
	labels := map[string]any{strategyLabel: m.Strategy, schedulingLabel: m.Scheduling}
	meta := map[string]any{"annotations": map[string]any{nodeAnnotation: nil, ranksAnnotation: nil}, "labels": labels}
	return m.patch(node, "put labels of AscendJob "+m.Job+" back", meta, func() { m.Labelled = false })
}

// patch changes the job's metadata. A job that has gone needs no labels any more.
func (m *rescheduling) patch(node, words string, meta map[string]any, done func()) call {
	return call{node: node, words: words, done: done, do: func(ctx context.Context, api API) error {
		err := api.call(ctx, http.MethodPatch, m.Path, mergePatch, map[string]any{"metadata": meta}, nil)
		if missing(err) {
			return nil // the job has gone
		}

		return err
	}}
}

// fault is the public fault of a node, or its end: server-side apply of one ConfigMap
// a node. Chips are not told apart: the whole node is to be left.
func (m *rescheduling) fault(name string, n *node, bad bool, now time.Time) call {
	assertion, words := "occur", "tell ClusterD that node "+name+" is not well"
	if !bad {
		assertion, words = "recover", "tell ClusterD that node "+name+" is well again"
	}

	chips := make([]int, min(max(m.Devices, 1), maxChips))
	for i := range chips {
		chips[i] = i
	}

	id := fmt.Sprintf("laggard-%s-%d", name, m.At.UnixMilli())
	// From the end: the time in it tells one fault from another, and ClusterD takes 128 characters.
	id = id[max(0, len(id)-128):]
	message, err := json.Marshal(map[string]any{
		"id": fmt.Sprintf("laggard-%s-%d", assertion, now.UnixNano()), "timestamp": now.UnixMilli(), "version": "1.0", "resource": faultSender,
		"faults": []any{map[string]any{
			"faultId": id, "faultType": "Node", "faultCode": faultCode, "faultTime": m.At.UnixMilli(), "assertion": assertion,
			"influence":   []any{map[string]any{"nodeName": name, "deviceIds": chips}},
			"description": cut("ranks "+commas(m.Ranks)+" of job "+m.Job+" are slow", 512),
		}},
	})
	if err != nil {
		panic("BUG: marshal fault: " + err.Error())
	}

	return call{ // not of the node: its 404 is a namespace that is missing
		words: words,
		do: func(ctx context.Context, api API) error {
			return api.applyConfigMap(ctx, faultNamespace, "laggard-fault-"+name, map[string]any{"labels": map[string]any{faultLabel: "true"}}, map[string]string{"PublicFault": string(message)})
		},
		done: func() {
			n.Acted, n.Applied = bad, bad
			if !bad {
				n.Move = nil
			}
		},
	}
}

// commas are numbers as an annotation has them: 0,1,2.
func commas(ranks []int) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(ranks), " ", ","), "[]")
}

// cut bounds what goes into a field that the server bounds, in bytes.
func cut(s string, n int) string { return s[:min(len(s), n)] }
