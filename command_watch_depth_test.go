package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/laggard-dev/laggard/analyzer/health"
	"github.com/laggard-dev/laggard/analyzer/watch/depth"
	"github.com/laggard-dev/laggard/analyzer/watch/depth/agents"
	"github.com/laggard-dev/laggard/collector/trace"
	"github.com/laggard-dev/laggard/deploy/examples/dataparallel"
	layout "github.com/laggard-dev/laggard/schemas/parquet"
	"github.com/laggard-dev/laggard/schemas/row"
)

// depthSite is the demo's job with Communication off from the start, its agents, and
// a watcher process over their store that may deepen.
type depthSite struct {
	*demo
	t       *testing.T
	agents  string // file of addresses
	trained chan error
	watch   *running
}

// switchAddress of the first node is its socket, of the others TCP with TLS and a token.
func switchAddress(i int) *regexp.Regexp {
	if i == 0 {
		return regexp.MustCompile(`serving the switch" address=(unix:\S+)`)
	}
	return regexp.MustCompile(`serving the switch" address=(127\.\S+)`)
}

// newDepthSite starts all of it.
func newDepthSite(t *testing.T, fault string, slowRank, steps int, flags ...string) *depthSite {
	t.Helper()
	t.Setenv(asLaggard, "1")
	t.Setenv("LAGGARD_TRACE", "Step") // the four light kinds
	secured(t)
	t.Setenv("LAGGARD_LISTEN", "unix,127.0.0.1:0")
	s := &depthSite{t: t, trained: make(chan error, 1),
		demo: &demo{dir: t.TempDir(), fault: fault, slowRank: slowRank, steps: steps, out: io.Discard}}
	if err := s.prepare(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(s.rings) })
	s.progress = newProgress(os.Stderr, "training", steps)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { s.trained <- s.train(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-s.trained
	})
	s.agents = filepath.Join(s.dir, "agents.json")
	addresses := map[string]string{}
	s.until("the agents serve their switches", func() bool {
		for i := range demoNodes {
			node := demoNode(i * demoRanksPerNode)
			words, _ := os.ReadFile(filepath.Join(s.dir, node+".log"))
			if m := switchAddress(i).FindSubmatch(words); m != nil {
				addresses[node] = string(m[1])
			}
		}
		return len(addresses) == demoNodes
	})
	b, err := json.Marshal(addresses)
	if err == nil {
		err = os.WriteFile(s.agents, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	site := &site{t: t}
	s.watch = site.start(nil, append([]string{"watch", "parquet:" + s.store(), "--every", "1s", "-o", "json", "--metrics", "127.0.0.1:0",
		"--state", filepath.Join(s.dir, "watch"), "--agents", s.agents}, flags...)...)
	return s
}

// until polls, for as long as patience lasts.
func (s *depthSite) until(what string, ok func() bool) {
	s.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); !ok(); <-tick.C {
		select {
		case err := <-s.trained:
			s.trained <- err
			s.t.Fatalf("training ended before %s: %v\n%s", what, err, s.words())
		default:
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("never: %s\n%s", what, s.words())
		}
	}
}

func (s *depthSite) words() string {
	if s.watch == nil {
		return ""
	}
	return s.watch.words.String()
}

// deep lists the nodes whose recorders all act on Communication on, and when the
// last of these began to.
func (s *depthSite) deep() (nodes []string, since time.Time) {
	for i := range demoNodes {
		node := demoNode(i * demoRanksPerNode)
		recorders, err := trace.Recorders(s.ringDir(node))
		all := err == nil && len(recorders) > 0
		for _, r := range recorders {
			all = all && r.Followed == trace.On
			if at := time.Unix(0, r.FollowedAt); all && at.After(since) {
				since = at
			}
		}
		if all {
			nodes = append(nodes, node)
		}
	}
	return nodes, since
}

// logged waits for a line of the watcher and returns its time.
func (s *depthSite) logged(part string) time.Time {
	s.t.Helper()
	var at time.Time
	s.until(part, func() bool {
		for line := range strings.Lines(s.words()) {
			if strings.Contains(line, part) {
				stamp, _, _ := strings.Cut(strings.TrimPrefix(line, "time="), " ")
				at, _ = time.Parse(time.RFC3339Nano, stamp)
				return true
			}
		}
		return false
	})
	return at
}

