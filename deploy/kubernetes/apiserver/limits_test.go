package apiserver_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// throttled is a way to the API server that answers 429 as its priority and fairness
// does, until the test ends that.
func (s *server) throttled(t *testing.T) (at string, end func()) {
	t.Helper()
	to, err := url.Parse(s.through(t, adminToken, quiet))
	if err != nil {
		t.Fatal(err)
	}
	var free atomic.Bool
	way := httputil.NewSingleHostReverseProxy(to)
	a := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if free.Load() {
			way.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Retry-After", "1")
		http.Error(w, "Too many requests, please try again later.", http.StatusTooManyRequests)
	}))
	t.Cleanup(a.Close)
	return a.URL, func() { free.Store(true) }
}

// TestThrottled: requests are answered 429 with Retry-After. The watcher waits, says so, and writes when it may; a single look and a release wait,
// too.
func TestThrottled(t *testing.T) {
	s := shared
	s.makeNodes(t, names(8)...)
	j := slowJob(t)
	j.show(whileSlow)
	for _, c := range []struct {
		name string
		args []string
		code int // -1: until it is stopped
	}{
		{"once", j.watching("--act=taint", "--once"), 3},
		{"release", []string{"watch", "--release", "--kubernetes", "--dry-run=false"}, 0},
		{"watch", j.watching("--act=taint"), -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			at, end := s.throttled(t)
			p := newPod(t, s, t.TempDir(), append(c.args, "--kubernetes-server="+at)...).begin()
			p.hears("429 Too Many Requests")
			if n := s.node(t, slowNode); ours(n) != (c.name == "release") {
				t.Errorf("written while throttled: %+v", n.Spec)
			}
			end()
			p.hears("writing to the cluster works again")
			if c.code < 0 {
				s.acted(t, slowNode, "our taint", ours)
				p.end(syscall.SIGTERM)
				return
			}
			if <-p.left; p.ProcessState.ExitCode() != c.code {
				t.Errorf("exit code %d, want %d", p.ProcessState.ExitCode(), c.code)
			}
			if n := s.node(t, slowNode); ours(n) != (c.name == "once") {
				t.Errorf("after %s: %+v", c.name, n.Spec)
			}
		})
	}
}

const fleet = 1000

// TestThousandNodes: on a cluster of a thousand nodes, of which six hundred carry what an
// earlier watcher left, a new one tells the one node that is slow and takes the others
// back; a release leaves none.
func TestThousandNodes(t *testing.T) {
	s := shared
	s.install(t, "overlays/watch-act")
	s.makeNodes(t, names(fleet)...)
	const marked = 600
	together(marked, func(i int) { s.mark(t, fmt.Sprint("node-", fleet-1-i)) })
	who := account(t, s, "laggard", "laggard-watch")
	j := slowJob(t)
	j.show(whileSlow)
	p := newPod(t, s, who, j.watching("--act=taint")...).begin()
	s.becomes(t, slowNode, "True SlowCompute")
	left := func() (acted, conditions int) {
		list, err := s.client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			n := &list.Items[i]
			if n.Name == slowNode {
				continue
			}
			if ours(n) || n.Spec.Unschedulable {
				acted++
			}
			if conditionOf(n, condition) == "True SlowCompute" {
				conditions++
			}
		}
		return acted, conditions
	}
	until(t, "six hundred nodes are well", func() (bool, string) {
		acted, conditions := left()
		return acted == 0 && conditions == 0, fmt.Sprint(acted, " acted on, ", conditions, " conditions")
	})
	s.acted(t, slowNode, "our taint, when there is room under the cap", ours)
	if err := p.end(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	r := newPod(t, s, who, "watch", "--release", "--kubernetes", "--dry-run=false")
	if code := r.runs(); code != 0 || !strings.Contains(r.said.String(), fmt.Sprintf("msg=released nodes=%d", marked+1)) {
		t.Errorf("release: exit code %d\n%s", code, r.said)
	}
	list, err := s.client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != fleet {
		t.Fatalf("%d nodes, %v", len(list.Items), err)
	}
	for i := range list.Items {
		clean(t, &list.Items[i])
	}
}

// TestRestarts: the watcher is killed, with its state and without, and the API server
// and etcd are: what stands on the nodes is taken back all the same.
func TestRestarts(t *testing.T) {
	for _, keeps := range []bool{true, false} {
		t.Run(fmt.Sprintf("state_%v", keeps), func(t *testing.T) {
			s := shared
			s.install(t, "overlays/watch-act")
			s.makeNodes(t, names(8)...)
			who, state := account(t, s, "laggard", "laggard-watch"), owned(t)
			j := slowJob(t)
			j.show(whileSlow)
			watch := func() *pod {
				args := j.watching("--act=taint")
				if keeps {
					args = append(args, "--state="+state)
				}
				return newPod(t, s, who, args...).begin()
			}
			p := watch()
			n := s.acted(t, slowNode, "our taint", ours)
			p.end(syscall.SIGKILL)
			since := transition(n)
			p = watch()
			if keeps {
				s.restart(t, func() {
					j.show(allSteps)
					p.hears("writing to the cluster fails")
				})
				p.hears("writing to the cluster works again")
			}
			j.show(allSteps)
			s.becomes(t, slowNode, "False NoProblem")
			n = s.acted(t, slowNode, "no taint of ours", func(n *corev1.Node) bool { return !ours(n) })
			untouched(t, n)
			if transition(n) == since {
				t.Errorf("the transition is of %s still", since)
			}
			if err := p.end(syscall.SIGTERM); err != nil {
				t.Errorf("watch: %v", err)
			}
		})
	}
}

// restart kills the API server and etcd, and starts them on their data after while.
func (s *server) restart(t *testing.T, while func()) {
	t.Helper()
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	while()
	begun := time.Now()
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
	t.Logf("the server was back after %v", time.Since(begun).Round(time.Second))
}

// TestTokenRotates: a token that the server refuses is read again from its file.
func TestTokenRotates(t *testing.T) {
	s := shared
	s.install(t, "overlays/watch")
	s.makeNodes(t, names(8)...)
	who := account(t, s, "laggard", "laggard-watch")
	file := filepath.Join(who, "token")
	good, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(file, []byte("stale"), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	j := slowJob(t)
	j.show(whileSlow)
	p := newPod(t, s, who, j.watching()...).begin()
	p.hears("401 Unauthorized")
	if err := os.WriteFile(file, good, 0o644); err != nil {
		t.Fatal(err)
	}
	s.becomes(t, slowNode, "True SlowCompute")
	if strings.Contains(p.said.String(), "stale") || strings.Contains(p.said.String(), string(good)) {
		t.Error("the log has the token")
	}
}
