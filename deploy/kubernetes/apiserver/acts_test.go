package apiserver_test

import (
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// through is a proxy to the API server with a token, as `kubectl proxy` is, that lets a
// test step in between a request and its answer.
func (s *server) through(t *testing.T, token string, between func(r *http.Request, answer *http.Response)) string {
	t.Helper()
	to, err := url.Parse(s.admin.Host)
	if err != nil {
		t.Fatal(err)
	}
	trusting, err := s.transport()
	if err != nil {
		t.Fatal(err)
	}
	p := &httputil.ReverseProxy{Transport: trusting,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.Header.Set("Authorization", "Bearer "+token)
		},
		ModifyResponse: func(r *http.Response) error {
			between(r.Request, r)
			return nil
		}}
	a := httptest.NewServer(p)
	t.Cleanup(a.Close)
	return a.URL
}

// TestTaintBesideOthers: the taint comes and goes beside those of others, also of one
// who writes between our reading and our writing, so that the server answers 409.
func TestTaintBesideOthers(t *testing.T) {
	s := shared
	s.makeNodes(t, names(8)...)
	var met, conflicts atomic.Int32
	var added atomic.Bool
	at := s.through(t, adminToken, func(r *http.Request, answer *http.Response) {
		switch {
		case answer.StatusCode == http.StatusConflict:
			conflicts.Add(1)
		case r.Method == http.MethodGet && r.URL.Path == "/api/v1/nodes/"+slowNode && met.Add(1) <= 3:
			s.others(t, slowNode, func(n *corev1.Node) { n.Labels["met"] = string(rune('0' + met.Load())) })
			if met.Load() == 2 && !added.Swap(true) {
				s.others(t, slowNode, func(n *corev1.Node) { n.Spec.Taints = append(n.Spec.Taints, drained) })
			}
		}
	})
	j := slowJob(t)
	j.show(whileSlow)
	p := newPod(t, s, t.TempDir(), j.watching("--act=taint", "--kubernetes-server="+at)...).begin()
	n := s.acted(t, slowNode, "our taint", func(n *corev1.Node) bool { return has(n, ourTaint) })
	untouched(t, n, drained)
	if conflicts.Load() < 3 || n.Spec.Unschedulable {
		t.Errorf("%d conflicts, want 3; unschedulable %v", conflicts.Load(), n.Spec.Unschedulable)
	}
	s.beats(t, slowNode)
	untouched(t, s.becomes(t, slowNode, "True SlowCompute"), drained, ourTaint)
	s.others(t, slowNode, func(n *corev1.Node) { // somebody's, with our key: not what we set
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: ourTaint.Key, Effect: corev1.TaintEffectPreferNoSchedule})
	})
	met.Store(0) // again, on the way back
	conflicts.Store(0)
	j.show(allSteps)
	s.becomes(t, slowNode, "False NoProblem")
	n = s.acted(t, slowNode, "no taint of ours", func(n *corev1.Node) bool { return !has(n, ourTaint) })
	untouched(t, n, drained, corev1.Taint{Key: ourTaint.Key, Effect: corev1.TaintEffectPreferNoSchedule})
	if conflicts.Load() < 3 || len(n.Spec.Taints) != 4 {
		t.Errorf("%d conflicts, want 3; taints %+v", conflicts.Load(), n.Spec.Taints)
	}
	if err := p.end(syscall.SIGTERM); err != nil {
		t.Errorf("watch: %v", err)
	}
}

// TestCordonBesideOthers: a cordon of ours goes when the node is well, one of somebody
// else's stays, and one that somebody took back isn't set again.
func TestCordonBesideOthers(t *testing.T) {
	for name, theirs := range map[string]bool{"ours": false, "theirs": true} {
		t.Run(name, func(t *testing.T) {
			s := shared
			s.makeNodes(t, names(8)...)
			if theirs {
				s.others(t, slowNode, func(n *corev1.Node) { n.Spec.Unschedulable = true })
			}
			j := slowJob(t)
			j.show(whileSlow)
			p := newPod(t, s, t.TempDir(), j.watching("--act=cordon", "--kubernetes-server="+s.through(t, adminToken, func(*http.Request, *http.Response) {}))...).begin()
			p.hears(`what="cordon node node-1"`)
			n := s.node(t, slowNode)
			if mark := n.Annotations[cordoned]; !n.Spec.Unschedulable || mark != map[bool]string{false: "SlowCompute"}[theirs] {
				t.Errorf("unschedulable %v, marked %q", n.Spec.Unschedulable, mark)
			}
			untouched(t, n)
			j.show(allSteps)
			p.hears(`what="undo cordon of node node-1"`)
			n = s.node(t, slowNode)
			if n.Spec.Unschedulable != theirs || ours(n) {
				t.Errorf("well again: unschedulable %v, annotations %v", n.Spec.Unschedulable, n.Annotations)
			}
			untouched(t, n)
			if conditionOf(n, condition) != "False NoProblem" {
				t.Errorf("condition %s", conditionOf(n, condition))
			}
		})
	}
}

// TestNeverMoreThanTheCap: of two slow nodes one is acted on, and the other when that
// one is well.
func TestNeverMoreThanTheCap(t *testing.T) {
	s := shared
	s.makeNodes(t, names(8)...)
	j := newJob(t, "compute-1.5", func(config map[string]any) {
		first := config["faults"].([]any)[0].(map[string]any)
		first["node"], first["locals"], first["from"], first["to"] = 1, []any{0}, 75, 180
		second := maps.Clone(first)
		second["node"], second["to"] = 2, 0
		config["faults"] = []any{first, second}
	})
	j.show(whileSlow)
	newPod(t, s, t.TempDir(), j.watching("--act=cordon", "--kubernetes-server="+s.through(t, adminToken, func(*http.Request, *http.Response) {}))...).begin()
	s.becomes(t, "node-1", "True SlowCompute")
	s.becomes(t, "node-2", "True SlowCompute")
	marked := func() (names []string) {
		for _, name := range []string{"node-1", "node-2"} {
			if ours(s.node(t, name)) {
				names = append(names, name)
			}
		}
		return names
	}
	until(t, "one of two cordoned", func() (bool, string) { return len(marked()) == 1, strings.Join(marked(), " ") })
	j.show(allSteps)
	until(t, "node-2 alone is cordoned", func() (bool, string) {
		now := strings.Join(marked(), " ")
		if now == "node-1 node-2" {
			t.Fatal("both are cordoned")
		}
		return now == "node-2", now
	})
}

// TestDryRun: without --dry-run=false nothing is written, and what would be is said.
func TestDryRun(t *testing.T) {
	s := shared
	s.makeNodes(t, names(8)...)
	at := s.through(t, adminToken, func(r *http.Request, _ *http.Response) {
		if r.Method != http.MethodGet {
			body, _ := io.ReadAll(r.Body) // only to be shown
			t.Errorf("a dry run wrote: %s %s %s", r.Method, r.URL.Path, body)
		}
	})
	j := slowJob(t)
	j.show(whileSlow)
	p := newPod(t, s, t.TempDir(), j.watching("--act=taint", "--dry-run=true", "--kubernetes-server="+at)...).begin()
	p.hears(`dry run: would write" what="taint node node-1"`)
	if n := s.node(t, slowNode); ours(n) || conditionOf(n, condition) != "" {
		t.Errorf("written: %+v %+v", n.Spec, n.Status.Conditions)
	}
}
