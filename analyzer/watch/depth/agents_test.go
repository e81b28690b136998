package depth

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/laggard-dev/laggard/analyzer/health"
)

// TestDepth_Pods asks a cluster's API for the pods of a node, and switches those that
// know the job.
func TestDepth_Pods(t *testing.T) {
	asked := make(chan string, 10)
	a := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Method + " " + r.URL.Path + " " + r.URL.Query().Get("labelSelector") + " " + r.URL.Query().Get("fieldSelector")
		fmt.Fprint(w, `{"items":[{"status":{"podIP":"10.0.0.7"}},{"status":{}},{"status":{"podIP":"fd00::7"}}]}`)
	}))
	defer a.Close()
	s := &Agents{Where: OfPods, API: health.API{Server: a.URL}}
	at, err := s.addresses(t.Context(), "node-7")
	if err != nil || fmt.Sprint(at) != "[10.0.0.7:9611 [fd00::7]:9611]" {
		t.Errorf("addresses %v, %v", at, err)
	}

	if got, want := <-asked, "GET /api/v1/pods laggard/metrics=true spec.nodeName=node-7,status.phase=Running"; got != want {
		t.Errorf("asked %s, want %s", got, want)
	}
}

// TestUnlistedNode wants an error that names the list's lack.
func TestUnlistedNode(t *testing.T) {
	list := filepath.Join(t.TempDir(), "agents.yaml")
	if err := os.WriteFile(list, []byte("node-0: 127.0.0.1:1\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	s := &Agents{Where: list}
	if _, err := s.Get(t.Context(), "j", "node-1"); err == nil || !strings.Contains(err.Error(), "does not name it") {
		t.Errorf("a node that is not listed: %v", err)
	}
}
