package e2e

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestWatch_Webhook runs the command until a webhook has heard of the slow node.
func TestWatch_Webhook(t *testing.T) {
	t.Parallel()
	dir, _, _ := watchedJob(t, "compute-1.5", 31)
	heard := make(chan string, 100)
	a := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body) // the test looks at what came
		heard <- r.Method + " " + r.URL.Path + " " + string(b)
	}))
	defer a.Close()
	w := (&site{t: t}).start("watch", dir, "--every", "10ms", "--metrics", "", "--forget", "999999h", "--lag", "1m", "--state", t.TempDir(), "--webhook", a.URL+"/hook")
	late := time.After(patience)
	want := map[string]string{
		"POST /hook ": `"cause":"compute"`,
	}
	for len(want) > 0 {
		select {
		case got := <-heard:
			for k, in := range want {
				if strings.HasPrefix(got, k) && strings.Contains(got, in) {
					delete(want, k)
				}
			}
		case err := <-w.done:
			t.Fatalf("ended: %v; not heard: %v\n%s", err, want, w.words)
		case <-late:
			t.Fatalf("not heard: %v\n%s", want, w.words)
		}
	}

	if err := w.command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}

	w.wait()
}
