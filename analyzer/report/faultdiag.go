package report

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// faultDiag is one node's entry of FaultDiag-online's result JSON
// (schemas/TASKD.md section 8).
type faultDiag struct {
	IsSlow                   int      `json:"isSlow"`
	DegradationLevel         string   `json:"degradationLevel"`
	JobID                    string   `json:"jobId"`
	NodeRank                 string   `json:"nodeRank"`
	SlowCalculateRanks       []int    `json:"slowCalculateRanks"`
	SlowCommunicationDomains [][]int  `json:"slowCommunicationDomains"`
	SlowSendRanks            []int    `json:"slowSendRanks"`
	SlowHostNodes            []string `json:"slowHostNodes"`
	SlowIORanks              []int    `json:"slowIORanks"`
	// SlowCommunicationRanks stands in the cluster's result only, there blanked.
	SlowCommunicationRanks []int `json:"slowCommunicationRanks"`

	impact float64 // the largest of its causes
}

// FaultDiag writes the verdict as FaultDiag-online would report it, so that what
// consumes its results keeps working: one entry a node of the frame, under the
// node's own name, isSlow where it is a degraded or intermittent culprit.
//
// degradationLevel is what the step time has grown by because of the node.
// Compute and unattributed culprits are slowCalculateRanks, those with a slow host
// slowHostNodes, data loading and checkpoints slowIORanks; the ranks of one with a slow
// network are a slowCommunicationDomain. A slow link of two
// ranks (dims says "pp") is in slowSendRanks by its first rank, others are
// slowCommunicationDomains; slowCommunicationRanks are the ranks of both. dims tells
// a group's dimension, "" where it is not known.
func FaultDiag(w io.Writer, v *verdict.Verdict, f *frame.Frame, dims func(group string) string) error {
	entries := map[string]*faultDiag{}
	entry := func(node string) *faultDiag {
		e := entries[node]
		if e == nil {
			e = &faultDiag{
				DegradationLevel: degradation(0), JobID: v.Job, NodeRank: node, SlowCalculateRanks: []int{},
				SlowCommunicationDomains: [][]int{}, SlowSendRanks: []int{}, SlowHostNodes: []string{}, SlowIORanks: []int{}, SlowCommunicationRanks: []int{},
			}
			entries[node] = e
		}

		return e
	}
	for _, r := range pictureOf(f).drawn {
		entry(r.node)
	}

	nodes, links := convicted(v)
	for _, n := range nodes {
		entry(n.Node).accuse(n)
	}

	for _, l := range links {
		for _, node := range l.Nodes {
			e := entry(node)
			e.slow(l.Most())
			e.SlowCommunicationRanks = append(e.SlowCommunicationRanks, l.Ranks...)
			if dims(l.Group) == "pp" && len(l.Ranks) > 0 {
				e.SlowSendRanks = append(e.SlowSendRanks, l.Ranks[0])
			} else {
				e.SlowCommunicationDomains = append(e.SlowCommunicationDomains, slices.Clone(l.Ranks))
			}
		}
	}

	for _, e := range entries { // a rank in several slow links once
		for _, ranks := range []*[]int{&e.SlowSendRanks, &e.SlowCommunicationRanks} {
			slices.Sort(*ranks)
			*ranks = slices.Compact(*ranks)
		}
	}

	out := json.NewEncoder(w)
	out.SetIndent("", "  ")
	return out.Encode(map[string]any{"slownode_" + v.Job: entries})
}

// slow marks the node; of several causes the costliest gives the level.
func (e *faultDiag) slow(impact float64) {
	if e.IsSlow == 0 || impact > e.impact {
		e.impact = impact
	}

	e.IsSlow = 1
	e.DegradationLevel = degradation(e.impact)
}

// degradation turns a share of the step time that is lost into what the step has grown by, in
// percent of what it would be: half of it lost is a step twice as long.
func degradation(impact float64) string {
	return fmt.Sprintf("%.2f%%", 100*impact/(1-min(impact, 0.99)))
}

// accuse enters a culprit in the list of its cause: what is neither loading, saving, host nor
// network counts as computing.
func (e *faultDiag) accuse(n verdict.Node) {
	e.slow(n.Most())
	switch n.Cause {
	case verdict.DataLoader, verdict.Checkpoint:
		e.SlowIORanks = append(e.SlowIORanks, n.Ranks...)
	case verdict.HostDelay:
		e.SlowHostNodes = append(e.SlowHostNodes, n.Node)
	case verdict.Communication:
		e.SlowCommunicationDomains = append(e.SlowCommunicationDomains, slices.Clone(n.Ranks))
		e.SlowCommunicationRanks = append(e.SlowCommunicationRanks, n.Ranks...)
	default:
		e.SlowCalculateRanks = append(e.SlowCalculateRanks, n.Ranks...)
	}
}
