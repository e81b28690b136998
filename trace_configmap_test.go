package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/laggard-dev/laggard/collector/trace"
)

// apiServer answers as Kubernetes 1.34 with Volcano does, as far as the switch asks: the
// PodGroups of a namespace, and server-side apply of a ConfigMap. It is no API server: what
// one makes of an apply is not shown here.
type apiServer struct {
	mu      sync.Mutex
	may     map[string]bool // verb resource
	applied []map[string]any
	odd     []string
}

const podGroupList = `{"kind":"PodGroupList","apiVersion":"scheduling.volcano.sh/v1beta1","metadata":{"resourceVersion":"812"},"items":[
 {"metadata":{"name":"podgroup-of-nobody","namespace":"research"}},
 {"metadata":{"name":"train-6f3a0c1e-5d0b-4b8e-9a55-0123456789ab","namespace":"research","ownerReferences":[
  {"apiVersion":"mindxdl.gitee.com/v1","kind":"AscendJob","name":"train","uid":"6f3a0c1e-5d0b-4b8e-9a55-0123456789ab","controller":true,"blockOwnerDeletion":true}]},"status":{"phase":"Running"}}]}`

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	refuse := func(code int, reason, message string) {
		w.WriteHeader(code)
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":%q,"reason":%q,"code":%d}`, message, reason, code)
	}
	user := "system:serviceaccount:research:default"
	switch path := r.URL.Path; {
	case r.Method == http.MethodGet && path == "/apis/scheduling.volcano.sh/v1beta1/namespaces/research/podgroups":
		if !s.may["list podgroups"] {
			refuse(403, "Forbidden", `podgroups.scheduling.volcano.sh is forbidden: User "`+user+`" cannot list resource "podgroups" in API group "scheduling.volcano.sh" in the namespace "research"`)
			return
		}
		io.WriteString(w, podGroupList)
	case r.Method == http.MethodPatch && path == "/api/v1/namespaces/research/configmaps/data-trace-train":
		if !s.may["patch configmaps"] {
			refuse(403, "Forbidden", `configmaps "data-trace-train" is forbidden: User "`+user+`" cannot patch resource "configmaps" in API group "" in the namespace "research"`)
			return
		}
		if r.Header.Get("Content-Type") != "application/apply-patch+yaml" || r.URL.Query().Get("fieldManager") == "" || r.URL.Query().Get("force") != "true" {
			s.odd = append(s.odd, r.URL.String())
		}
		var body map[string]any
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			s.odd = append(s.odd, err.Error())
		}
		s.applied = append(s.applied, body)
		if len(s.applied) == 1 {
			w.WriteHeader(http.StatusCreated)
		}
		json.NewEncoder(w).Encode(body)
	default:
		refuse(404, "NotFound", "the server could not find the requested resource")
	}
}

// TestTraceConfigMap: trace makes the ConfigMap that MindCluster's Device Plugin takes to
// the nodes, owned by the job, changes it, and says which right is missing.
func TestTraceConfigMap(t *testing.T) {
	api := &apiServer{may: map[string]bool{"list podgroups": true, "patch configmaps": true}}
	server := httptest.NewServer(api)
	defer server.Close()
	run := func(args ...string) laggardResult {
		t.Helper()
		return laggard(t, append([]string{"trace"}, append(args, "--configmap", "--kubernetes-server", server.URL)...)...)
	}
	for i, tt := range []struct {
		args []string
		want trace.State
	}{
		{[]string{"off", "--job", "research/train"}, trace.State{}},
		{[]string{"on", "--job", "research/6f3a0c1e-5d0b-4b8e-9a55-0123456789ab"}, trace.On},
		{[]string{"on", "--job", "research/train", "--words", "Step"}, trace.State{Light: true}},
	} {
		if r := run(tt.args...); r.code != 0 || !strings.Contains(r.out, "ConfigMap data-trace-train") {
			t.Fatalf("trace %v: %+v", tt.args, r)
		}
		if len(api.applied) != i+1 || api.odd != nil {
			t.Fatalf("trace %v: %d applied, odd %q", tt.args, len(api.applied), api.odd)
		}
		var cm struct {
			Metadata struct {
				Name, Namespace string
				Labels          map[string]string
				OwnerReferences []map[string]any
			}
			Data map[string]string
		}
		text, err := json.Marshal(api.applied[i])
		if err == nil {
			err = json.Unmarshal(text, &cm)
		}
		if err != nil {
			t.Fatal(err)
		}
		// The file that the nodes get reads as what was asked for.
		got, problems, err := trace.ParseFile([]byte(cm.Data["profilingSwitch"]))
		if err != nil || problems != nil || got != tt.want || strings.Count(cm.Data["profilingSwitch"], `"o`) != 5 {
			t.Errorf("trace %v: %s reads as %v, %v, %v", tt.args, cm.Data["profilingSwitch"], got, problems, err)
		}
		o := cm.Metadata.OwnerReferences
		if cm.Metadata.Name != "data-trace-train" || cm.Metadata.Namespace != "research" || cm.Metadata.Labels["reset"] != "true" ||
			len(o) != 1 || o[0]["kind"] != "AscendJob" || o[0]["name"] != "train" || o[0]["uid"] != "6f3a0c1e-5d0b-4b8e-9a55-0123456789ab" || o[0]["apiVersion"] != "mindxdl.gitee.com/v1" {
			t.Errorf("trace %v: metadata %+v", tt.args, cm.Metadata)
		}
	}
	refused := func(may []string, words ...string) {
		t.Helper()
		api.mu.Lock()
		api.may = map[string]bool{}
		for _, m := range may {
			api.may[m] = true
		}
		api.mu.Unlock()
		r := run("off", "--job", "research/train")
		for _, w := range words {
			if r.code != 1 || !strings.Contains(r.err, w) {
				t.Errorf("with the rights %q: %+v, want %q", may, r, w)
			}
		}
	}
	refused(nil, "list on podgroups.scheduling.volcano.sh in namespace research", "kubectl -n research create role laggard-switch --verb=list --resource=podgroups.scheduling.volcano.sh")
	refused([]string{"list podgroups"}, "create and patch on configmaps in namespace research", "--verb=create,patch --resource=configmaps")
	api.may = map[string]bool{"list podgroups": true}
	if r := run("off", "--job", "research/another"); r.code != 1 || !strings.Contains(r.err, "find job another in namespace research") {
		t.Errorf("a job that is not there: %+v", r)
	}
	if r := run("off", "--job", "elsewhere/train"); r.code != 1 || !strings.Contains(r.err, "no Volcano") {
		t.Errorf("a cluster without Volcano: %+v", r)
	}
	if len(api.applied) != 3 {
		t.Errorf("%d applied", len(api.applied))
	}
}
