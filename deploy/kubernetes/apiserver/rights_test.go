package apiserver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// as is a client with the token of a service account.
func (s *server) as(t *testing.T, token string) *kubernetes.Clientset {
	t.Helper()
	config := rest.AnonymousClientConfig(s.admin)
	config.BearerToken = token
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// mayDo asks the server what a token allows in a namespace: "verb group/resource".
func mayDo(t *testing.T, client *kubernetes.Clientset, namespace string) map[string]bool {
	t.Helper()
	r, err := client.AuthorizationV1().SelfSubjectRulesReviews().Create(t.Context(),
		&authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	may := map[string]bool{}
	for _, rule := range r.Status.ResourceRules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					if group != "authorization.k8s.io" && group != "authentication.k8s.io" { // everybody may ask who he is
						may[verb+" "+group+"/"+resource] = true
					}
				}
			}
		}
	}
	return may
}

// did is what the audit log has of a service account: what was asked for, and what of it
// a server that was ready has forbidden.
func (s *server) did(t *testing.T, from int64, account string) (asked map[string]bool, forbidden []string) {
	t.Helper()
	asked = map[string]bool{}
	lines, _ := s.audited(t, from)
	for _, line := range lines {
		var e struct {
			Verb           string
			User           struct{ Username string }
			ObjectRef      struct{ Resource, Subresource, APIGroup string }
			ResponseStatus struct{ Code int }
			Received       time.Time `json:"requestReceivedTimestamp"`
		}
		if len(line) == 0 {
			continue
		}
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatalf("audit log: %v: %s", err, line)
		}
		if e.User.Username != account || e.ObjectRef.Resource == "selfsubjectrulesreviews" {
			continue
		}
		resource := e.ObjectRef.Resource
		if e.ObjectRef.Subresource != "" {
			resource += "/" + e.ObjectRef.Subresource
		}
		what := e.Verb + " " + e.ObjectRef.APIGroup + "/" + resource
		asked[what] = true
		early := slices.ContainsFunc(s.starts, func(x starting) bool { return e.Received.After(x.begun) && e.Received.Before(x.ready) })
		switch {
		case e.ResponseStatus.Code == http.StatusForbidden && early:
			t.Logf("forbidden before the server was ready: %s", what)
		case e.ResponseStatus.Code == http.StatusForbidden:
			forbidden = append(forbidden, what)
		}
	}
	return asked, forbidden
}

const watcher = "system:serviceaccount:laggard:laggard-watch"

// TestRights: the watcher of each overlay, with the arguments of its container and the
// token of its service account, goes through a slow node, its recovery and a passing
// problem. The server forbids it nothing, and allows it nothing that it did not ask for.
func TestRights(t *testing.T) {
	for overlay, beside := range map[string]func(*testing.T, *server){
		"watch": nil, "watch-act": nil, "watch-deepen": nil, "watch-reschedule": ascendJob,
	} {
		t.Run(overlay, func(t *testing.T) {
			s := shared
			if beside != nil {
				s.namespace(t, "mindx-dl")
				beside(t, s)
			}
			all := s.install(t, "overlays/"+overlay)
			s.makeNodes(t, names(8)...)
			_, from := s.audited(t, 0)
			j := slowJob(t)
			j.show(whileSlow)
			p := newPod(t, s, account(t, s, "laggard", "laggard-watch"), s.container(t, objectOf(t, all, "Deployment"), j.dir, owned(t))...).begin()
			s.becomes(t, slowNode, "True SlowCompute")
			if overlay == "watch-act" {
				s.acted(t, slowNode, "our cordon", func(n *corev1.Node) bool { return n.Spec.Unschedulable && ours(n) })
			}
			j.show(allSteps)
			n := s.becomes(t, slowNode, "False NoProblem")
			s.acted(t, slowNode, "nothing of ours", func(n *corev1.Node) bool { return !n.Spec.Unschedulable && !ours(n) })
			untouched(t, n)
			s.event(t)
			p.hears(map[string]string{"watch-deepen": "list pods of node|no agent|deepen|switch", "watch-reschedule": "is well again"}[overlay])
			if err := p.end(syscall.SIGTERM); err != nil {
				t.Errorf("watch: %v", err)
			}
			s.justRights(t, from, overlay)
		})
	}
}

