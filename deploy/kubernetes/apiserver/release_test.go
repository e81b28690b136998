package apiserver_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func quiet(*http.Request, *http.Response) {}

// clean holds a node to what others set on it.
func clean(t *testing.T, n *corev1.Node) {
	t.Helper()
	if ours(n) || conditionOf(n, condition) != "" || n.Spec.Unschedulable || len(n.Annotations) != 0 {
		t.Errorf("%s after the release: %+v %v %+v", n.Name, n.Spec, n.Annotations, n.Status.Conditions)
	}
	untouched(t, n)
}

// TestRelease: what watchers left on nodes goes, and nothing else: not a cordon of
// somebody's, not a taint of theirs with our key. The dry run only says it.
func TestRelease(t *testing.T) {
	s := shared
	s.makeNodes(t, names(8)...)
	s.mark(t, "node-1")
	s.mark(t, "node-2")
	s.others(t, "node-2", func(n *corev1.Node) { // an admin took our cordon back
		n.Spec.Unschedulable = false
	})
	s.others(t, "node-3", func(n *corev1.Node) {
		n.Spec.Unschedulable = true
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: ourTaint.Key, Effect: corev1.TaintEffectPreferNoSchedule})
	})
	theirs := s.node(t, "node-3").ResourceVersion
	args := []string{"watch", "--release", "--kubernetes", "--kubernetes-server", s.through(t, adminToken, quiet)}
	before := s.node(t, "node-1").ResourceVersion
	out, err := outside(t.Context(), args...).CombinedOutput()
	if err != nil || !strings.Contains(string(out), `would write" what="release node node-1: cordon, taint"`) || s.node(t, "node-1").ResourceVersion != before {
		t.Errorf("dry run: %v\n%s", err, out)
	}
	out, err = outside(t.Context(), append(args, "--dry-run=false")...).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "msg=released nodes=2") {
		t.Errorf("release: %v\n%s", err, out)
	}
	clean(t, s.node(t, "node-1"))
	clean(t, s.node(t, "node-2"))
	if n := s.node(t, "node-3"); n.ResourceVersion != theirs {
		t.Errorf("node-3 of others was written: %+v", n.Spec)
	}
	out, err = outside(t.Context(), append(args, "--dry-run=false")...).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "msg=released nodes=0") {
		t.Errorf("a second time: %v\n%s", err, out)
	}
}

// TestReleaseAfterWatcher: a watcher acted and was killed. The release, with the
// watcher's own rights, is refused while one runs on the same state, and then leaves
// nothing; a watcher that starts on the old state tells the cluster anew.
func TestReleaseAfterWatcher(t *testing.T) {
	s := shared
	s.install(t, "overlays/watch-act")
	s.makeNodes(t, names(8)...)
	j, state := slowJob(t), owned(t)
	j.show(whileSlow)
	who := account(t, s, "laggard", "laggard-watch")
	watch := func() *pod {
		return newPod(t, s, who, j.watching("--act=cordon", "--state="+state)...).begin()
	}
	p := watch()
	s.acted(t, slowNode, "our cordon", ours)
	release := []string{"watch", "--release", "--kubernetes", "--dry-run=false", "--state=" + state}
	if r := newPod(t, s, who, release...); r.runs() != 1 || !strings.Contains(r.said.String(), "another `laggard watch` uses it") {
		t.Errorf("beside a watcher: %s", r.said)
	}
	p.end(syscall.SIGKILL)
	if r := newPod(t, s, who, release...); r.runs() != 0 {
		t.Errorf("release: %s", r.said)
	}
	clean(t, s.node(t, slowNode))
	watch()
	j.show(whileSlow + 10) // the job goes on, as slow as before
	s.acted(t, slowNode, "our cordon again", ours)
	s.becomes(t, slowNode, "True SlowCompute")
}

