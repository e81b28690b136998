package health

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/laggard-dev/laggard/schemas/verdict"
)

const ascendList = `{"items":[{"metadata":{"name":"other","namespace":"a","uid":"u1"}},
{"metadata":{"name":"train","namespace":"research","uid":"8f3c","labels":{"subHealthyStrategy":"ignore","fault-scheduling":"force"}}}]}`

// ascend is a recorded API with one of MindCluster's jobs.
func ascend(t *testing.T) *api {
	a := newAPI(t)
	a.get = ascendList
	return a
}

// bodyOf returns the body of the n-th call that begins so.
func (a *api) bodyOf(t *testing.T, prefix string, n int) map[string]any {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, c := range a.calls {
		if !strings.HasPrefix(c, prefix) {
			continue
		}

		if n--; n >= 0 {
			continue
		}

		var body map[string]any
		if err := json.Unmarshal([]byte(a.bodies[i]), &body); err != nil {
			t.Fatal(err)
		}

		return body
	}

	t.Fatalf("no call %s among %v", prefix, a.calls)
	return nil
}

const (
	jobPath   = "PATCH /apis/mindxdl.gitee.com/v1/namespaces/research/ascendjobs/train"
	faultPath = "PATCH /api/v1/namespaces/mindx-dl/configmaps/laggard-fault-n1"
)

func slowRanks(job, node string) *verdict.Verdict {
	v := slow(job, node)
	v.Nodes[0].Ranks, v.Nodes[0].Devices = []int{24, 26}, 8
	return v
}

// fault reads the message to ClusterD as its documentation has it, strictly.
func fault(t *testing.T, body map[string]any) (assertion, id, node string, at int64, chips []int) {
	t.Helper()
	var m struct {
		ID        string `json:"id"`
		Timestamp int64  `json:"timestamp"`
		Version   string `json:"version"`
		Resource  string `json:"resource"`
		Faults    []struct {
			FaultID, FaultType, FaultCode, Assertion, Description string
			FaultTime                                             int64
			Influence                                             []struct {
				NodeName  string
				DeviceIDs []int
			}
		} `json:"faults"`
	}
	d := json.NewDecoder(strings.NewReader(body["data"].(map[string]any)["PublicFault"].(string)))
	d.DisallowUnknownFields()
	if err := d.Decode(&m); err != nil {
		t.Fatal(err)
	}

	f := m.Faults[0]
	if len(m.ID) < 8 || len(m.ID) > 128 || m.Version != "1.0" || m.Resource != "fd-online" || f.FaultCode != "110001010" || f.FaultType != "Node" ||
		len(fmt.Sprint(m.Timestamp)) != 13 || len(f.FaultID) < 8 || len(f.FaultID) > 128 || len(m.Faults) != 1 || len(f.Influence) != 1 {
		t.Errorf("fault %+v", m)
	}

	if labels := body["metadata"].(map[string]any)["labels"]; fmt.Sprint(labels) != "map[mc-consumer-publicfault:true]" {
		t.Errorf("labels %v", labels)
	}

	return f.Assertion, f.FaultID, f.Influence[0].NodeName, f.FaultTime, f.Influence[0].DeviceIDs
}

// TestReschedule: the job is found by its uid, told to leave where its owner left it
// open, and ClusterD hears of the node, by its real name; over a restart in between
// all of it is taken back.
func TestReschedule(t *testing.T) {
	a, c := ascend(t), newClock()
	file := filepath.Join(t.TempDir(), "cluster.json")
	options := func(o *Options) { o.Act, o.StateFile = ActReschedule, file }
	h := start(t, a, c, options)
	h.Observe(slowRanks("8f3c", "n1"))
	c.sync(t, h, 6)
	meta := a.bodyOf(t, jobPath, 0)["metadata"].(map[string]any)
	if got := fmt.Sprint(meta["labels"], meta["annotations"]); got != "map[subHealthyStrategy:graceExit] map[laggard.io/slow-node:n1 laggard.io/slow-ranks:24,26]" {
		t.Errorf("the job was told %s", got)
	}

	assertion, id, node, at, chips := fault(t, a.bodyOf(t, faultPath, 0))
	if assertion != "occur" || node != "n1" || len(chips) != 8 {
		t.Errorf("%s of %s, chips %v", assertion, node, chips)
	}

	calls := a.count("")
	c.sync(t, h, 10)
	if a.count("")-calls > 1 { // a heartbeat
		t.Errorf("said again: %v", a.calls[calls:])
	}

	h = start(t, a, c, options)
	h.Observe(slow("8f3c"))
	c.sync(t, h, 60)
	meta = a.bodyOf(t, jobPath, 1)["metadata"].(map[string]any)
	if got := fmt.Sprint(meta["labels"], meta["annotations"]); got != "map[fault-scheduling:force subHealthyStrategy:ignore] map[laggard.io/slow-node:<nil> laggard.io/slow-ranks:<nil>]" {
		t.Errorf("taken back: %s", got)
	}

	again, sameID, _, sameAt, _ := fault(t, a.bodyOf(t, faultPath, 1))
	if again != "recover" || sameID != id || sameAt != at {
		t.Errorf("%s of %s at %d, want the recovery of %s at %d", again, sameID, sameAt, id, at)
	}

	if a.count(jobPath) != 2 || a.count(faultPath) != 2 || a.count("PATCH /api/v1/nodes/n1") != a.count("PATCH /api/v1/nodes/n1/status") {
		t.Errorf("calls %v", a.calls)
	}
}

// TestRescheduleGuards: the cap, the dry run, a job that is none of MindCluster's.
func TestRescheduleGuards(t *testing.T) {
	a, c := ascend(t), newClock()
	h := start(t, a, c, func(o *Options) { o.Act, o.MaxNodes = ActReschedule, 2 })
	h.Observe(slow("8f3c", "n1", "n2", "n3", "n4"))
	c.sync(t, h, 40)
	told := map[string]bool{}
	for _, call := range a.calls {
		if strings.Contains(call, "/configmaps/") {
			told[call] = true
		}
	}

	if len(told) != 2 {
		t.Errorf("ClusterD was told of %d nodes, the cap is 2: %v", len(told), told)
	}

	a, c = ascend(t), newClock()
	h = start(t, a, c, func(o *Options) { o.Act, o.DryRun = ActReschedule, true })
	h.Observe(slow("8f3c", "n1"))
	c.sync(t, h, 20)
	if a.count("") != 0 {
		t.Errorf("calls in a dry run: %v", a.calls)
	}

	for _, what := range []string{"no such job", "no MindCluster"} {
		a, c = newAPI(t), newClock()
		a.get = `{"items":[]}`
		if what == "no MindCluster" {
			a.answer = func(_ int, r *http.Request) (int, string) {
				if r.Method == http.MethodGet {
					return http.StatusNotFound, ""
				}

				return 0, ""
			}
		}

		h = start(t, a, c, func(o *Options) { o.Act = ActReschedule })
		h.Observe(slow("8f3c", "n1"))
		c.sync(t, h, 6)
		if a.count(faultPath) != 1 || slices.ContainsFunc(a.calls, func(s string) bool { return strings.HasPrefix(s, "PATCH /apis/") }) {
			t.Errorf("%s: calls %v", what, a.calls)
		}
	}
}