// container are the arguments of an overlay's container over a source and a state of
// this test, with flags that make minutes seconds.
func (s *server) container(t *testing.T, o *unstructured.Unstructured, source, state string) []string {
	t.Helper()
	spec := []string{"spec", "template", "spec", "containers"}
	if o.GetKind() == "CronJob" {
		spec = append([]string{"spec", "jobTemplate"}, spec...)
	}
	list, _, err := unstructured.NestedSlice(o.Object, spec...)
	if err != nil || len(list) != 1 {
		t.Fatalf("containers of %s: %v, %v", o.GetName(), list, err)
	}
	args := list[0].(map[string]any)["args"].([]any)
	args = slices.DeleteFunc(args, func(a any) bool {
		return strings.HasPrefix(a.(string), "--to=") || strings.HasPrefix(a.(string), "--state=") || strings.HasPrefix(a.(string), "--metrics=") || strings.HasPrefix(a.(string), "--every=")
	})
	more := []string{"--metrics=", "--hold=1s", "--every=100ms"}
	if o.GetKind() == "Deployment" {
		more = append(more, "--state="+state)
	}
	return arguments(args, source, more...)
}

// justRights: what was done is what is allowed.
func (s *server) justRights(t *testing.T, from int64, overlay string) {
	t.Helper()
	asked, forbidden := s.did(t, from, watcher)
	if len(forbidden) > 0 {
		t.Errorf("forbidden: %v", forbidden)
	}
	client := s.as(t, tokenOf(t, s, "laggard", "laggard-watch"))
	may := mayDo(t, client, "laggard")
	if overlay == "watch-reschedule" {
		maps.Copy(may, mayDo(t, client, "mindx-dl"))
		delete(may, "create /configmaps") // a part of its apply, where there is none
	}
	if !maps.Equal(may, asked) {
		t.Errorf("the server allows %v\nthe watcher asked for %v", slices.Sorted(maps.Keys(may)), slices.Sorted(maps.Keys(asked)))
	}
	t.Logf("allowed and asked for: %v", slices.Sorted(maps.Keys(may)))
	ctx := t.Context()
	for what, try := range map[string]func() error{
		"read secrets":  func() error { _, err := client.CoreV1().Secrets("laggard").List(ctx, metav1.ListOptions{}); return err },
		"delete a node": func() error { return client.CoreV1().Nodes().Delete(ctx, "node-7", metav1.DeleteOptions{}) },
		"make a pod": func() error {
			_, err := client.CoreV1().Pods("laggard").Create(ctx, &corev1.Pod{}, metav1.CreateOptions{})
			return err
		},
		"write its role": func() error {
			_, err := client.RbacV1().ClusterRoles().Patch(ctx, "laggard-watch", types.MergePatchType, []byte(`{"rules":[]}`), metav1.PatchOptions{})
			return err
		},
		"read events": func() error { _, err := client.CoreV1().Events("default").List(ctx, metav1.ListOptions{}); return err },
	} {
		if err := try(); !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v, want forbidden", what, err)
		}
	}
	if overlay != "watch-act" {
		if _, err := client.CoreV1().Nodes().Patch(ctx, "node-7", types.MergePatchType, []byte(`{"spec":{"unschedulable":true}}`), metav1.PatchOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("cordon: %v, want forbidden", err)
		}
	}
}

// event wants the event of the problem that passed.
func (s *server) event(t *testing.T) {
	t.Helper()
	until(t, "event TrainingSlowed", func() (bool, string) {
		list, err := s.client.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: "reason=TrainingSlowed"})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list.Items {
			if e.InvolvedObject.Kind == "Node" && strings.Contains(e.Message, "well again") {
				removed(t, s.client.CoreV1().Events("default").Delete(t.Context(), e.Name, metav1.DeleteOptions{}))
				return true, ""
			}
		}
		return false, fmt.Sprint(len(list.Items), " events")
	})
}

// ascendJob makes a cluster one of MindCluster's, with the job as it knows it.
func ascendJob(t *testing.T, s *server) {
	t.Helper()
	kind := schema.GroupVersionKind{Group: "mindxdl.gitee.com", Version: "v1", Kind: "AscendJob"}
	s.define(t, kind)
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(kind)
	o.SetNamespace("default")
	o.SetName(jobName)
	if err := s.apply(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	at, err := s.resource(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removed(t, at.Delete(context.Background(), jobName, metav1.DeleteOptions{})) })
}