// TestReleaseReschedule: the labels of a job and the fault that ClusterD was told of go
// by the state that knows what was there before.
func TestReleaseReschedule(t *testing.T) {
	s := shared
	s.namespace(t, "mindx-dl")
	ascendJob(t, s)
	s.makeNodes(t, names(8)...)
	j, state := slowJob(t), owned(t)
	j.show(whileSlow)
	at := s.through(t, adminToken, quiet)
	p := newPod(t, s, t.TempDir(), j.watching("--act=reschedule", "--state="+state, "--kubernetes-server="+at)...).begin()
	p.hears("tell ClusterD that node node-1 is not well")
	labels := func() string {
		o := &unstructured.Unstructured{}
		o.SetGroupVersionKind(schema.GroupVersionKind{Group: "mindxdl.gitee.com", Version: "v1", Kind: "AscendJob"})
		o.SetNamespace("default")
		r, err := s.resource(o)
		if err == nil {
			o, err = r.Get(t.Context(), jobName, metav1.GetOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(o.GetLabels(), o.GetAnnotations())
	}
	if got := labels(); got != "map[fault-scheduling:grace subHealthyStrategy:graceExit] map[laggard.io/slow-node:node-1 laggard.io/slow-ranks:2]" {
		t.Errorf("the job was told %s", got)
	}
	p.end(syscall.SIGKILL)
	out, err := outside(t.Context(), "watch", "--release", "--kubernetes", "--dry-run=false", "--state", state, "--kubernetes-server", at).CombinedOutput()
	if err != nil {
		t.Fatalf("release: %v\n%s", err, out)
	}
	if got := labels(); got != "map[] map[]" {
		t.Errorf("the job still has %s", got)
	}
	clean(t, s.node(t, slowNode))
	cm, err := s.client.CoreV1().ConfigMaps("mindx-dl").Get(t.Context(), "laggard-fault-node-1", metav1.GetOptions{})
	if err != nil || !strings.Contains(cm.Data["PublicFault"], `"assertion":"recover"`) {
		t.Errorf("ClusterD was told %v, %v", cm.Data, err)
	}
}

// TestOnce: the CronJob's container, run by run with the token of its service account:
// the condition comes with the run that finds the node slow, stays beside others', and
// goes with the run that finds it well. No run keeps anything.
func TestOnce(t *testing.T) {
	s := shared
	all := s.install(t, "overlays/batch-files")
	s.makeNodes(t, names(8)...)
	_, from := s.audited(t, 0)
	j := slowJob(t)
	j.show(whileSlow)
	who := account(t, s, "laggard", "laggard-watch")
	args := s.container(t, objectOf(t, all, "CronJob"), j.dir, "")
	run := func(want int, more ...string) *pod {
		t.Helper()
		p := newPod(t, s, who, append(args, more...)...)
		if code := p.runs(); code != want {
			t.Fatalf("exit code %d, want %d", code, want)
		}
		return p
	}
	if p := run(3); !strings.Contains(p.out.String(), `"state":"degraded"`) {
		t.Errorf("no verdict: %s", p.out.String())
	}
	n := s.node(t, slowNode)
	if conditionOf(n, condition) != "True SlowCompute" {
		t.Errorf("conditions %+v", n.Status.Conditions)
	}
	untouched(t, n)
	since := n.Status.Conditions
	run(3)
	if n = s.node(t, slowNode); transition(n) != transitionOf(since) {
		t.Errorf("the second run moved the transition from %s to %s", transitionOf(since), transition(n))
	}
	j.show(allSteps)
	run(0)
	n = s.node(t, slowNode)
	if conditionOf(n, condition) != "False NoProblem" {
		t.Errorf("well again: %+v", n.Status.Conditions)
	}
	untouched(t, n)
	if asked, forbidden := s.did(t, from, watcher); len(forbidden) > 0 || !asked["patch /nodes/status"] {
		t.Errorf("asked for %v, forbidden %v", asked, forbidden)
	}
	// An act is beyond these rights: the run says so, and fails.
	j = slowJob(t)
	j.show(whileSlow)
	p := newPod(t, s, who, append(s.container(t, objectOf(t, all, "CronJob"), j.dir, ""), "--act=taint")...)
	if code := p.runs(); code != 1 || !strings.Contains(p.said.String(), "tell the cluster: taint node node-1: 403 Forbidden") {
		t.Errorf("exit code %d: %s", code, p.said)
	}
	if n = s.node(t, slowNode); conditionOf(n, condition) != "True SlowCompute" || ours(n) {
		t.Errorf("the condition of a run whose act is forbidden: %+v", n.Status.Conditions)
	}
}

func transitionOf(all []corev1.NodeCondition) string {
	for _, c := range all {
		if c.Type == condition {
			return c.LastTransitionTime.String()
		}
	}
	return ""
}

func transition(n *corev1.Node) string { return transitionOf(n.Status.Conditions) }

// TestOnceOfAnEndedJob: a verdict on a job of yesterday says nothing of a node today.
func TestOnceOfAnEndedJob(t *testing.T) {
	s := shared
	s.makeNodes(t, names(8)...)
	j := newJob(t, "compute-1.5", func(config map[string]any) { config["start_unix"] = 1_753_000_000 })
	j.show(allSteps)
	var writes atomic.Int32
	at := s.through(t, adminToken, func(r *http.Request, _ *http.Response) {
		if r.Method != http.MethodGet {
			writes.Add(1)
		}
	})
	p := newPod(t, s, t.TempDir(), j.watching("--once", "--kubernetes-server="+at)...)
	if code := p.runs(); code != 3 || writes.Load() != 0 {
		t.Errorf("exit code %d, %d writes: %s", code, writes.Load(), p.said)
	}
	if _, err := os.Stat(filepath.Join(j.dir, jobName)); err != nil {
		t.Fatal(err)
	}
}