// TestDepth_EndToEnd: a job of real processes records the light kinds alone. A worker
// is slow: the watcher turns Communication on for its node and a peer, no more than
// the cap allows, names the rank, and turns it off again.
func TestDepth_EndToEnd(t *testing.T) {
	const slow = 2
	s := newDepthSite(t, dataparallel.ComputeFault, slow, 180, "--deepen", "2", "--dry-run=false")
	began := s.logged("recording in depth begins")
	var nodes []string
	var since time.Time
	s.until("recorders follow Communication on", func() bool {
		nodes, since = s.deep()
		return len(nodes) == 2
	})
	deep := nodes
	t.Logf("Communication was on at %v %v after the watcher became suspicious", nodes, since.Sub(began))
	if !strings.Contains(fmt.Sprint(nodes), demoNode(slow)) {
		t.Errorf("deep are %v, without the suspect %s", nodes, demoNode(slow))
	}
	s.logged("recording in depth ends")
	s.until("recorders follow Communication off", func() bool {
		nodes, _ = s.deep()
		return len(nodes) == 0
	})
	if err := <-s.trained; err != nil {
		t.Fatal(err)
	}
	s.trained <- nil
	if n := strings.Count(s.words(), "switched: Communication on"); n != 2 {
		t.Errorf("%d switches on, want those of two nodes:\n%s", n, s.words())
	}
	a := &analysis{source: "parquet:" + s.store(), job: demoJob, minImpact: defaultMinImpact}
	v, err := a.decide(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.judge(v); err != nil {
		t.Errorf("%v\n%s", err, s.words())
	}
	s.measured(deep)
}

// measured: Communication is in some steps of the nodes that were deep, from one step on
// to another, and in none of the other nodes.
func (s *depthSite) measured(deep []string) {
	s.t.Helper()
	files, err := filepath.Glob(filepath.Join(s.store(), row.StepsTable, "job=*", "*"+layout.Suffix))
	if err != nil {
		s.t.Fatal(err)
	}
	with, all := map[string]int{}, map[string]int{}
	for _, f := range files {
		err := layout.Read(f, func(rows []struct {
			Node   string `parquet:"node"`
			CommNs int64  `parquet:"comm_ns"`
		}) error {
			for _, r := range rows {
				all[r.Node]++
				if r.CommNs >= 0 {
					with[r.Node]++
				}
			}
			return nil
		})
		if err != nil && !errors.Is(err, io.EOF) {
			s.t.Fatal(err)
		}
	}
	s.t.Logf("steps with Communication %v of %v", with, all)
	for node, n := range all {
		switch was := slices.Contains(deep, node); {
		case was && (with[node] < depth.DefaultEvidence || with[node] > n-depth.DefaultEvidence):
			s.t.Errorf("%s was deep and has Communication in %d of %d rank-steps", node, with[node], n)
		case !was && with[node] > 0:
			s.t.Errorf("%s was not deep and has Communication in %d rank-steps", node, with[node])
		}
	}
}

// TestDepth_Pods asks a cluster's API for the pods of a node, and switches those that
// know the job.
func TestDepth_Pods(t *testing.T) {
	asked := make(chan string, 10)
	a := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Method + " " + r.URL.Path + " " + r.URL.Query().Get("labelSelector") + " " + r.URL.Query().Get("fieldSelector")
		fmt.Fprint(w, `{"items":[{"status":{"podIP":"10.0.0.7"}},{"status":{}},{"status":{"podIP":"fd00::7"}}]}`)
	}))
	defer a.Close()
	s := &agents.Switch{Agents: agents.OfPods, API: health.API{Server: a.URL}}
	at, err := s.Addresses(t.Context(), "node-7")
	if err != nil || fmt.Sprint(at) != "[10.0.0.7:9611 [fd00::7]:9611]" {
		t.Errorf("addresses %v, %v", at, err)
	}
	if got, want := <-asked, "GET /api/v1/pods laggard/metrics=true spec.nodeName=node-7,status.phase=Running"; got != want {
		t.Errorf("asked %s, want %s", got, want)
	}
}

// TestDepth_Usage wants errors that say what to do.
func TestDepth_Usage(t *testing.T) {
	list := filepath.Join(t.TempDir(), "agents.yaml")
	if err := os.WriteFile(list, []byte("node-0: 127.0.0.1:1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		o    depthOptions
		want string
	}{
		{depthOptions{nodes: -1}, "want a number of nodes"},
		{depthOptions{nodes: 1, agents: "{node}:1"}, "--deepen-for"},
		{depthOptions{nodes: 1, longest: 1}, "--deepen needs --agents"},
		{depthOptions{nodes: 1, longest: 1, agents: "/nowhere"}, "an address with {node} in it"},
		{depthOptions{nodes: 1, longest: 1, agents: list}, ""},
		{depthOptions{}, ""},
	} {
		if err := c.o.check(); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.o, err, c.want)
		}
	}
	s := &agents.Switch{Agents: list}
	if _, err := s.Get(t.Context(), "j", "node-1"); err == nil || !strings.Contains(err.Error(), "does not name it") {
		t.Errorf("a node that is not listed: %v", err)
	}
}
