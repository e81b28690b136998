package apiserver_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// TestHarmlessNode: a node that is really slow and costs less than --min-impact stays in
// `nodes` as degraded, with exit code 0. Its condition is False with the same cost in the
// same words as the headline's, nothing is done to it, and the other nodes have none. For
// whom that share counts it is True, with the same words.
func TestHarmlessNode(t *testing.T) {
	s := shared
	s.makeNodes(t, names(8)...)
	at := s.through(t, adminToken, func(*http.Request, *http.Response) {})
	j := newJob(t, "compute-1.10", func(config map[string]any) {
		fault := config["faults"].([]any)[0].(map[string]any)
		fault["node"], fault["locals"], fault["factor"], fault["from"], fault["to"] = 1, []any{0}, 1.05, 75, 0
	})
	j.show(allSteps)

	text, err := outside(t.Context(), "analyze", j.dir, "-o", "json").Output()
	if err != nil {
		t.Fatalf("analyze: %v", err) // among them another exit code than 0
	}
	var v struct {
		Healthy bool
		Nodes   []struct {
			Node, State, Cause string
			Slowdown           float64
			Impact             float64 `json:"job_impact"`
			Since              int     `json:"since_step"`
			At                 string  `json:"since_time"`
		}
	}
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	if !v.Healthy || len(v.Nodes) != 1 || v.Nodes[0].Node != slowNode || v.Nodes[0].State != "degraded" || v.Nodes[0].Impact < 0.002 || v.Nodes[0].Impact >= 0.0095 {
		t.Fatalf("the job has no harmless culprit: %s", text)
	}
	n := v.Nodes[0]
	slow := fmt.Sprintf("slow, costs %.1f%%", 100*n.Impact)
	if table, err := outside(t.Context(), "analyze", j.dir).Output(); err != nil || !strings.Contains(string(table), slowNode+" is "+slow+".") {
		t.Errorf("analyze: %v, want %q in\n%s", err, slow, table)
	}
	words := fmt.Sprintf("job %s: %s of its time (%s, x%.2f since step %d (%s)). ", jobName, slow, n.Cause, n.Slowdown, n.Since, n.At)
	for _, c := range []struct {
		least     string
		code      int
		condition string
	}{{"0.01", 0, "False Harmless"}, {"0.001", 3, "True SlowCompute"}} {
		p := newPod(t, s, t.TempDir(), j.watching("--act=taint", "--once", "--min-impact="+c.least, "--kubernetes-server="+at)...)
		if code := p.runs(); code != c.code {
			t.Errorf("--min-impact=%s: exit code %d, want %d", c.least, code, c.code)
		}
		for _, name := range names(8) {
			node := s.node(t, name)
			want := ""
			if name == slowNode {
				want = c.condition
			}
			if got := conditionOf(node, condition); got != want {
				t.Errorf("--min-impact=%s: condition of %s is %q, want %q", c.least, name, got, want)
			}
			if tainted := name == slowNode && c.code == 3; ours(node) != tainted {
				t.Errorf("--min-impact=%s: taints of %s: %+v", c.least, name, node.Spec.Taints)
			}
			for _, x := range node.Status.Conditions {
				if x.Type == condition && !strings.HasPrefix(x.Message, words) {
					t.Errorf("--min-impact=%s: %q, want it to begin with %q", c.least, x.Message, words)
				}
			}
		}
	}
}
