package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/laggard-dev/laggard/analyzer/watch/depth"
	"github.com/laggard-dev/laggard/collector/trace"
	"github.com/laggard-dev/laggard/deploy/examples/dataparallel"
	layout "github.com/laggard-dev/laggard/schemas/parquet"
	"github.com/laggard-dev/laggard/schemas/row"
)

// The demo's job: its nodes and the ranks of each.
const demoNodes, demoRanksPerNode = 3, 2

// depthSite is the demo with Communication off from the start, its agents, and a watcher
// process over their store that may deepen.
type depthSite struct {
	t           *testing.T
	dir, rings  string
	demo, watch *running
}

func (s *depthSite) store() string { return filepath.Join(s.dir, "store") }

func demoNode(rank int) string { return fmt.Sprintf("node-%d", rank/demoRanksPerNode) }

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
	t.Setenv("LAGGARD_TRACE", "Step") // the four light kinds
	secured(t)
	t.Setenv("LAGGARD_LISTEN", "unix,127.0.0.1:0")
	s := &depthSite{t: t, dir: t.TempDir()}
	processes := &site{t: t}
	s.demo = processes.start("demo", "--dir", s.dir, "--fault", fault, "--slow-rank", strconv.Itoa(slowRank), "--steps", strconv.Itoa(steps))
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
	socket := strings.TrimPrefix(addresses[demoNode(0)], "unix:")
	s.rings = filepath.Dir(filepath.Dir(socket)) // the socket is in the ring directory of its node
	t.Cleanup(func() { os.RemoveAll(s.rings) })
	agents := filepath.Join(s.dir, "agents.json")
	b, err := json.Marshal(addresses)
	if err == nil {
		err = os.WriteFile(agents, b, 0o600)
	}

	if err != nil {
		t.Fatal(err)
	}

	s.watch = processes.start(append([]string{"watch", "parquet:" + s.store(), "--every", "1s", "-o", "json", "--metrics", "127.0.0.1:0",
		"--state", filepath.Join(s.dir, "watch"), "--agents", agents}, flags...)...)
	return s
}

// until polls, for as long as patience lasts.
func (s *depthSite) until(what string, ok func() bool) {
	s.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); !ok(); <-tick.C {
		select {
		case err := <-s.demo.done:
			s.t.Fatalf("the demo ended before %s: %v\n%s\n%s", what, err, s.demo.words, s.words())
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
		recorders, err := trace.Recorders(filepath.Join(s.rings, node))
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
	s.demo.wait() // it ends well when the verdict is right
	if n := strings.Count(s.words(), "switched: Communication on"); n != 2 {
		t.Errorf("%d switches on, want those of two nodes:\n%s", n, s.words())
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
		case was && (with[node] < depth.LeastEvidence || with[node] > n-depth.LeastEvidence):
			s.t.Errorf("%s was deep and has Communication in %d of %d rank-steps", node, with[node], n)
		case !was && with[node] > 0:
			s.t.Errorf("%s was not deep and has Communication in %d rank-steps", node, with[node])
		}
	}
}
