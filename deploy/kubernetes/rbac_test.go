package kubernetes_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/laggard-dev/laggard/analyzer/health"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// right is one thing that somebody may do: namespace (empty for all), group, resource,
// verb.
type right struct{ namespace, group, resource, verb string }

// granted returns the rights of the watcher's service account in an overlay.
func granted(t *testing.T, dir string) map[right]bool {
	t.Helper()
	rules := map[string][]rbacv1.PolicyRule{} // by kind, namespace, name
	for _, d := range built(t, dir) {
		switch v := d.value.(type) {
		case *rbacv1.ClusterRole:
			rules["ClusterRole//"+v.Name] = v.Rules
		case *rbacv1.Role:
			rules["Role/"+v.Namespace+"/"+v.Name] = v.Rules
		}
	}
	rights := map[right]bool{}
	bind := func(ref rbacv1.RoleRef, subjects []rbacv1.Subject, namespace string) {
		key := ref.Kind + "/" + namespace + "/" + ref.Name
		if len(subjects) != 1 || subjects[0].Kind != "ServiceAccount" || subjects[0].Name != "laggard-watch" || subjects[0].Namespace != "laggard" || rules[key] == nil {
			t.Errorf("%s: %s is bound to %+v", dir, key, subjects)
		}
		for _, r := range rules[key] {
			if len(r.ResourceNames)+len(r.NonResourceURLs) > 0 {
				t.Errorf("%s: %s: %+v", dir, key, r)
			}
			for _, g := range r.APIGroups {
				for _, what := range r.Resources {
					for _, verb := range r.Verbs {
						rights[right{namespace, g, what, verb}] = true
					}
				}
			}
		}
		delete(rules, key)
	}
	for _, d := range built(t, dir) {
		switch v := d.value.(type) {
		case *rbacv1.ClusterRoleBinding:
			bind(v.RoleRef, v.Subjects, "")
		case *rbacv1.RoleBinding:
			bind(v.RoleRef, v.Subjects, v.Namespace)
		}
	}
	if len(rules) > 0 {
		t.Errorf("%s: bound to nobody: %v", dir, slices.Collect(maps.Keys(rules)))
	}
	return rights
}

// needed is the right that a request asks for, as the API server derives it from
// method and path.
func needed(r *http.Request) []right {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	var of right
	if parts[0] == "apis" {
		of.group, parts = parts[1], parts[3:]
	} else {
		parts = parts[2:]
	}
	if parts[0] == "namespaces" && len(parts) > 2 {
		of.namespace, parts = parts[1], parts[2:]
	}
	of.resource = parts[0]
	if len(parts) > 2 {
		of.resource += "/" + parts[2]
	}
	switch r.Method {
	case http.MethodGet:
		if of.verb = "get"; len(parts) == 1 {
			of.verb = "list"
		}
	case http.MethodPost:
		of.verb = "create"
	case http.MethodPatch:
		of.verb = "patch"
		if strings.HasPrefix(r.Header.Get("Content-Type"), "application/apply-patch") {
			create := of // an apply of what is not there creates it
			create.verb = "create"
			return []right{of, create}
		}
	default:
		of.verb = strings.ToLower(r.Method)
	}
	return []right{of}
}

// asked runs the watcher's cluster through a lasting problem, its end and a passing
// one, and returns what it asked the API server for.
func asked(t *testing.T, act string) map[right]bool {
	t.Helper()
	var mu sync.Mutex
	rights := map[right]bool{}
	a := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		for _, n := range needed(r) {
			rights[n] = true
		}
		fmt.Fprint(w, `{"items":[{"metadata":{"name":"train","namespace":"research","uid":"j"}}]}`)
	}))
	defer a.Close()
	now := time.Unix(1_800_000_000, 0)
	c, err := health.New(health.Options{Server: a.URL, Act: act, StateFile: filepath.Join(t.TempDir(), "state"), Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	observe := func(times int, nodes []verdict.Node, events []verdict.Event) {
		v := verdict.New("j")
		v.Nodes, v.Events = nodes, events
		c.Observe(v)
		for range times {
			now = now.Add(c.Sync(t.Context()))
		}
	}
	observe(5, []verdict.Node{{Node: "n1", State: verdict.Degraded, Cause: verdict.Compute, JobImpact: 0.3}}, nil)
	observe(60, nil, []verdict.Event{{Node: "n2", FirstStep: 9, LastStep: 12}})
	return rights
}

// TestRBAC: each overlay grants what the watcher asks the API server for, and nothing
// else; calls into namespaces of jobs need a right in all of them.
func TestRBAC(t *testing.T) {
	for dir, act := range map[string]string{
		"overlays/watch": health.ActNone, "overlays/watch-act": health.ActCordon, "overlays/watch-reschedule": health.ActReschedule, "overlays/watch-deepen": health.ActNone,
	} {
		may := granted(t, dir)
		want := map[right]bool{}
		for r := range asked(t, act) {
			if all := (right{"", r.group, r.resource, r.verb}); r.namespace != "mindx-dl" {
				r = all
			}
			want[r] = true
		}
		if strings.HasSuffix(dir, "deepen") {
			want[right{"", "", "pods", "list"}] = true // GET /api/v1/pods: TestDepth_Pods holds it
		}
		if !maps.Equal(may, want) {
			t.Errorf("%s grants\n%v, the watcher needs\n%v", dir, may, want)
		}
	}
	b, err := os.ReadFile("../../watch_depth.go")
	if err != nil || !strings.Contains(string(b), `"/api/v1/pods?"`) || strings.Count(string(b), "/api/v1/") != 1 {
		t.Errorf("the calls of watch_depth.go are other ones: %v", err)
	}
}
