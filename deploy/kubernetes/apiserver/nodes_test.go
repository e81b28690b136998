package apiserver_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
)

// What stands on a node, of others and of ours.
var (
	gpu       = corev1.Taint{Key: "gpu", Value: "yes", Effect: corev1.TaintEffectNoSchedule}
	drained   = corev1.Taint{Key: "site.example/maintenance", Effect: corev1.TaintEffectPreferNoSchedule}
	ready     = corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "kubelet is posting ready status"}
	disk      = corev1.NodeCondition{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasNoDiskPressure"}
	ourTaint  = corev1.Taint{Key: "laggard.io/training-degraded", Value: "SlowCompute", Effect: corev1.TaintEffectNoSchedule}
	notReady  = corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule} // the server's own admission adds it to a new node
	condition = corev1.NodeConditionType("TrainingDegraded")
)

const cordoned = "laggard.io/cordoned"

// makeNodes makes nodes as their kubelets do, with a taint of the site's; they go with
// the test.
func (s *server) makeNodes(t *testing.T, names ...string) {
	t.Helper()
	ctx := t.Context()
	together(len(names), func(i int) {
		name := names[i]
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"site.example/rack": "a"}}, Spec: corev1.NodeSpec{Taints: []corev1.Taint{gpu}}}
		n, err := s.client.CoreV1().Nodes().Create(ctx, n, metav1.CreateOptions{})
		if err == nil {
			n.Status.Conditions = []corev1.NodeCondition{ready, disk}
			_, err = s.client.CoreV1().Nodes().UpdateStatus(ctx, n, metav1.UpdateOptions{})
		}
		if err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		if err := s.client.CoreV1().Nodes().DeleteCollection(context.Background(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
			t.Error(err)
		}
	})
}

// together calls do for 0…n−1, sixteen at a time.
func together(n int, do func(i int)) {
	var wg sync.WaitGroup
	next := make(chan int)
	for range min(n, 16) {
		wg.Go(func() {
			for i := range next {
				do(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
}

func (s *server) node(t *testing.T, name string) *corev1.Node {
	t.Helper()
	n, err := s.client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// others changes a node as somebody else does: read, change, write whole.
func (s *server) others(t *testing.T, name string, change func(*corev1.Node)) {
	t.Helper()
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		n, err := s.client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(n)
		_, err = s.client.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		t.Error(err) // from a proxy's goroutine as well
	}
}

// beats is a kubelet's heartbeat: its conditions, by a patch as it sends it.
func (s *server) beats(t *testing.T, name string) {
	t.Helper()
	at := time.Now().UTC().Format(time.RFC3339)
	body := fmt.Sprintf(`{"status":{"$setElementOrder/conditions":[{"type":"DiskPressure"},{"type":"Ready"}],"conditions":[{"type":"DiskPressure","lastHeartbeatTime":%q},{"type":"Ready","lastHeartbeatTime":%q}]}}`, at, at)
	if _, err := s.client.CoreV1().Nodes().PatchStatus(t.Context(), name, []byte(body)); err != nil {
		t.Fatal(err)
	}
}

func conditionOf(n *corev1.Node, kind corev1.NodeConditionType) string {
	for _, c := range n.Status.Conditions {
		if c.Type == kind {
			return string(c.Status) + " " + c.Reason
		}
	}
	return ""
}

// becomes waits for laggard's condition on a node.
func (s *server) becomes(t *testing.T, name, want string) *corev1.Node {
	t.Helper()
	var n *corev1.Node
	until(t, fmt.Sprintf("condition %q of %s", want, name), func() (bool, string) {
		n = s.node(t, name)
		return conditionOf(n, condition) == want, fmt.Sprintf("%+v", n.Status.Conditions)
	})
	return n
}

// acted waits until a node's taints and cordon are as wanted.
func (s *server) acted(t *testing.T, name, what string, ok func(*corev1.Node) bool) *corev1.Node {
	t.Helper()
	var n *corev1.Node
	until(t, what+" on "+name, func() (bool, string) {
		n = s.node(t, name)
		return ok(n), fmt.Sprintf("%+v, %v", n.Spec, n.Annotations)
	})
	return n
}

func has(n *corev1.Node, taint corev1.Taint) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
		return t.Key == taint.Key && t.Value == taint.Value && t.Effect == taint.Effect
	})
}

// untouched holds what others set on a node.
func untouched(t *testing.T, n *corev1.Node, taints ...corev1.Taint) {
	t.Helper()
	for _, taint := range append(taints, gpu, notReady) {
		if !has(n, taint) {
			t.Errorf("%s lost the taint %s of others: %+v", n.Name, taint.ToString(), n.Spec.Taints)
		}
	}
	for _, c := range []corev1.NodeCondition{ready, disk} {
		if got := conditionOf(n, c.Type); got != string(c.Status)+" "+c.Reason {
			t.Errorf("%s: condition %s of the kubelet is %q", n.Name, c.Type, got)
		}
	}
	if n.Labels["site.example/rack"] != "a" {
		t.Errorf("%s: labels %v", n.Name, n.Labels)
	}
}

// ours is what of laggard stands on a node, conditions apart.
func ours(n *corev1.Node) bool {
	return has(n, ourTaint) || n.Annotations[cordoned] != ""
}

// removed deletes what a test made, and needn't be there.
func removed(t *testing.T, err error) {
	t.Helper()
	if err != nil && !apierrors.IsNotFound(err) {
		t.Error(err)
	}
}

// mark sets all that laggard sets, as an earlier watcher left it.
func (s *server) mark(t *testing.T, name string) {
	t.Helper()
	s.others(t, name, func(n *corev1.Node) {
		n.Spec.Taints = append(n.Spec.Taints, ourTaint)
		n.Spec.Unschedulable = true
		n.Annotations = map[string]string{cordoned: "SlowCompute"}
	})
	body := `{"status":{"conditions":[{"type":"TrainingDegraded","status":"True","reason":"SlowCompute","message":"job training: compute"}]}}`
	if _, err := s.client.CoreV1().Nodes().Patch(t.Context(), name, types.StrategicMergePatchType, []byte(body), metav1.PatchOptions{}, "status"); err != nil {
		t.Error(err)
	}
}
